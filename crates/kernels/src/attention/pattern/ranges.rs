//! What patterns share that show a query one or more ranges of keys.

use std::ops::Range;

use super::{Coverage, Tile};

/// Coverage of a tile whose first query sees the keys `first` and whose last sees `last`. Exact if
/// each query sees one range, whose ends never fall from query to query, and neighbours' ranges touch.
pub(super) fn coverage(tile: &Tile, first: Range<usize>, last: Range<usize>) -> Coverage {
    let keys = &tile.keys;
    if keys.end <= first.start || last.end <= keys.start {
        Coverage::Empty
    } else if last.start <= keys.start && keys.end <= first.end {
        Coverage::Full
    } else {
        Coverage::Partial
    }
}

/// Sets all scores to −∞ but those of the visible keys, given as disjoint ranges in ascending order.
/// `scores[i]` belongs to the key at position `first + i`.
pub(super) fn keep(
    first: usize,
    scores: &mut [f32],
    visible: impl IntoIterator<Item = Range<usize>>,
) {
    let len = scores.len();
    let index = |position: usize| position.saturating_sub(first).min(len);
    let mut settled = 0;
    for keys in visible {
        if settled == len {
            return;
        }
        scores[settled..index(keys.start)].fill(f32::NEG_INFINITY);
        settled = index(keys.end);
    }
    scores[settled..].fill(f32::NEG_INFINITY);
}
