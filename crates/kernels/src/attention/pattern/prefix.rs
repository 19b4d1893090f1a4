//! Prefix: the whole prefix is visible to all, the rest is causal, `key < length or key ≤ query`.
//! Raffel et al. 2020 (T5), <https://arxiv.org/abs/1910.10683>. For prefix language models, whose
//! prompt is read in both directions.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, per_batch::PerBatch, ranges};
use crate::{Error, attention::Shape};

/// A prefix read in both directions, then causal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    lengths: PerBatch<usize>,
}

impl Prefix {
    /// The prefix's length, one for all sequences or one for each; a sequence beyond several lengths
    /// sees nothing. Refuses an empty list.
    pub fn new(lengths: Vec<usize>) -> Result<Self, Error> {
        Ok(Self { lengths: PerBatch::new("list of prefix lengths", lengths)? })
    }

    fn visible(&self, batch: usize, query: usize) -> Range<usize> {
        0..self.lengths.get(batch).map_or(0, |&length| length.max(query + 1))
    }
}

impl Pattern for Prefix {
    fn sees(&self, pair: Pair) -> bool {
        self.visible(pair.batch, pair.query).contains(&pair.key)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        let visible = |query: usize| self.visible(tile.batch, query);
        ranges::coverage(tile, visible(tile.queries.start), visible(tile.last_query()))
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        ranges::keep(first.key, scores, once(self.visible(first.batch, first.query)));
    }
    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.lengths.check(shape)
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use whatwhere_settings::Numbers;

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Prefix: the first `length` positions are seen by all, the rest is causal.
    /// Raffel et al. 2020 (T5), <https://arxiv.org/abs/1910.10683>. For prefix language models.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Prefix {
        /// Length of the prefix, or a list with that of each sequence; default 64.
        pub length: Numbers,
    }

    impl Default for Prefix {
        fn default() -> Self {
            Self { length: 64.into() }
        }
    }

    impl PatternSettings for Prefix {
        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            let lengths = match &self.length {
                Numbers::One(length) => vec![*length],
                Numbers::Many(lengths) => lengths.clone(),
            };
            Ok(Box::new(super::Prefix::new(lengths)?))
        }

        fn is_causal(&self) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn the_prefix_is_two_sided_and_the_rest_causal() {
        let pattern = Prefix::new(vec![3]).unwrap();
        assert_eq!(visible_keys(&pattern, 0, 6), [0, 1, 2]);
        assert_eq!(visible_keys(&pattern, 4, 6), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn one_length_serves_every_sequence_and_several_serve_one_each() {
        let pair = |batch| Pair { batch, head: 0, query: 0, key: 2 };
        let shared = Prefix::new(vec![3]).unwrap();
        assert_eq!([0, 1, 9].map(|batch| shared.sees(pair(batch))), [true; 3]);
        let each = Prefix::new(vec![3, 2]).unwrap();
        assert_eq!([0, 1, 2].map(|batch| each.sees(pair(batch))), [true, false, false]);
    }

    #[test]
    fn an_empty_list_is_refused() {
        assert_eq!(Prefix::new(vec![]), Err(Error::Zero { what: "list of prefix lengths" }));
    }
}
