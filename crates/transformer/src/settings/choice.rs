//! What a model's settings choose among by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::layer;

/// Which stacks a model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Predicts the next token, as GPT.
    #[default]
    Decoder,
    /// A masked language model, which sees both sides of what it predicts, as BERT.
    Encoder,
    /// Reads one sequence and writes another, as the 2017 Transformer.
    EncoderDecoder,
}

/// What keeps the residual stream's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// `gain · x / √(mean x² + ε)`.
    #[default]
    Rms,
    /// `gain · (x − mean) / √(variance + ε) + bias`.
    Layer,
}

/// Where a norm stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// `x + sublayer(norm(x))`, and one more norm at the end.
    #[default]
    Pre,
    /// `norm(x + sublayer(x))`.
    Post,
    /// `x + norm(sublayer(norm(x)))`, and one more norm at the end (Gemma 2 and 3).
    Both,
    /// `x + norm(sublayer(x))`, and one more norm at the end (OLMo 2).
    Output,
}

/// How attention and feed-forward join the residual stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResidualKind {
    /// One after the other, each on the residual stream that the one before has left.
    #[default]
    Sequential,
    /// Side by side on one norm: `x + attention(norm(x)) + feed_forward(norm(x))` (GPT-J, Phi).
    Parallel,
    /// Side by side, each on a norm of its own (GPT-NeoX).
    ParallelTwoNorms,
}

/// The activation of the feed-forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)`.
    #[default]
    Gelu,
    /// `x · Φ(x)` by its tanh form, as GPT-2.
    GeluTanh,
    /// `x / (1 + e^−x)`.
    Silu,
    /// `silu(gate) · x`, with a third matrix: `silu` and `gated`.
    Swiglu,
}

impl Activation {
    /// The kernels' function of single values.
    pub(crate) fn pointwise(self) -> layer::Activation {
        match self {
            Self::Relu => layer::Activation::Relu,
            Self::Gelu => layer::Activation::Gelu,
            Self::GeluTanh => layer::Activation::GeluTanh,
            Self::Silu | Self::Swiglu => layer::Activation::Silu,
        }
    }
}

/// How the states of a text become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The mean over all tokens, as sentence-transformers has it by default.
    #[default]
    Mean,
    /// The first token's, as BERT's `[CLS]`.
    First,
    /// The last token's, which in a decoder has seen all others.
    Last,
}

/// Activation checkpointing: what the backward pass computes again. Where a block runs composed of the framework's operations, nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Nothing: everything between the sublayers is kept.
    #[default]
    None,
    /// Queries, keys, values and what attention mixes of them.
    Attention,
    /// All between the sublayers' inputs: attention and feed-forward.
    Block,
}

/// How weights start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Normal with deviation `(3 · from)^−½` for a projection from so many channels, as large as torch's linear layers at any
    /// width; embeddings with width^−½.
    #[default]
    Scaled,
    /// Normal with deviation 0.02; projections back into the residual stream divided by √(2 · layers), as GPT-2. Too small for
    /// widths far below its own 768.
    Normal,
    /// Uniform by Glorot and Bengio's bound; embeddings normal with deviation width^−½.
    Xavier,
}
