//! Softmax attention on plain slices.

mod attention;
mod bias;
mod dropout;
mod error;
mod feature;
pub mod pattern;
mod score;
mod shape;

pub use attention::{Attended, Attention, BiasGradient, Dropout, Focus, Gradients, Inputs};
pub use bias::{Bias, Buckets, Relative, alibi_slopes};
pub use error::Error;
pub use feature::{Angles, DELTA_RANGE, Feature, Kind, Layout, Magnitude};
pub use score::Score;
pub use shape::Shape;
