//! Byte-level BPE learnt from texts: the most frequent pair of neighbours becomes a token, again and again.
//! Sennrich et al. 2016, <https://arxiv.org/abs/1508.07909>; over bytes, Radford et al. 2019 (GPT-2).
//!
//! The merges are those of the `tokenizers` crate's trainer (a test compares them). Its time is quadratic in the longest
//! word, so that a text without blanks takes hours, and it can neither tell how far it is nor be stopped. Here the symbols
//! of all words stand in one linked list, and a merge visits only the places where its pair stood.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap},
};

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use super::refused;
use crate::{Error, Result, Watch, Work};

const LEAST: u64 = 2; // times that a pair has to stand somewhere
const TOGETHER: usize = 64; // pieces whose words are counted before anybody may interrupt

/// Learnt tokens in the order of their ids, and the merges in theirs.
pub(super) struct Learnt {
    pub(super) names: Vec<String>,
    pub(super) merges: Vec<(String, String)>,
}

/// Learns until there are `vocabulary` tokens or no pair comes twice; `alphabet` are the first tokens.
pub(super) fn learn(
    pieces: &[&str],
    cut: &(impl PreTokenizer + Sync),
    alphabet: Vec<char>,
    vocabulary: usize,
    watch: Watch,
) -> Result<Learnt> {
    let words = count_words(pieces, cut, watch)?;
    let ids = alphabet.iter().enumerate().map(|(id, character)| (*character, id as u32)).collect();
    let mut list = List::new(&words, &ids);
    let mut names: Vec<String> = alphabet.iter().map(char::to_string).collect();
    let mut known: HashMap<String, u32> = names.iter().cloned().zip(0..).collect();
    let mut merges = Vec::new();
    while names.len() < vocabulary {
        let work = Work { what: "tokens learnt", done: names.len() as u64, of: vocabulary as u64 };
        if watch(work).is_break() {
            return Err(Error::Interrupted);
        }
        let Some(pair) = list.most_frequent() else { break };
        let (left, right) = (&names[pair.0 as usize], &names[pair.1 as usize]);
        let name = format!("{left}{right}");
        merges.push((left.clone(), right.clone()));
        let id = *known.entry(name.clone()).or_insert(names.len() as u32);
        if id as usize == names.len() {
            names.push(name);
        }
        list.merge(pair, id);
    }
    Ok(Learnt { names, merges })
}

/// How often each word stands in the text.
fn count_words(
    pieces: &[&str],
    cut: &(impl PreTokenizer + Sync),
    watch: Watch,
) -> Result<HashMap<String, u64>> {
    let count = |piece: &&str| -> Result<HashMap<String, u64>> {
        let mut words: HashMap<String, u64> = HashMap::new();
        let mut text = PreTokenizedString::from(*piece);
        cut.pre_tokenize(&mut text).map_err(refused)?;
        for (word, ..) in text.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            match words.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(words.insert(word.to_string(), 1)),
            }
        }
        Ok(words)
    };
    let mut all: HashMap<String, u64> = HashMap::new();
    for (i, some) in pieces.chunks(TOGETHER).enumerate() {
        let work =
            Work { what: "pieces read", done: (i * TOGETHER) as u64, of: pieces.len() as u64 };
        if watch(work).is_break() {
            return Err(Error::Interrupted);
        }
        for words in some.par_iter().map(count).collect::<Result<Vec<_>>>()? {
            for (word, count) in words {
                *all.entry(word).or_default() += count;
            }
        }
    }
    Ok(all)
}

type Pair = (u32, u32);

/// The symbols of all words, each linked to its neighbours in the word.
struct List {
    symbols: Vec<u32>,
    before: Vec<u32>,
    after: Vec<u32>,
    /// How often the word of each symbol stands in the text.
    times: Vec<u64>,
    counts: HashMap<Pair, u64>,
    /// Where pairs stood when they were last counted.
    places: HashMap<Pair, Vec<u32>>,
    /// Pairs by count, some out of date.
    queue: BinaryHeap<(u64, Reverse<Pair>)>,
}

const NONE: u32 = u32::MAX; // no neighbour; as a symbol: merged into the one before

impl List {
    fn new(words: &HashMap<String, u64>, ids: &HashMap<char, u32>) -> Self {
        let mut list = Self {
            symbols: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            times: Vec::new(),
            counts: HashMap::new(),
            places: HashMap::new(),
            queue: BinaryHeap::new(),
        };
        for (word, times) in words {
            let first = list.symbols.len();
            list.symbols.extend(word.chars().filter_map(|character| ids.get(&character)));
            let end = list.symbols.len();
            for at in first..end {
                list.times.push(*times);
                list.before.push(if at == first { NONE } else { at as u32 - 1 });
                list.after.push(if at + 1 == end { NONE } else { at as u32 + 1 });
                if at + 1 < end {
                    list.add((list.symbols[at], list.symbols[at + 1]), at as u32);
                }
            }
        }
        list.queue.extend(list.counts.iter().map(|(pair, count)| (*count, Reverse(*pair))));
        list
    }

    /// The pair that comes most often, the one of smaller ids among equals.
    fn most_frequent(&mut self) -> Option<Pair> {
        loop {
            let (count, Reverse(pair)) = self.queue.pop()?;
            let now = self.counts.get(&pair).copied().unwrap_or(0);
            match count.cmp(&now) {
                _ if !self.places.contains_key(&pair) => continue,
                Ordering::Equal if count < LEAST => return None,
                Ordering::Equal => return Some(pair),
                _ => self.queue.push((now, Reverse(pair))),
            }
        }
    }

    /// Makes one symbol of every such pair, from left to right.
    fn merge(&mut self, pair: Pair, id: u32) {
        let mut places = self.places.remove(&pair).unwrap_or_default();
        places.sort_unstable();
        let mut grown: Vec<Pair> = Vec::new();
        for at in places {
            let right = self.after[at as usize];
            if self.symbols[at as usize] != pair.0
                || right == NONE
                || self.symbols[right as usize] != pair.1
            {
                continue;
            }
            let (before, after) = (self.before[at as usize], self.after[right as usize]);
            self.symbols[at as usize] = id;
            self.symbols[right as usize] = NONE;
            self.after[at as usize] = after;
            if before != NONE {
                let left = self.symbols[before as usize];
                self.take((left, pair.0), at);
                self.add((left, id), before);
                grown.push((left, id));
            }
            if after != NONE {
                self.before[after as usize] = at;
                let next = self.symbols[after as usize];
                self.take((pair.1, next), at);
                self.add((id, next), at);
                grown.push((id, next));
            }
        }
        self.counts.remove(&pair);
        grown.sort_unstable();
        grown.dedup();
        for pair in grown {
            let count = self.counts.get(&pair).copied().unwrap_or(0);
            if count > 0 {
                self.queue.push((count, Reverse(pair)));
            }
        }
    }

    fn add(&mut self, pair: Pair, at: u32) {
        *self.counts.entry(pair).or_default() += self.times[at as usize];
        self.places.entry(pair).or_default().push(at);
    }

    fn take(&mut self, pair: Pair, at: u32) {
        if let Some(count) = self.counts.get_mut(&pair) {
            *count = count.saturating_sub(self.times[at as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, time::Instant};

    use tokenizers::models::{TrainerWrapper, bpe::BpeTrainer};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::super::{Special, Tokenizer};
    use whatwhere_random::Random;

    use crate::{Error, Work};

    /// What the crate's own trainer learns.
    fn of_the_crate(text: &str, vocabulary: usize) -> serde_json::Value {
        let empty = Tokenizer::train([].into_iter(), 256, &[]).unwrap();
        let mut inner = empty.inner;
        let trainer = BpeTrainer::builder()
            .vocab_size(vocabulary)
            .min_frequency(2)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build();
        inner.train(&mut TrainerWrapper::BpeTrainer(trainer), [text].into_iter()).unwrap();
        serde_json::from_str(&inner.to_string(false).unwrap()).unwrap()
    }

    #[test]
    fn merges_are_those_of_the_tokenizers_crate() {
        let mut random = Random::new(&[3]);
        let drawn = |letters: usize, words: usize, random: &mut Random| -> String {
            let word = |random: &mut Random| -> String {
                (0..random.between(1, 12))
                    .map(|_| char::from(b'a' + random.below(letters) as u8))
                    .collect()
            };
            (0..words).map(|_| word(random) + " ").collect()
        };
        let texts = [
            drawn(3, 300, &mut random),
            drawn(20, 2000, &mut random),
            "aaaaaaa aaa aaaaa ".repeat(7),
            include_str!("train.rs").to_string(),
            "나는 밥을 먹었다. 너는 물을 마셨다, 그리고 우리는 갔다.\n".repeat(3),
        ];
        for text in texts {
            let ours = Tokenizer::train([text.as_str()].into_iter(), 600, &[]).unwrap();
            let ours: serde_json::Value = serde_json::from_str(&ours.to_json().unwrap()).unwrap();
            let theirs = of_the_crate(&text, 600);
            assert_eq!(ours["model"]["merges"], theirs["model"]["merges"], "{text:.60}");
            assert_eq!(ours["model"]["vocab"], theirs["model"]["vocab"], "{text:.60}");
        }
    }

    #[test]
    fn a_line_of_three_million_letters_takes_seconds() {
        let begun = Instant::now();
        let line = "a".repeat(3 << 20);
        let tokenizer = Tokenizer::train([line.as_str()].into_iter(), 8192, &[]).unwrap();
        let tokens = tokenizer.encode(&line).unwrap();
        assert_eq!(tokenizer.decode(&tokens), line);
        assert!(tokens.len() < 10, "{}", tokens.len());
        // Quadratic time would be more than ten minutes.
        assert!(begun.elapsed().as_secs() < 120, "{:?}", begun.elapsed());
    }

    #[test]
    fn learning_tells_how_far_it_is_and_can_be_ended() {
        let text = include_str!("train.rs");
        let mut heard: Vec<Work> = Vec::new();
        let mut watch = |work: Work| {
            heard.push(work);
            if heard.len() < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let ended = Tokenizer::train_watched([text].into_iter(), 600, &[Special::End], &mut watch);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        let last = heard[19];
        assert_eq!((last.what, last.of), ("tokens learnt", 599));
        assert!(last.done > 256 && heard.is_sorted_by_key(|work| work.of));
    }
}
