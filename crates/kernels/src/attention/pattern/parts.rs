//! How a pattern is computed: parts that share no pair, each in an order that brings what it shows together.
//!
//! Tiles of neighbors save what lies apart from what is seen. A pattern that shows something in every tile says more: which of
//! its pairs are better gathered, queries some positions apart with just the keys they see. `And` and `Or` pass on what
//! their parts say, so a pattern made of others saves what they save.

use std::ops::Range;

use super::{Coverage, Pair, Pattern, Tile};
use crate::{Error, attention::Shape};

/// Some of a pattern's pairs, and how they are brought together.
pub struct Part<'a> {
    /// What it shows.
    pub pattern: Box<dyn Pattern + 'a>,
    /// How tiles are made of it.
    pub order: Order,
}

/// How tiles are made of a part's pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Neighboring queries with neighboring keys, where anything is seen.
    Neighbors,
    /// Queries `step` positions apart with the keys that they see and no others.
    Gathered {
        /// Positions between the queries of a tile.
        step: usize,
        /// Neighbors up to the next multiple of it see alike, so that no tile should hold two such blocks in part; 1 if
        /// there are none. It matters for a step of 1.
        block: usize,
    },
}

impl<'a> Part<'a> {
    /// Pairs that lie together already.
    pub fn neighbors(pattern: impl Pattern + 'a) -> Self {
        Self { pattern: Box::new(pattern), order: Order::Neighbors }
    }

    /// Pairs of queries `step` positions apart with the keys they see.
    pub fn gathered(step: usize, pattern: impl Pattern + 'a) -> Self {
        Self { pattern: Box::new(pattern), order: Order::Gathered { step, block: 1 } }
    }

    /// Pairs of queries that see alike in blocks, with the keys they see.
    pub fn in_blocks(block: usize, pattern: impl Pattern + 'a) -> Self {
        Self { pattern: Box::new(pattern), order: Order::Gathered { step: 1, block } }
    }

    /// The same of fewer pairs.
    pub(super) fn narrowed<P: Pattern + 'a>(
        self,
        to: impl FnOnce(Box<dyn Pattern + 'a>) -> P,
    ) -> Self {
        Self { pattern: Box::new(to(self.pattern)), order: self.order }
    }
}

/// The parts of a pattern, one of neighbors if it has none to tell.
pub(super) fn of(pattern: &dyn Pattern) -> Vec<Part<'_>> {
    let mut parts = pattern.parts();
    if parts.is_empty() {
        parts.push(Part::neighbors(pattern));
    }
    parts
}

const CHUNK: usize = 64; // 256 B of stack, and no more work than needed on a row of a tile.

/// What the first shows and the second does not.
pub(super) struct Except<A, B>(pub(super) A, pub(super) B);

/// The coverage of what is not seen.
fn inverse(coverage: Coverage) -> Coverage {
    match coverage {
        Coverage::Empty => Coverage::Full,
        Coverage::Partial => Coverage::Partial,
        Coverage::Full => Coverage::Empty,
    }
}

impl<A: Pattern, B: Pattern> Pattern for Except<A, B> {
    fn sees(&self, pair: Pair) -> bool {
        self.0.sees(pair) && !self.1.sees(pair)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        match self.0.coverage(tile) {
            Coverage::Empty => Coverage::Empty,
            whole => match inverse(self.1.coverage(tile)) {
                Coverage::Full => whole,
                Coverage::Partial => Coverage::Partial,
                Coverage::Empty => Coverage::Empty,
            },
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let mut scratch = [0.0; CHUNK];
        for (scores, key) in scores.chunks_mut(CHUNK).zip((first.key..).step_by(CHUNK)) {
            let first = Pair { key, ..first };
            let taken = &mut scratch[..scores.len()];
            taken.fill(0.0);
            self.0.hide(first, scores);
            self.1.hide(first, taken);
            for (score, taken) in scores.iter_mut().zip(taken) {
                *score = if *taken == 0.0 { f32::NEG_INFINITY } else { *score };
            }
        }
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        let left = |tile: &Tile| inverse(self.1.coverage(tile));
        let sees = |pair| !self.1.sees(pair);
        self.0.shown(tile, &mut |keys, whole| {
            narrow(&Tile { keys, ..tile.clone() }, whole, &left, &sees, found);
        });
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.0.check(shape)?;
        self.1.check(shape)
    }
}

/// What any of several patterns shows.
pub(crate) struct AnyOf<'a>(pub(crate) Vec<Box<dyn Pattern + 'a>>);

impl Pattern for AnyOf<'_> {
    fn sees(&self, pair: Pair) -> bool {
        self.0.iter().any(|pattern| pattern.sees(pair))
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        let mut most = Coverage::Empty;
        for pattern in &self.0 {
            match pattern.coverage(tile) {
                Coverage::Full => return Coverage::Full,
                Coverage::Partial => most = Coverage::Partial,
                Coverage::Empty => {}
            }
        }
        most
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        hide_all_but(&self.0, first, scores);
    }

    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        for pattern in &self.0 {
            pattern.shown(tile, found);
        }
    }
}

/// Hides what none of the patterns shows.
fn hide_all_but(patterns: &[Box<dyn Pattern + '_>], first: Pair, scores: &mut [f32]) {
    match patterns {
        [] => scores.fill(f32::NEG_INFINITY),
        [only] => only.hide(first, scores),
        [one, others @ ..] => {
            let one = |first, scores: &mut [f32]| one.hide(first, scores);
            super::or::hide(first, scores, one, |first, scores| {
                hide_all_but(others, first, scores);
            });
        }
    }
}

/// The keys of a tile that any of its queries sees, found by halving: what every pattern can do.
pub(super) fn search(
    tile: &Tile,
    coverage: &dyn Fn(&Tile) -> Coverage,
    sees: &dyn Fn(Pair) -> bool,
    found: &mut dyn FnMut(Range<usize>, Coverage),
) {
    narrow(tile, Coverage::Full, coverage, sees, found);
}

/// Passes on the keys of a tile that any of its queries sees, `whole` of which are seen without this; exactly those for a
/// single query.
pub(super) fn narrow(
    tile: &Tile,
    whole: Coverage,
    coverage: &dyn Fn(&Tile) -> Coverage,
    sees: &dyn Fn(Pair) -> bool,
    found: &mut dyn FnMut(Range<usize>, Coverage),
) {
    let Tile { batch, head, queries, keys } = tile;
    match coverage(tile) {
        Coverage::Empty => {}
        Coverage::Full => found(keys.clone(), whole),
        Coverage::Partial if keys.len() == 1 => {
            let at = |query| Pair { batch: *batch, head: *head, query, key: keys.start };
            if queries.len() > 1 {
                found(keys.clone(), Coverage::Partial);
            } else if sees(at(queries.start)) {
                found(keys.clone(), whole);
            }
        }
        Coverage::Partial => {
            let middle = keys.start + keys.len() / 2;
            for keys in [keys.start..middle, middle..keys.end] {
                narrow(&Tile { keys, ..tile.clone() }, whole, coverage, sees, found);
            }
        }
    }
}
