//! Full: every query sees every key, all `queries · keys` pairs.
//! Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>. For encoders and cross-attention.

use super::{Coverage, Pair, Pattern, Tile};

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
