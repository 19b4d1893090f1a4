//! Mixing: how weights are made of scores.

mod linear;
mod softmax;

use crate::axis::axis;

pub use linear::Linear;
pub use softmax::Softmax;

/// Settings of a mixing.
pub trait Weighing {
    /// Whether scores exist, so that they can be capped, biased, hidden pair by pair or dropped.
    fn has_scores(&self) -> bool;
}

axis! {
    /// How weights are made of scores.
    Mixing: Weighing {
        Softmax => "softmax",
        Linear => "linear",
    }
}

impl Mixing {
    /// Whether scores exist, so that they can be capped, biased, hidden pair by pair or dropped.
    pub fn has_scores(&self) -> bool {
        self.role().has_scores()
    }
}
