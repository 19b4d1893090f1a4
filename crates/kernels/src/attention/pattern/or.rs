//! Or: what either pattern shows, `A ∪ B`.
//! Longformer is `Or(window, global)`, BigBird `Or(window, Or(random, global))`.
//! More than two nest; boxed and borrowed patterns are patterns too.

use super::{Coverage, Pair, Pattern, Tile};
use crate::{Error, attention::Shape};

const CHUNK: usize = 64; // 256 B of stack, and no more work than needed on a row of a tile.

/// Keys that either pattern shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Or<A, B>(pub A, pub B);

impl<A: Pattern, B: Pattern> Pattern for Or<A, B> {
    fn sees(&self, pair: Pair) -> bool {
        self.0.sees(pair) || self.1.sees(pair)
    }

    fn coverage(&self, tile: &Tile) -> Coverage {
        match self.0.coverage(tile) {
            Coverage::Full => Coverage::Full,
            Coverage::Empty => self.1.coverage(tile),
            Coverage::Partial => match self.1.coverage(tile) {
                Coverage::Full => Coverage::Full,
                Coverage::Partial | Coverage::Empty => Coverage::Partial,
            },
        }
    }

    fn hide(&self, first: Pair, scores: &mut [f32]) {
        let mut scratch = [0.0; CHUNK];
        for (scores, key) in scores.chunks_mut(CHUNK).zip((first.key..).step_by(CHUNK)) {
            let first = Pair { key, ..first };
            let others = &mut scratch[..scores.len()];
            others.copy_from_slice(scores);
            self.0.hide(first, scores);
            self.1.hide(first, others);
            for (score, other) in scores.iter_mut().zip(others) {
                if *score == f32::NEG_INFINITY {
                    *score = *other;
                }
            }
        }
    }

    fn check(&self, shape: &Shape) -> Result<(), Error> {
        self.0.check(shape)?;
        self.1.check(shape)
    }
}
