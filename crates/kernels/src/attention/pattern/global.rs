//! Global: a few positions that see all and are seen by all, `query ∈ G or key ∈ G`.
//! Longformer, Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>, and BigBird, Zaheer et al. 2020,
//! <https://arxiv.org/abs/2007.14062>. Joined to a window or random blocks by `Or`.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};

/// Positions that see all and are seen by all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Positions below this are global.
    first: usize,
    /// Further global positions, ascending, none below `first`.
    others: Vec<usize>,
}

impl Global {
    /// The first `count` positions.
    pub fn first(count: usize) -> Self {
        Self { first: count, others: Vec::new() }
    }

    /// The positions given, in any order.
    pub fn at(mut positions: Vec<usize>) -> Self {
        positions.sort_unstable();
        positions.dedup();
        Self { first: 0, others: positions }
    }

    fn contains(&self, position: usize) -> bool {
        position < self.first || self.others.binary_search(&position).is_ok()
    }

    /// How many of the positions are global.
    fn count(&self, positions: &Range<usize>) -> usize {
        let below = |end: usize| end.min(self.first) + self.others.partition_point(|&p| p < end);
        below(positions.end) - below(positions.start)
    }
}

impl Pattern for Global {
    fn sees(&self, pair: Pair) -> bool {
        self.contains(pair.query) || self.contains(pair.key)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let (queries, keys) = (self.count(&tile.queries), self.count(&tile.keys));
        if queries == tile.queries.len() || keys == tile.keys.len() {
            Coverage::Full
        } else if queries + keys == 0 {
            Coverage::Empty
        } else {
            Coverage::Partial
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        if self.contains(first.query) {
            return;
        }
        let passed = self.others.partition_point(|&position| position < first.key);
        let others = self.others[passed..].iter().map(|&position| position..position + 1);
        ranges::keep(first.key, scores, once(0..self.first).chain(others));
    }
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use whatwhere_settings::{Numbers, Refuses};

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Global: the first `positions`, or those listed, see everything and are seen by all.
    /// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Joined by `or` to a window.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Global {
        /// How many, or a list of the positions themselves; default 1.
        pub positions: Numbers,
    }

    impl Default for Global {
        fn default() -> Self {
            Self { positions: 1.into() }
        }
    }

    impl PatternSettings for Global {
        fn check(&self) -> Result<(), Error> {
            if self.positions == Numbers::One(0) {
                return Err(Error::setting(
                    "pattern.positions",
                    0,
                    "at least one position is global",
                ));
            }
            Ok(())
        }

        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(match &self.positions {
                Numbers::One(count) => super::Global::first(*count),
                Numbers::Many(positions) => super::Global::at(positions.clone()),
            }))
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
    fn a_global_query_sees_all_and_every_query_sees_the_global_keys() {
        for pattern in [Global::first(2), Global::at(vec![1, 0, 1])] {
            assert_eq!(visible_keys(&pattern, 1, 5), [0, 1, 2, 3, 4]);
            assert_eq!(visible_keys(&pattern, 4, 5), [0, 1]);
        }
    }

    #[test]
    fn listed_places_need_not_be_the_first() {
        assert_eq!(visible_keys(&Global::at(vec![7, 3]), 5, 9), [3, 7]);
    }
}
