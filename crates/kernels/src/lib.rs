//! Softmax attention on plain slices.

mod attention;
mod backward;
mod bias;
mod dropout;
mod error;
mod feature;
mod forward;
mod learned;
mod parallel;
mod plan;
mod prepare;
mod scratch;
mod simd;
mod tile;
pub mod pattern;
pub mod reference;
mod score;
mod shape;

pub use attention::{Attended, Attention, BiasGradient, Dropout, Focus, Gradients, Inputs};
pub use bias::{Bias, Buckets, Relative, alibi_slopes};
pub use error::Error;
pub use feature::{Angles, DELTA_RANGE, Feature, Kind, Layout, Magnitude};
pub use score::Score;
pub use shape::Shape;
pub use simd::Simd;
