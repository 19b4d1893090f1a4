//! And: what both patterns show, `A ∩ B`.
//! `And(Causal::upper_left(), pattern)` makes a pattern causal, `And(pattern, key_lengths)` adds padding.
//! More than two nest; boxed and borrowed patterns are patterns too.

use super::{Coverage, Pair, Pattern, Tile};
use crate::{Error, attention::Shape};

/// Keys that both patterns show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct And<A, B>(pub A, pub B);

impl<A: Pattern, B: Pattern> Pattern for And<A, B> {
    fn sees(&self, pair: Pair) -> bool {
        self.0.sees(pair) && self.1.sees(pair)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        match self.0.coverage(tile) {
            Coverage::Empty => Coverage::Empty,
            Coverage::Full => self.1.coverage(tile),
            Coverage::Partial => match self.1.coverage(tile) {
                Coverage::Empty => Coverage::Empty,
                Coverage::Partial | Coverage::Full => Coverage::Partial,
            },
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        self.0.hide(first, scores);
        self.1.hide(first, scores);
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.0.check(shape)?;
        self.1.check(shape)
    }
}
