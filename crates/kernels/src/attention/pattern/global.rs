//! Global: a few places that see all and are seen by all, `query ∈ G or key ∈ G`.
//! Longformer, Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>, and BigBird, Zaheer et al. 2020,
//! <https://arxiv.org/abs/2007.14062>. Joined to a window or random blocks by `Or`.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};

/// Places that see all and are seen by all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Places below this are global.
    first: usize,
    /// Further global places, ascending, none below `first`.
    others: Vec<usize>,
}

impl Global {
    /// The first `count` places.
    pub fn first(count: usize) -> Self {
        Self { first: count, others: Vec::new() }
    }

    /// The places given, in any order.
    pub fn at(mut places: Vec<usize>) -> Self {
        places.sort_unstable();
        places.dedup();
        Self { first: 0, others: places }
    }

    fn contains(&self, place: usize) -> bool {
        place < self.first || self.others.binary_search(&place).is_ok()
    }

    /// How many of the places are global.
    fn count(&self, places: &Range<usize>) -> usize {
        let below = |end: usize| end.min(self.first) + self.others.partition_point(|&p| p < end);
        below(places.end) - below(places.start)
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
        let passed = self.others.partition_point(|&place| place < first.key);
        let others = self.others[passed..].iter().map(|&place| place..place + 1);
        ranges::keep(first.key, scores, once(0..self.first).chain(others));
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
