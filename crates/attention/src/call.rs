//! One attention call on tensors: what scores and encodings ask for, in terms both paths understand.
//!
//! A score or an encoding never knows how it is computed. It adds terms to a [`Call`]; the fused path hands them to the
//! kernels as slices, the composed path turns them into tensor operations. The formula and its order are those of
//! [`whatwhere_kernels`].

use std::{ops::Range, sync::Arc};

use burn::tensor::Tensor;
use whatwhere_kernels::attention::{Buckets, Dropout, Layout, Magnitude, pattern::Pattern};

/// Everything a call computes besides q, k and v.
#[derive(Clone)]
pub struct Call {
    /// Place of the first query.
    pub first_query: usize,
    /// Place of the first key.
    pub first_key: usize,
    /// Keys that are present, where k and v have capacity for more; all if absent.
    pub keys: Option<usize>,
    /// How queries and keys are compared.
    pub compare: Compare,
    /// `cap · tanh(score / cap)` on the compared score.
    pub soft_cap: Option<f32>,
    /// Added to every query before its features, `[heads, head_dim]`.
    pub query_bias: Option<Tensor<2>>,
    /// What places do to queries and keys.
    pub features: Vec<Feature>,
    /// What is added to the scores.
    pub biases: Vec<Bias>,
    /// Vectors by distance that join the values.
    pub relative_values: Option<Relative>,
    /// Which keys a query may see.
    pub pattern: Arc<dyn Pattern>,
    /// Luong's Gaussian on the weights.
    pub focus: Option<Focus>,
    /// Dropout on the weights.
    pub dropout: Option<Dropout>,
}

/// How queries and keys are compared.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a call holds a handful of them")]
pub enum Compare {
    /// `scale · q·k`.
    Dot {
        /// Factor on every score.
        scale: f32,
    },
    /// `scale · q·k / (|q| |k|)`.
    Cosine {
        /// Factor on every score.
        scale: f32,
    },
    /// `Σ_c weight_c · tanh(q_c + k_c)`.
    Additive {
        /// `[heads, head_dim]`.
        weight: Tensor<2>,
    },
}

impl Compare {
    /// The factor on the scores, which relative keys share.
    pub fn scale(&self) -> f32 {
        match self {
            Compare::Dot { scale } | Compare::Cosine { scale } => *scale,
            Compare::Additive { .. } => 1.0,
        }
    }
}

/// What a place does to some channels of some heads.
#[derive(Clone, Debug)]
pub struct Feature {
    /// What is done.
    pub kind: FeatureKind,
    /// Radians per place: one for each pair of channels (rotary) or each channel (polar).
    pub frequencies: Vec<f64>,
    /// Factor on cosine and sine; 1 except for YaRN.
    pub amplitude: f64,
    /// Which channels.
    pub channels: Range<usize>,
    /// Which query heads.
    pub heads: Range<usize>,
}

/// The kinds of feature.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a call holds a handful of them")]
pub enum FeatureKind {
    /// Turns pairs of channels.
    Rotary {
        /// Which channels form a pair.
        layout: Layout,
    },
    /// A magnitude and a phase for each channel.
    Polar {
        /// From a value to a magnitude.
        magnitude: Magnitude,
        /// Phase added to keys, `[heads, channels]`.
        delta: Option<Tensor<2>>,
    },
}

/// What is added to the scores.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a call holds a handful of them")]
pub enum Bias {
    /// `−slope[head] · |distance|`, `[heads]`.
    Slopes(Tensor<1>),
    /// `table[head, bucket(distance)]`, `[heads, buckets]`.
    Buckets(Tensor<2>, Buckets),
    /// `scale · (q + query_bias[head]) · vectors[head, distance]`.
    Relative {
        /// As wide as a key.
        vectors: Relative,
        /// `[heads, head_dim]`.
        query_bias: Option<Tensor<2>>,
    },
    /// `values[batch, head, query, key]`, sizes of 1 broadcast.
    Dense(Tensor<4>),
}

/// Vectors by clipped distance.
#[derive(Clone, Debug)]
pub struct Relative {
    /// `[heads or 1, left + 1 + right, width]`.
    pub table: Tensor<3>,
    /// Distances to the left that are told apart.
    pub left: usize,
    /// Distances to the right that are told apart.
    pub right: usize,
}

/// Luong's local-p.
#[derive(Clone, Debug)]
pub struct Focus {
    /// Predicted place of each query, `[batch, heads, queries]`.
    pub centers: Tensor<3>,
    /// Standard deviation in places.
    pub deviation: f32,
}

impl Call {
    /// k and v without the capacity for more keys.
    pub(crate) fn present(&self, k: Tensor<4>, v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        match self.keys {
            Some(keys) if keys < k.dims()[2] => (k.narrow(2, 0, keys), v.narrow(2, 0, keys)),
            _ => (k, v),
        }
    }

    /// Plain attention under a pattern: scaled dot score, no position.
    pub fn new(head_dim: usize, pattern: Arc<dyn Pattern>) -> Self {
        Self {
            first_query: 0,
            first_key: 0,
            keys: None,
            compare: Compare::Dot { scale: 1.0 / (head_dim as f32).sqrt() },
            soft_cap: None,
            query_bias: None,
            features: Vec::new(),
            biases: Vec::new(),
            relative_values: None,
            pattern,
            focus: None,
            dropout: None,
        }
    }
}
