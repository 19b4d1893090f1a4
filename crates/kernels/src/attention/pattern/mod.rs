//! Patterns: which keys a query may see.
//!
//! A pattern is a set of (query, key) pairs. [`Pattern::sees`] is its definition; the other methods only
//! make it cheap and must agree with it. All indices are *positions*: query `i` of a call stands at
//! `first_query + i`, key `j` at `first_key + j`, so a pattern means the same in a full pass and in decoding.
//!
//! Patterns join by [`And`] and [`Or`], and a function becomes one by [`from_fn`]. Start reading at
//! [`Window`]. A new pattern is one file here, with its definition and its settings, and a line in the list of [`settings`]:
//! layers, the command, Python, the docs and the tests have it from there.

use std::ops::Range;

use crate::{Error, attention::Shape};

mod and;
mod causal;
#[cfg(test)]
mod computed;
mod count;
mod dilated;
mod document;
mod fixed;
mod full;
mod function;
mod global;
mod key_lengths;
mod or;
pub(crate) mod parts;
mod per_batch;
mod predicted;
mod prefix;
mod random;
mod ranges;
#[cfg(feature = "settings")]
mod role;
mod strided;
#[cfg(test)]
mod tests;
mod window;

pub use and::And;
pub use causal::Causal;
pub use count::{computed_pairs, visible_pairs};
pub use dilated::Dilated;
pub use document::Documents;
pub use fixed::Fixed;
pub use full::Full;
pub use function::{Function, from_fn};
pub use global::Global;
pub use key_lengths::KeyLengths;
pub use or::Or;
pub use parts::{Order, Part};
pub use predicted::Spans;
pub use prefix::Prefix;
pub use random::{Draw, Random};
pub use strided::Strided;
pub use window::Window;

/// The patterns that can be chosen by name, as settings: one line each.
#[cfg(feature = "settings")]
pub mod settings {
    pub use super::{
        global::settings::Token,
        role::{PatternContext, PatternSettings},
    };

    super::role::patterns! {
        full::Full => "full",
        causal::Causal => "causal",
        window::Window => "window",
        dilated::Dilated => "dilated",
        strided::Strided => "strided",
        fixed::Fixed => "fixed",
        random::Random => "random",
        global::Global => "global",
        prefix::Prefix => "prefix",
        document::Document => "document",
        predicted::Predicted => "predicted",
        and::And => "and",
        or::Or => "or",
    }
}

/// One pair of positions in one head of one sequence. Positions are below 2³², as an attention call ensures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Sequence in the batch.
    pub batch: usize,
    /// Query head.
    pub head: usize,
    /// Position of the query.
    pub query: usize,
    /// Position of the key.
    pub key: usize,
}

/// A rectangle of pairs: the unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Sequence in the batch.
    pub batch: usize,
    /// Query head.
    pub head: usize,
    /// Positions of the queries; never empty.
    pub queries: Range<usize>,
    /// Positions of the keys; never empty.
    pub keys: Range<usize>,
}

impl Tile {
    fn last_query(&self) -> usize {
        self.queries.end - 1
    }

    /// Least and greatest `key − query`; every distance between them occurs in the tile.
    fn distances(&self) -> (isize, isize) {
        let distance = |key: usize, query: usize| key as isize - query as isize;
        let last_key = self.keys.end - 1;
        (distance(self.keys.start, self.last_query()), distance(last_key, self.queries.start))
    }
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

impl Coverage {
    /// From how many of `all` things (at least one) are visible.
    fn of(visible: usize, all: usize) -> Self {
        if visible == 0 {
            Self::Empty
        } else if visible == all {
            Self::Full
        } else {
            Self::Partial
        }
    }
}

/// Which keys a query may see.
pub trait Pattern: Send + Sync {
    /// The definition: may this query see this key?
    fn sees(&self, pair: Pair) -> bool;

    /// How much of a tile is visible. `Partial` is always allowed; the others must be true.
    fn coverage(&self, _tile: &Tile) -> Coverage {
        Coverage::Partial
    }

    /// Sets the scores of the keys that the query of `first` does not see to −∞.
    /// `scores[i]` belongs to the key at position `first.key + i`.
    fn hide(&self, first: Pair, scores: &mut [f32]) {
        for (key, score) in (first.key..).zip(scores) {
            if !self.sees(Pair { key, ..first }) {
                *score = f32::NEG_INFINITY;
            }
        }
    }

    /// Parts that share no pair and together are the pattern, for one that shows something in most tiles of neighbors;
    /// none for one that does not.
    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    /// The keys of a tile that any of its queries sees, as ranges in any order, and whether all its queries see the whole
    /// range (`Full`) or not (`Partial`). For a single query these are exactly the keys it sees, all `Full`.
    fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
        parts::search(tile, &|tile| self.coverage(tile), &|pair| self.sees(pair), found);
    }

    /// Refuses a call the pattern was not made for, such as a batch with more sequences than it has lengths.
    fn check(&self, _shape: &Shape) -> Result<(), Error> {
        Ok(())
    }
}

/// What points to a pattern is one.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<P: Pattern + ?Sized> Pattern for $pointer {
            fn sees(&self, pair: Pair) -> bool {
                (**self).sees(pair)
            }
            fn coverage(&self, tile: &Tile) -> Coverage {
                (**self).coverage(tile)
            }
            fn hide(&self, first: Pair, scores: &mut [f32]) {
                (**self).hide(first, scores);
            }
            fn parts(&self) -> Vec<Part<'_>> {
                (**self).parts()
            }
            fn shown(&self, tile: &Tile, found: &mut dyn FnMut(Range<usize>, Coverage)) {
                (**self).shown(tile, found);
            }
            fn check(&self, shape: &Shape) -> Result<(), Error> {
                (**self).check(shape)
            }
        }
    )*};
}

pointers!(&P, Box<P>, std::sync::Arc<P>);
