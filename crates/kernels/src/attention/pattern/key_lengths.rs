//! Key lengths: padded keys are invisible, `key < length[batch]`.
//! The padding mask of Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>, as one number per
//! sequence. For batches of unequal sequences, padded at the end; `And` adds it to another pattern.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, per_batch::PerBatch, ranges};
use crate::{Error, attention::Shape};

/// Keys before the end of their sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLengths {
    lengths: PerBatch<usize>,
}

impl KeyLengths {
    /// The number of keys that are not padding, one for all sequences or one for each; a sequence
    /// beyond several lengths sees nothing. Refuses an empty list.
    pub fn new(lengths: Vec<usize>) -> Result<Self, Error> {
        Ok(Self { lengths: PerBatch::new("list of key lengths", lengths)? })
    }

    fn visible(&self, batch: usize) -> Range<usize> {
        0..self.lengths.get(batch).copied().unwrap_or(0)
    }
}

impl Pattern for KeyLengths {
    fn sees(&self, pair: Pair) -> bool {
        self.visible(pair.batch).contains(&pair.key)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        ranges::coverage(tile, self.visible(tile.batch), self.visible(tile.batch))
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        ranges::keep(first.key, scores, once(self.visible(first.batch)));
    }
    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.lengths.check(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sequence_ends_at_its_own_length() {
        let pattern = KeyLengths::new(vec![2, 0, 3]).unwrap();
        let seen = |batch| {
            (0..5).filter(|&key| pattern.sees(Pair { batch, head: 0, query: 4, key })).count()
        };
        assert_eq!([0, 1, 2, 3].map(seen), [2, 0, 3, 0]);
    }

    #[test]
    fn an_empty_list_is_refused() {
        assert_eq!(KeyLengths::new(vec![]), Err(Error::Zero { what: "list of key lengths" }));
    }

    #[test]
    fn a_batch_with_another_number_of_sequences_is_refused() {
        let shape = Shape::square(4, 1, 8, 4);
        let three = KeyLengths::new(vec![2, 0, 3]).unwrap();
        assert_eq!(
            three.check(&shape).unwrap_err().to_string(),
            "list of key lengths has 3 values, expected 4"
        );
        assert_eq!(KeyLengths::new(vec![2]).unwrap().check(&shape), Ok(()));
    }
}
