//! Patterns: which keys a query may see.
//!
//! A pattern is a set of (query, key) pairs. [`Pattern::sees`] is its definition; the other methods only
//! make it cheap and must agree with it. All indices are *places*: query `i` of a call stands at
//! `first_query + i`, key `j` at `first_key + j`, so a pattern means the same in a full pass and in decoding.

use std::ops::Range;

/// One pair of places in one head of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Sequence in the batch.
    pub batch: usize,
    /// Query head.
    pub head: usize,
    /// Place of the query.
    pub query: usize,
    /// Place of the key.
    pub key: usize,
}

/// A rectangle of pairs: the unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Sequence in the batch.
    pub batch: usize,
    /// Query head.
    pub head: usize,
    /// Places of the queries; never empty.
    pub queries: Range<usize>,
    /// Places of the keys; never empty.
    pub keys: Range<usize>,
}

/// How much of a tile is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Nothing: the tile costs nothing.
    Empty,
    /// Some of it, or unknown: each row is hidden pair by pair.
    Partial,
    /// All of it: no masking work.
    Full,
}

/// Which keys a query may see.
pub trait Pattern: Sync {
    /// The definition: may this query see this key?
    fn sees(&self, pair: Pair) -> bool;

    /// How much of a tile is visible. `Partial` is always allowed; the others must be true.
    fn coverage(&self, _tile: &Tile) -> Coverage {
        Coverage::Partial
    }

    /// Sets the scores of the keys that the query of `first` does not see to −∞.
    /// `scores[i]` belongs to the key at place `first.key + i`.
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        for (key, score) in (first.key..).zip(scores) {
            if !self.sees(Pair { key, ..first }) {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

/// Every key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Full;

impl Pattern for Full {
    fn sees(&self, _pair: Pair) -> bool {
        true
    }
    fn coverage(&self, _tile: &Tile) -> Coverage {
        Coverage::Full
    }
    fn hide(&self, _first: Pair, _scores: &mut [f32]) {}
}

/// Keys at or before the query's place shifted by `offset`: `key ≤ query + offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causal {
    /// How far beyond its own place a query sees; negative hides the most recent keys.
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
    /// First place the query may not see.
    fn end(&self, query: usize) -> usize {
        query.saturating_add(1).saturating_add_signed(self.offset)
    }
}

impl Pattern for Causal {
    fn sees(&self, pair: Pair) -> bool {
        pair.key < self.end(pair.query)
    }
    fn coverage(&self, tile: &Tile) -> Coverage {
        if tile.keys.start >= self.end(tile.queries.end - 1) {
            Coverage::Empty
        } else if tile.keys.end <= self.end(tile.queries.start) {
            Coverage::Full
        } else {
            Coverage::Partial
        }
    }
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let seen = self.end(first.query).saturating_sub(first.key).min(scores.len());
        scores[seen..].fill(f32::NEG_INFINITY);
    }
}
