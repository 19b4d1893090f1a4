//! Causal: no query sees what comes after it, `key ≤ query + offset`.
//! Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>. For language models and other decoders;
//! `And` makes any two-sided pattern causal.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};

/// Keys at or before the query's position shifted by `offset`: `key ≤ query + offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causal {
    /// How far beyond its own position a query sees; negative hides the most recent keys.
    pub offset: isize,
}

impl Causal {
    /// Aligned so that the first query sees the first key only (torch's `is_causal`).
    pub fn upper_left() -> Self {
        Self { offset: 0 }
    }

    /// Aligned so that the last of `queries` sees the last of `keys` (flash-attn ≥ 2.1, ONNX with a past).
    pub fn lower_right(queries: usize, keys: usize) -> Self {
        Self { offset: keys as isize - queries as isize }
    }

    fn visible(&self, query: usize) -> Range<usize> {
        0..query.saturating_add(1).saturating_add_signed(self.offset)
    }
}

impl Pattern for Causal {
    fn sees(&self, pair: Pair) -> bool {
        self.visible(pair.query).contains(&pair.key)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        ranges::coverage(tile, self.visible(tile.queries.start), self.visible(tile.last_query()))
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        ranges::keep(first.key, scores, once(self.visible(first.query)));
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

    /// Causal: a query sees the keys up to its own position.
    /// For language models. Half the cost of full.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Causal {
        /// A query sees the keys up to so many positions after its own, before it if negative; default 0.
        pub offset: isize,
    }

    impl PatternSettings for Causal {
        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(super::Causal { offset: self.offset }))
        }

        fn is_causal(&self) -> bool {
            self.offset <= 0
        }

        fn is_whole(&self) -> bool {
            self.offset == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(pattern: Causal, query: usize, key: usize) -> bool {
        pattern.sees(Pair { batch: 0, head: 0, query, key })
    }

    #[test]
    fn upper_left_shows_the_first_query_the_first_key_only() {
        assert!(sees(Causal::upper_left(), 0, 0));
        assert!(!sees(Causal::upper_left(), 0, 1));
    }

    #[test]
    fn lower_right_shows_the_last_query_every_key_and_the_one_before_all_but_one() {
        let pattern = Causal::lower_right(3, 5);
        assert!(sees(pattern, 2, 4));
        assert!(!sees(pattern, 1, 4) && sees(pattern, 1, 3));
    }

    #[test]
    fn more_queries_than_keys_leave_the_first_queries_blind() {
        let pattern = Causal::lower_right(5, 3);
        assert!(!sees(pattern, 1, 0));
        assert!(sees(pattern, 2, 0) && !sees(pattern, 2, 1));
    }
}
