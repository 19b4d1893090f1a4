//! Fixed: the query's own block and the last `summary` keys of every block before, causal:
//! `key ≤ query` and (`⌊key/stride⌋ = ⌊query/stride⌋` or `key mod stride ≥ stride − summary`).
//! Sparse Transformer, Child et al. 2019, <https://arxiv.org/abs/1904.10509>, both parts in one head.
//! For text; the paper takes strides of 128 and 256 and summaries of 8, 16 and 32.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Part, Pattern, Tile, ranges};
use crate::{Error, error::expect_range};

/// The query's block so far and the summaries of all earlier blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    stride: usize,
    summary: usize,
}

impl Fixed {
    /// Blocks of `stride` positions whose last `summary` are seen by all later queries; a summary of 0
    /// leaves the blocks alone. Refuses a stride of 0 and a summary longer than the stride.
    pub fn new(stride: usize, summary: usize) -> Result<Self, Error> {
        if stride == 0 {
            return Err(Error::Zero { what: "stride" });
        }
        expect_range("summary", summary, summary <= stride, "[0, stride]")?;
        Ok(Self { stride, summary })
    }

    fn is_summary(&self, key: usize) -> bool {
        key % self.stride >= self.stride - self.summary
    }

    /// How many of the keys are in a summary.
    fn summaries(&self, keys: Range<usize>) -> usize {
        let below = |end: usize| {
            let rest = (end % self.stride).saturating_sub(self.stride - self.summary);
            end / self.stride * self.summary + rest
        };
        below(keys.end) - below(keys.start)
    }
}

impl Pattern for Fixed {
    fn sees(&self, pair: Pair) -> bool {
        let Pair { query, key, .. } = pair;
        key <= query && (key / self.stride == query / self.stride || self.is_summary(key))
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let Tile { queries, keys, .. } = tile;
        // Keys after the last query are invisible; the last query sees every summary among the rest.
        let end = keys.end.min(queries.end);
        if end <= keys.start {
            return Coverage::Empty;
        }
        let shares_block = (end - 1) / self.stride >= queries.start / self.stride;
        if !shares_block && self.summaries(keys.start..end) == 0 {
            return Coverage::Empty;
        }
        // Keys before the last query's block must all be summaries.
        let block = tile.last_query() / self.stride * self.stride;
        let earlier = keys.start..keys.end.min(block).max(keys.start);
        let full =
            keys.end <= queries.start + 1 && self.summaries(earlier.clone()) == earlier.len();
        if full { Coverage::Full } else { Coverage::Partial }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let block = first.query / self.stride;
        let summaries = (first.key / self.stride..block).map(|block| {
            let end = (block + 1) * self.stride;
            end - self.summary..end
        });
        let own = block * self.stride..first.query + 1;
        ranges::keep(first.key, scores, summaries.chain(once(own)));
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let own = Self { summary: 0, ..*self };
        match self.summary {
            0 => Vec::new(), // Blocks by themselves lie together.
            summary if summary == self.stride => Vec::new(), // Causal.
            _ => vec![Part::neighbors(own), Part::gathered(1, Summaries(*self))],
        }
    }
}

/// The summaries of earlier blocks alone.
struct Summaries(Fixed);

impl Summaries {
    /// The block of the last query, before which all summaries lie that a tile can show.
    fn end(&self, tile: &Tile) -> usize {
        tile.last_query() / self.0.stride * self.0.stride
    }
}

impl Pattern for Summaries {
    fn sees(&self, pair: Pair) -> bool {
        pair.key / self.0.stride < pair.query / self.0.stride && self.0.is_summary(pair.key)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let Tile { queries, keys, .. } = tile;
        let seen = keys.start..keys.end.min(self.end(tile)).max(keys.start);
        let visible = self.0.summaries(seen);
        let first = queries.start / self.0.stride * self.0.stride;
        match Coverage::of(visible, keys.len()) {
            Coverage::Full if keys.end > first => Coverage::Partial,
            coverage => coverage,
        }
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        let Tile { queries, keys, .. } = tile;
        let Fixed { stride, summary } = self.0;
        let own = queries.start / stride;
        let end = self.end(tile).min(keys.end);
        for block in keys.start / stride..end.div_ceil(stride) {
            let last = (block + 1) * stride;
            let seen = (last - summary).max(keys.start)..last.min(end);
            if !seen.is_empty() {
                found(seen, if block < own { Coverage::Full } else { Coverage::Partial });
            }
        }
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Fixed: the own block of `stride` keys, and the last `summary` keys of every block before it, causal.
    /// Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For text; O(length · √length) pairs.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Fixed {
        /// Length of a block; default 128.
        pub stride: usize,
        /// Keys of a block that later blocks see; default 8.
        pub summary: usize,
    }

    impl Default for Fixed {
        fn default() -> Self {
            Self { stride: 128, summary: 8 }
        }
    }

    impl PatternSettings for Fixed {
        fn check(&self) -> Result<(), Error> {
            super::Fixed::new(self.stride, self.summary)?;
            Ok(())
        }

        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(super::Fixed::new(self.stride, self.summary)?))
        }

        fn is_causal(&self) -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn the_example_of_stride_4_and_summary_1_is_met() {
        let pattern = Fixed::new(4, 1).unwrap();
        assert_eq!(visible_keys(&pattern, 11, 16), [3, 7, 8, 9, 10, 11]);
        assert_eq!(visible_keys(&pattern, 8, 16), [3, 7, 8]);
    }

    #[test]
    fn a_longer_summary_is_the_end_of_each_block() {
        let pattern = Fixed::new(5, 2).unwrap();
        assert_eq!(visible_keys(&pattern, 11, 16), [3, 4, 8, 9, 10, 11]);
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        assert_eq!(Fixed::new(0, 0), Err(Error::Zero { what: "stride" }));
        assert!(matches!(Fixed::new(4, 5), Err(Error::Range { what: "summary", .. })));
    }
}
