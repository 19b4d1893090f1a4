//! A text, or a pair of texts, as a classifier reads it.

use crate::tokenizer::Tokenizer;

/// A row of tokens that is read as one: `<begin> text <end>`, or `<begin> text <end> second <end>`, as BERT's `[CLS]` and
/// `[SEP]`. Of the special tokens those stand there that the tokenizer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// The whole row.
    pub tokens: Vec<u32>,
    /// Where the second text begins; its type is another, for models that have types.
    pub second: Option<usize>,
    /// Whether a text was longer than there was room.
    pub is_cut: bool,
}

impl Framed {
    /// A row of at most `length` tokens. Of a pair the longer text is cut, as far as the other's length, then both.
    pub fn new(
        tokenizer: &Tokenizer,
        first: &[u32],
        second: Option<&[u32]>,
        length: usize,
    ) -> Self {
        let (begin, end) = (tokenizer.begin(), tokenizer.end());
        let room = length.saturating_sub(Self::around(tokenizer, second.is_some()));
        let all = first.len() + second.map_or(0, <[u32]>::len);
        let (one, other) = shares(first.len(), second.map_or(0, <[u32]>::len), room);
        let mut tokens: Vec<u32> = begin.into_iter().chain(first[..one].iter().copied()).collect();
        tokens.extend(end);
        let place = second.map(|second| {
            let place = tokens.len();
            tokens.extend(second[..other].iter().copied().chain(end));
            place
        });
        Self { tokens, second: place, is_cut: one + other < all }
    }

    /// Special tokens of a row.
    pub(crate) fn around(tokenizer: &Tokenizer, is_pair: bool) -> usize {
        let ends = if is_pair { 2 } else { 1 };
        usize::from(tokenizer.begin().is_some()) + ends * usize::from(tokenizer.end().is_some())
    }
}

/// How much of two lengths fits into so much room.
fn shares(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let half = room / 2;
    match (first <= room - half, second <= half) {
        (true, _) => (first, room - first),
        (false, true) => (room - second, second),
        (false, false) => (room - half, half),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::Special;

    #[test]
    fn rows_have_the_special_tokens_that_there_are() {
        let letters = "abc".chars().collect();
        let all = [Special::Padding, Special::Begin, Special::End];
        let tokenizer = Tokenizer::of_characters(&letters, &all).unwrap();
        let [begin, end] = [tokenizer.begin(), tokenizer.end()].map(Option::unwrap);
        let abc = tokenizer.encode("abc").unwrap();
        let row = Framed::new(&tokenizer, &abc, None, 9);
        assert_eq!(row.tokens, [begin, abc[0], abc[1], abc[2], end]);
        assert_eq!((row.second, row.is_cut), (None, false));
        let row = Framed::new(&tokenizer, &abc, Some(&abc[..1]), 6);
        assert_eq!(row.tokens, [begin, abc[0], abc[1], end, abc[0], end]);
        assert_eq!((row.second, row.is_cut), (Some(4), true));
        let plain = Tokenizer::of_characters(&letters, &[]).unwrap();
        let row = Framed::new(&plain, &abc, None, 2);
        assert_eq!((row.tokens, row.is_cut), (abc[..2].to_vec(), true));
    }

    #[test]
    fn the_longer_text_is_cut_and_no_room_is_left() {
        for (first, second, room) in
            (0..9).flat_map(|a| (0..9).flat_map(move |b| (0..12).map(move |room| (a, b, room))))
        {
            let (one, other) = shares(first, second, room);
            assert!(one <= first && other <= second);
            assert_eq!(one + other, room.min(first + second), "{first} {second} {room}");
            // Whoever was cut is no shorter than the other, but for an odd token.
            assert!(one == first || one + 1 >= other, "{first} {second} {room}");
            assert!(other == second || other + 1 >= one, "{first} {second} {room}");
        }
    }
}
