//! Softmax attention: what a call computes, the f64 reference, and the fused passes.
//!
//! [`Attention`] holds the choices of a call; [`mod@reference`] defines what they mean. `plan.rs` forms what all heads share,
//! `head.rs` one head's tiles of queries and keys, `scores.rs` the final scores of a tile for every pass.

mod backward;
mod bias;
mod call;
mod dropout;
mod feature;
mod forward;
mod head;
mod inspect;
mod learned;
pub mod pattern;
mod plan;
mod prepare;
pub mod reference;
mod score;
mod scores;
mod shape;

pub use bias::{Bias, Buckets, Relative, alibi_slopes};
pub use call::{Attention, BiasGradient, Dropout, Focus, Gradients, Inputs, Output};
pub use feature::{Angles, DELTA_RANGE, Feature, FeatureKind, Layout, Magnitude};
pub use inspect::{Inspection, Pooling};
pub use score::Score;
pub use shape::Shape;

pub(crate) use call::touched;
pub(crate) use dropout::RowMask;
