//! Softmax attention: what a call computes, the f64 reference, and the fused passes.
//!
//! [`Call`] holds the choices of a call; [`mod@reference`] defines what they mean. `plan.rs` forms what all heads share,
//! `head.rs` one head's tiles of queries and keys, `scores.rs` the final scores of a tile for every pass, `biases.rs` what biases do to a tile, `gathered/` what sparse patterns show apart.

mod backward;
mod bias;
mod biases;
mod call;
mod distance;
mod dropout;
mod feature;
mod forward;
mod gathered;
mod gradients;
mod head;
pub(crate) mod indices;
mod inspect;
mod learned;
mod pairwise;
pub mod pattern;
mod plan;
pub(crate) mod prepare;
pub mod reference;
mod score;
mod scores;
mod shape;

pub use bias::{Bias, Relative};
pub use call::{Attention, Call, Dropout, Focus, Inputs, Name, Output};
pub use distance::{Buckets, Columns, alibi_slopes, alibi_table};
pub use feature::{Angles, DELTA_RANGE, Feature, FeatureKind, Layout, Magnitude};
pub use gathered::Arrangement;
pub use gradients::Gradients;
pub use inspect::{Inspection, Pooling};
pub use score::Score;
pub use shape::Shape;

pub(crate) use dropout::RowMask;
pub(crate) use gathered::{Entries, Layers};
pub(crate) use gradients::touched;
