//! Tiles: the rectangles of (query, key) pairs that are worked on at a time, and how work is shared out.

use std::ops::Range;

use crate::{
    attention::pattern::{Coverage, Pattern, Tile},
    simd::rows::Region,
};

/// Queries and keys per tile. 96 is a multiple of every block of the matrix product (12 and 6 rows, 32 and 16
/// columns), and a tile of scores (36 KiB) with its keys and values stays in the second-level cache.
pub const TILE: usize = 96;
/// Columns of a tile come in multiples of the widest vector.
pub(crate) const PAD: usize = 16;
/// Rows that share one range of visible columns: one block of the matrix product.
pub(crate) const STRIP: usize = 12;
/// Strips of a tile.
pub(crate) const STRIPS: usize = TILE / STRIP;
/// Granularity of that range.
const PANEL: usize = 32;
/// Keys that share one range of visible rows when a product runs over the queries.
const HALF: usize = 48;

/// Which part of a tile is visible, strip by strip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    rows: usize,
    cols: usize,
    /// First and last column of each strip; equal where it sees nothing.
    strips: [(usize, usize); STRIPS],
    /// Whether the pattern must still hide single pairs.
    pub(crate) partial: bool,
}

impl Outline {
    /// The outline of a tile, or nothing if no pair is visible.
    pub(crate) fn new(pattern: &dyn Pattern, tile: &Tile) -> Option<Self> {
        let (rows, cols) = (tile.queries.len(), tile.keys.len());
        let whole = [(0, cols.next_multiple_of(PAD)); STRIPS];
        match pattern.coverage(tile) {
            Coverage::Empty => None,
            Coverage::Full => Some(Self { rows, cols, strips: whole, partial: false }),
            Coverage::Partial => {
                let mut strips = [(0, 0); STRIPS];
                for (strip, first) in strips.iter_mut().zip((0..rows).step_by(STRIP)) {
                    let start = tile.queries.start + first;
                    let queries = start..(start + STRIP).min(tile.queries.end);
                    *strip = visible(pattern, &Tile { queries, ..tile.clone() });
                }
                let seen = strips.iter().any(|(first, last)| first < last);
                seen.then_some(Self { rows, cols, strips, partial: true })
            }
        }
    }

    /// The outline of gathered columns, of which each strip sees some between two multiples of [`PAD`].
    pub(crate) fn gathered(rows: usize, cols: usize, strips: [(usize, usize); STRIPS]) -> Self {
        let whole = (0, cols.next_multiple_of(PAD));
        let partial = strips[..rows.div_ceil(STRIP)].iter().any(|strip| *strip != whole);
        Self { rows, cols, strips, partial }
    }

    /// The visible regions, neighbouring strips with equal columns joined.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> + use<> {
        let Self { rows, strips, .. } = *self;
        let count = rows.div_ceil(STRIP);
        let mut strip = 0;
        std::iter::from_fn(move || {
            while strip < count {
                let first = strip;
                let (start, end) = strips[first];
                while strip < count && strips[strip] == (start, end) {
                    strip += 1;
                }
                if start < end {
                    let rows = first * STRIP..(strip * STRIP).min(rows);
                    return Some(Region { rows, cols: start..end });
                }
            }
            None
        })
    }

    /// The same area cut by keys: halves of the tile with the rows that see any of their keys.
    pub(crate) fn halves(&self) -> impl Iterator<Item = Region> + use<> {
        let Self { rows, cols, strips, .. } = *self;
        (0..cols).step_by(HALF).filter_map(move |first| {
            let last = (first + HALF).min(cols);
            let touches = |&(start, end): &(usize, usize)| start < last && first < end;
            let top = strips.iter().position(touches)?;
            let bottom = strips.iter().rposition(touches)? + 1;
            Some(Region { rows: top * STRIP..(bottom * STRIP).min(rows), cols: first..last })
        })
    }
}

/// The smallest run of panels that holds every visible key of a strip.
fn visible(pattern: &dyn Pattern, strip: &Tile) -> (usize, usize) {
    let cols = strip.keys.len();
    let empty = |first: &usize| {
        let start = strip.keys.start + first;
        let keys = start..(start + PANEL).min(strip.keys.end);
        pattern.coverage(&Tile { keys, ..strip.clone() }) == Coverage::Empty
    };
    let mut panels = (0..cols).step_by(PANEL).filter(|first| !empty(first));
    match panels.next() {
        None => (0, 0),
        Some(first) => {
            let last = panels.next_back().unwrap_or(first);
            (first, (last + PANEL).min(cols.next_multiple_of(PAD)))
        }
    }
}

/// Cuts a range into tiles.
pub(crate) fn tiles(range: Range<usize>) -> impl DoubleEndedIterator<Item = Range<usize>> + Clone {
    let end = range.end;
    range.step_by(TILE).map(move |start| start..(start + TILE).min(end))
}

/// Tasks a call is cut into at the least, however few heads it has. A constant, so that results do not depend on
/// the number of threads.
const TASKS: usize = 16;
/// Most tiles of queries a forward task holds: what keeps its queries and outputs in the second-level cache.
const CHUNK_TILES: usize = 6;

/// Cuts the queries of one of `heads` heads into chunks of whole tiles.
pub(crate) fn query_chunks(queries: usize, heads: usize) -> Vec<Range<usize>> {
    let length = tiles_per_task(queries.div_ceil(TILE), heads) * TILE;
    (0..queries).step_by(length).map(|start| start..(start + length).min(queries)).collect()
}

/// Tiles of queries in a forward task over one of `heads` heads, each of so many tiles.
pub(crate) fn tiles_per_task(tiles: usize, heads: usize) -> usize {
    tiles.div_ceil(TASKS.div_ceil(heads.max(1))).clamp(1, CHUNK_TILES)
}

/// Cuts keys into at most `chunks` chunks of whole tiles that cost about the same.
/// `cost[i]` is the number of visible tiles above key tile `i`.
pub(crate) fn key_chunks(keys: usize, cost: &[usize], chunks: usize) -> Vec<Range<usize>> {
    let total: usize = cost.iter().sum();
    let mut ends = Vec::with_capacity(chunks);
    let mut sum = 0;
    for (tile, tile_cost) in cost.iter().enumerate() {
        sum += tile_cost;
        if sum * chunks >= total * (ends.len() + 1) {
            ends.push(((tile + 1) * TILE).min(keys));
        }
    }
    ends.dedup();
    let mut start = 0;
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(chunks);
    for end in ends {
        ranges.push(start..end);
        start = end;
    }
    match ranges.last_mut() {
        Some(last) => last.end = keys,
        None => ranges.push(0..keys),
    }
    ranges
}

/// Key chunks per head that a backward pass over `heads` key heads is cut into.
pub(crate) fn chunks_per_head(heads: usize) -> usize {
    TASKS.div_ceil(heads.max(1))
}
