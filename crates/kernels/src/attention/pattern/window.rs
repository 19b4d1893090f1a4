//! Window: the keys nearby, `query − left ≤ key ≤ query + right`, cost `queries · (left + 1 + right)`.
//! Longformer, Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150> (window w: `w/2` each side);
//! Luong's local attention with D = 10 is `left: 10, right: 10`. `right: 0` makes it causal.

use std::{iter::once, ops::Range};

use super::{Coverage, Pair, Pattern, Tile, ranges};

/// Keys at most `left` places before and `right` places after the query, which always sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Places before the query; [`Window::UNLIMITED`] for all.
    pub left: usize,
    /// Places after the query; 0 is causal, [`Window::UNLIMITED`] for all.
    pub right: usize,
}

impl Window {
    /// A side without an end, flash-attn's −1: farther than any place.
    pub const UNLIMITED: usize = usize::MAX;

    fn visible(&self, query: usize) -> Range<usize> {
        query.saturating_sub(self.left)..query.saturating_add(self.right).saturating_add(1)
    }
}

impl Pattern for Window {
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

#[cfg(test)]
mod tests {
    use super::{super::tests::visible_keys, *};

    #[test]
    fn both_ends_of_the_window_are_visible() {
        assert_eq!(visible_keys(&Window { left: 3, right: 2 }, 10, 20), [7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn an_unlimited_side_reaches_every_place() {
        let behind = Window { left: Window::UNLIMITED, right: 1 };
        assert_eq!(visible_keys(&behind, 3, 9), [0, 1, 2, 3, 4]);
        let ahead = Window { left: 1, right: Window::UNLIMITED };
        assert_eq!(visible_keys(&ahead, 5, 9), [4, 5, 6, 7, 8]);
    }
}
