//! What a pattern costs: the number of pairs it shows, and of those that are computed.

use super::{Coverage, Pair, Pattern, Tile};
use crate::attention::{Arrangement, Layers};

const SMALL: usize = 64; // Pairs; asking each of them costs about as much as halving on.

/// How many pairs of a tile, of any size, are visible. Only the parts that are partly visible are
/// asked pair by pair.
pub fn visible_pairs(pattern: &dyn Pattern, tile: &Tile) -> u64 {
    let (queries, keys) = (tile.queries.len(), tile.keys.len());
    if queries == 0 || keys == 0 {
        return 0;
    }
    match pattern.coverage(tile) {
        Coverage::Empty => 0,
        Coverage::Full => queries as u64 * keys as u64,
        Coverage::Partial if queries.saturating_mul(keys) <= SMALL => {
            pairs(tile).filter(|&pair| pattern.sees(pair)).count() as u64
        }
        Coverage::Partial => halves(tile).iter().map(|half| visible_pairs(pattern, half)).sum(),
    }
}

/// How many pairs of a tile, of any size, the passes compute, with padding: whole strips of the tiles that are partly
/// visible, or what is gathered. It starts where the tile does, as a call does with its first positions.
pub fn computed_pairs(pattern: &dyn Pattern, tile: &Tile) -> u64 {
    Layers::choose(pattern, tile, Arrangement::Cheapest).pairs(tile)
}

/// All pairs of a tile, row by row.
pub(super) fn pairs(tile: &Tile) -> impl Iterator<Item = Pair> {
    let Tile { batch, head, queries, keys } = tile.clone();
    queries.flat_map(move |query| keys.clone().map(move |key| Pair { batch, head, query, key }))
}

/// Cuts the longer side of a tile.
fn halves(tile: &Tile) -> [Tile; 2] {
    let (mut first, mut second) = (tile.clone(), tile.clone());
    let (left, right) = if tile.queries.len() > tile.keys.len() {
        (&mut first.queries, &mut second.queries)
    } else {
        (&mut first.keys, &mut second.keys)
    };
    let middle = left.start + left.len() / 2;
    (left.end, right.start) = (middle, middle);
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Causal, Full, Strided, from_fn},
        *,
    };

    fn square(length: usize) -> Tile {
        Tile { batch: 0, head: 0, queries: 0..length, keys: 0..length }
    }

    #[test]
    fn counts_equal_the_closed_forms() {
        let length = 1000;
        let triangle = (length * (length + 1) / 2) as u64;
        assert_eq!(visible_pairs(&Full, &square(length)), (length * length) as u64);
        assert_eq!(visible_pairs(&Causal::upper_left(), &square(length)), triangle);
        let function = from_fn(|pair| pair.key <= pair.query);
        assert_eq!(visible_pairs(&function, &square(length)), triangle);
    }

    #[test]
    fn counts_equal_asking_every_pair() {
        let pattern = Strided::new(7).unwrap();
        let tile = Tile { batch: 0, head: 0, queries: 50..93, keys: 11..88 };
        let asked = pairs(&tile).filter(|&pair| pattern.sees(pair)).count() as u64;
        assert_eq!(visible_pairs(&pattern, &tile), asked);
    }

    #[test]
    fn at_least_the_visible_pairs_are_computed_and_empty_tiles_are_not() {
        let full = computed_pairs(&Full, &square(960));
        assert_eq!(full, 960 * 960);
        let window = super::super::Window { left: 64, right: 0 };
        let (shown, computed) =
            (visible_pairs(&window, &square(960)), computed_pairs(&window, &square(960)));
        assert!(shown <= computed && computed < 3 * shown, "{shown} of {computed}");
        // A function says nothing of tiles.
        let function = from_fn(|pair| pair.key == pair.query);
        assert_eq!(computed_pairs(&function, &square(960)), full);
    }

    #[test]
    fn no_queries_show_no_pairs() {
        assert_eq!(computed_pairs(&Full, &Tile { queries: 5..5, ..square(9) }), 0);
        assert_eq!(visible_pairs(&Full, &Tile { queries: 5..5, ..square(9) }), 0);
    }
}
