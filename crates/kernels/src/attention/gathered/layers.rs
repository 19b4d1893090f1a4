//! Which parts of a pattern are computed as tiles of neighbors and which are gathered.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    EXACT_ROWS,
    attention::{
        Attention, Inputs,
        gathered::layout::Layout,
        pattern::{Order, Part, Pattern, Tile, parts::AnyOf},
        plan::Plan,
    },
    tile::{Outline, TILE, tiles},
};

/// How the pairs of a call are brought into tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// As costs less by an estimate of the pairs that are computed.
    #[default]
    Cheapest,
    /// Neighboring queries with neighboring keys.
    Neighbors,
    /// Gathered wherever a pattern says how, and as a whole if it says nothing.
    Gathered,
}

/// A pattern as it is computed: what lies together, and what is gathered afterwards.
pub(crate) struct Layers<'a> {
    neighbors: Neighbors<'a>,
    pub(crate) gathered: Vec<Layer<'a>>,
}

enum Neighbors<'a> {
    Whole(&'a dyn Pattern),
    Part(Box<dyn Pattern + 'a>),
    None,
}

/// Parts of a pattern that are gathered alike.
pub(crate) struct Layer<'a> {
    pub(crate) pattern: Box<dyn Pattern + 'a>,
    /// All queries of a head by index, those of a tile one after the other.
    order: Vec<u32>,
    /// Where each tile ends.
    ends: Vec<usize>,
}

impl<'a> Layer<'a> {
    /// Queries from position `first` on, `step` apart, in tiles of whole blocks of positions.
    fn new(
        pattern: Box<dyn Pattern + 'a>,
        first: usize,
        queries: usize,
        (step, block): (usize, usize),
    ) -> Self {
        let starts = 0..step.min(queries);
        let order = starts.flat_map(|start| (start..queries).step_by(step));
        let order = order.map(|query| query as u32).collect();
        // Several blocks in a tile, or a block in several tiles of about the same size.
        let block = if step > 1 { 1 } else { block };
        let length = match block {
            1..=TILE => TILE / block * block,
            _ => block.div_ceil(block.div_ceil(TILE)),
        };
        let mut ends = Vec::new();
        let mut start = 0;
        while start < queries {
            let to_block = if block > 1 { block - (first + start) % block } else { length };
            // From inside a block to its end, then on by whole blocks.
            let end = start + if to_block < block { to_block.min(length) } else { length };
            let end = match block > TILE {
                true => end.min(start + to_block),
                false => end,
            };
            ends.push(end.min(queries));
            start = end;
        }
        Self { pattern, order, ends }
    }

    /// How many tiles there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The queries of some tiles, by index.
    pub(crate) fn queries(&self, tiles: Range<usize>) -> &[u32] {
        let start = if tiles.start == 0 { 0 } else { self.ends[tiles.start - 1] };
        &self.order[start..self.ends[tiles.end - 1]]
    }

    /// Cuts the tiles into chunks of so many at the most.
    pub(crate) fn chunks(&self, length: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let count = self.len();
        (0..count)
            .step_by(length.max(1))
            .map(move |start| start..(start + length.max(1)).min(count))
    }
}

/// A gathered pair costs so much more than one of a tile of neighbors: keys are copied together, and gradients back.
const GATHERED_COST: f64 = 1.2;
/// Pairs whose products cost as much as asking a pattern which of a row of a tile it hides.
const HIDDEN_ROW: u64 = 16;
/// Tiles of queries that an estimate looks at.
const SAMPLES: usize = 16;

impl<'a> Layers<'a> {
    /// The layers of a call.
    pub(crate) fn of(attention: &'a Attention<'a>) -> Self {
        let whole = Tile {
            batch: 0,
            head: 0,
            queries: attention.query_positions(),
            keys: attention.key_positions(),
        };
        Self::choose(attention.pattern, &whole, attention.arrangement)
    }

    /// The layers of a tile of any size, as a call over its queries and keys has them.
    pub(crate) fn choose(pattern: &'a dyn Pattern, whole: &Tile, by: Arrangement) -> Self {
        // Few queries are computed row by row, to the same bits in any number.
        let few = whole.queries.len() <= EXACT_ROWS || whole.keys.is_empty();
        let mut parts = pattern.parts();
        let plain = || Self { neighbors: Neighbors::Whole(pattern), gathered: Vec::new() };
        match by {
            _ if few => return plain(),
            Arrangement::Neighbors => return plain(),
            Arrangement::Cheapest if parts.is_empty() => return plain(),
            Arrangement::Gathered if parts.is_empty() => parts.push(Part::gathered(1, pattern)),
            Arrangement::Cheapest | Arrangement::Gathered => {}
        }
        let layers = Self::join(parts, &whole.queries);
        if by == Arrangement::Gathered || layers.is_cheaper(pattern, whole) {
            layers
        } else {
            plain()
        }
    }

    /// What is computed as tiles of neighbors, if anything is.
    pub(crate) fn neighbors(&self) -> Option<&(dyn Pattern + '_)> {
        match &self.neighbors {
            Neighbors::Whole(pattern) => Some(*pattern),
            Neighbors::Part(pattern) => Some(&**pattern),
            Neighbors::None => None,
        }
    }

    /// What the heads of a call share.
    pub(crate) fn plan<'p>(
        &'p self,
        attention: &'p Attention<'p>,
        inputs: &Inputs<'p>,
    ) -> Plan<'p> {
        let pattern = self.neighbors().unwrap_or(attention.pattern);
        Plan::with(attention, *inputs, pattern)
    }

    /// Joins parts of the same order.
    fn join(parts: Vec<Part<'a>>, queries: &Range<usize>) -> Self {
        let mut neighbors = Vec::new();
        // By step: the largest block, and the patterns.
        let mut gathered: BTreeMap<usize, (usize, Vec<Box<dyn Pattern + 'a>>)> = BTreeMap::new();
        for Part { pattern, order } in parts {
            match order {
                Order::Neighbors => neighbors.push(pattern),
                Order::Gathered { step, block } => {
                    // Beyond all queries no two are a step apart.
                    let step = if step < queries.len() { step.max(1) } else { 1 };
                    let (largest, patterns) = gathered.entry(step).or_insert((1, Vec::new()));
                    *largest = block.max(*largest);
                    patterns.push(pattern);
                }
            }
        }
        let one = |mut patterns: Vec<Box<dyn Pattern + 'a>>| match patterns.pop() {
            Some(only) if patterns.is_empty() => only,
            last => {
                patterns.extend(last);
                Box::new(AnyOf(patterns))
            }
        };
        Self {
            neighbors: match neighbors.is_empty() {
                true => Neighbors::None,
                false => Neighbors::Part(one(neighbors)),
            },
            gathered: gathered
                .into_iter()
                .map(|(step, (block, patterns))| {
                    Layer::new(one(patterns), queries.start, queries.len(), (step, block))
                })
                .collect(),
        }
    }

    /// Whether gathering costs less, by some tiles of queries.
    fn is_cheaper(&self, pattern: &dyn Pattern, whole: &Tile) -> bool {
        let neighbors = |pattern: &dyn Pattern| {
            let count = whole.queries.len().div_ceil(TILE);
            let rows = |tile: usize| tile * TILE..((tile + 1) * TILE).min(whole.queries.len());
            mean(count, |tile| {
                let (pairs, hidden) = neighbors_above(pattern, whole, rows(tile));
                (pairs + HIDDEN_ROW * hidden, rows(tile).len())
            })
        };
        let together = neighbors(pattern);
        let mut apart = self.neighbors().map_or(0.0, neighbors);
        for layer in &self.gathered {
            let mut layout = Layout::new(whole.keys.len());
            let pairs = mean(layer.len(), |tile| {
                let queries = layer.queries(tile..tile + 1);
                layout.lay(&*layer.pattern, whole, queries);
                (layout.pairs(), queries.len())
            });
            apart += GATHERED_COST * (pairs + PREPARED);
        }
        apart < together
    }

    /// How many pairs are computed, padding included.
    pub(crate) fn pairs(&self, whole: &Tile) -> u64 {
        let lying: u64 = self.neighbors().map_or(0, |pattern| {
            let rows = tiles(0..whole.queries.len());
            rows.map(|rows| neighbors_above(pattern, whole, rows).0).sum()
        });
        let gathered = self.gathered.iter().map(|layer| {
            let mut layout = Layout::new(whole.keys.len());
            let tiles = 0..layer.len();
            let pairs = tiles.map(|tile| {
                layout.lay(&*layer.pattern, whole, layer.queries(tile..tile + 1));
                layout.pairs()
            });
            pairs.sum::<u64>()
        });
        lying + gathered.sum::<u64>()
    }
}

/// Keys whose products cost as much as preparing a query once more.
const PREPARED: f64 = 8.0;

/// The mean of pairs by query over some of the tiles.
fn mean(count: usize, mut pairs_and_queries: impl FnMut(usize) -> (u64, usize)) -> f64 {
    let apart = count.div_ceil(SAMPLES).max(1);
    let mut sums = (0, 0);
    for tile in (apart / 2..count).step_by(apart) {
        let (pairs, queries) = pairs_and_queries(tile);
        sums = (sums.0 + pairs, sums.1 + queries);
    }
    sums.0 as f64 / sums.1.max(1) as f64
}

/// Pairs that tiles of neighbors compute for some queries, by index, and the rows in which pairs are hidden.
fn neighbors_above(pattern: &dyn Pattern, whole: &Tile, rows: Range<usize>) -> (u64, u64) {
    let start = whole.queries.start;
    let queries = start + rows.start..start + rows.end;
    let (mut pairs, mut hidden) = (0, 0);
    for keys in tiles(whole.keys.clone()) {
        let tile = Tile { queries: queries.clone(), keys, ..*whole };
        let Some(outline) = Outline::new(pattern, &tile) else { continue };
        for region in outline.regions() {
            let rows = region.rows.len() as u64;
            pairs += rows * region.cols.len() as u64;
            hidden += if outline.partial { rows } else { 0 };
        }
    }
    (pairs, hidden)
}
