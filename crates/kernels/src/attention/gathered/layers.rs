//! Which parts of a pattern are computed as tiles of neighbors and which are gathered.

use std::ops::Range;

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
    /// All queries of a head by index, neighbors in tiles first.
    pub(crate) order: Vec<u32>,
}

impl Layer<'_> {
    /// How the queries of a task are cut into tiles.
    pub(crate) fn tiles(order: &[u32]) -> impl Iterator<Item = &[u32]> {
        order.chunks(TILE)
    }
}

/// A gathered pair costs so much more than one of a tile of neighbors: keys are copied together, and gradients back.
const GATHERED_COST: f64 = 1.4;
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
        let layers = Self::join(parts, whole.queries.len());
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
    fn join(parts: Vec<Part<'a>>, queries: usize) -> Self {
        let mut neighbors = Vec::new();
        let mut gathered: Vec<(usize, Vec<Box<dyn Pattern + 'a>>)> = Vec::new();
        for Part { pattern, order } in parts {
            match order {
                Order::Neighbors => neighbors.push(pattern),
                Order::Gathered { step } => {
                    // Beyond all queries no two are a step apart.
                    let step = if step < queries { step.max(1) } else { 1 };
                    match gathered.iter_mut().find(|(other, _)| *other == step) {
                        Some((_, patterns)) => patterns.push(pattern),
                        None => gathered.push((step, vec![pattern])),
                    }
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
        let by_step = |step: usize| {
            let starts = 0..step.min(queries);
            starts.flat_map(|start| (start..queries).step_by(step)).map(|i| i as u32).collect()
        };
        Self {
            neighbors: match neighbors.is_empty() {
                true => Neighbors::None,
                false => Neighbors::Part(one(neighbors)),
            },
            gathered: gathered
                .into_iter()
                .map(|(step, patterns)| Layer { pattern: one(patterns), order: by_step(step) })
                .collect(),
        }
    }

    /// Whether gathering costs less, by some tiles of queries.
    fn is_cheaper(&self, pattern: &dyn Pattern, whole: &Tile) -> bool {
        let count = whole.queries.len().div_ceil(TILE);
        let apart = count.div_ceil(SAMPLES);
        let some = || (0..count).skip(apart / 2).step_by(apart);
        let rows = |tile: usize| tile * TILE..((tile + 1) * TILE).min(whole.queries.len());
        let neighbors = |pattern: &dyn Pattern| -> u64 {
            some().map(|tile| neighbors_above(pattern, whole, rows(tile))).sum()
        };
        let together = neighbors(pattern) as f64;
        let mut apart = self.neighbors().map_or(0, neighbors) as f64;
        for layer in &self.gathered {
            let mut layout = Layout::new(whole.keys.len());
            for rows in some().map(rows) {
                layout.lay(&*layer.pattern, whole, &layer.order[rows.clone()]);
                // Beside its pairs, a tile of queries is prepared again.
                apart += GATHERED_COST * (layout.pairs() + (rows.len() * PREPARED) as u64) as f64;
            }
        }
        apart < together
    }

    /// How many pairs are computed, padding included.
    pub(crate) fn pairs(&self, whole: &Tile) -> u64 {
        let lying: u64 = self.neighbors().map_or(0, |pattern| {
            let rows = tiles(0..whole.queries.len());
            rows.map(|rows| neighbors_above(pattern, whole, rows)).sum()
        });
        let gathered = self.gathered.iter().map(|layer| {
            let mut layout = Layout::new(whole.keys.len());
            let tiles = Layer::tiles(&layer.order);
            tiles
                .map(|queries| {
                    layout.lay(&*layer.pattern, whole, queries);
                    layout.pairs()
                })
                .sum::<u64>()
        });
        lying + gathered.sum::<u64>()
    }
}

/// Keys whose products cost as much as preparing a query once more.
const PREPARED: usize = 8;

/// Pairs that tiles of neighbors compute above some queries, by index.
fn neighbors_above(pattern: &dyn Pattern, whole: &Tile, rows: Range<usize>) -> u64 {
    let start = whole.queries.start;
    let queries = start + rows.start..start + rows.end;
    let mut pairs = 0;
    for keys in tiles(whole.keys.clone()) {
        let tile = Tile { queries: queries.clone(), keys, ..*whole };
        let regions = Outline::new(pattern, &tile).into_iter().flat_map(|o| o.regions());
        pairs += regions.map(|r| r.rows.len() as u64 * r.cols.len() as u64).sum::<u64>();
    }
    pairs
}
