//! Linear attention: `out_i = φ(q_i)·S / (φ(q_i)·Z + ε)` with `S = Σ_j φ(k_j) v_jᵀ`, `Z = Σ_j φ(k_j)` and a feature map φ,
//! `elu(x) + 1` in the paper, or without the denominator `out_i = scale · φ(q_i)·S`.
//! The sums run over all keys, or in causal attention over the keys `j ≤ i`.
//! Katharopoulos et al. 2020, <https://arxiv.org/abs/2006.16236>. For long sequences and cheap decoding: time grows
//! with the length, not with its square, and a [`LinearState`] of constant size holds the past. No key can be singled
//! out as sharply as by softmax, and nothing depends on positions; scores are not scaled by `1/√head_dim`.
//!
//! A causal pass walks through chunks of tokens and carries `S` and `Z`: with the features `Q`, `K` of a chunk,
//! `out = Q·S + lower(Q·Kᵀ)·V`, then `S += Kᵀ·V`. Calls with few heads are also cut into segments, whose sums are
//! formed side by side and added up in order. Start reading at `forward.rs`. Positions are in `rotated.rs`, states that forget
//! or overwrite in `recurrence.rs`.

mod backward;
mod denominator;
mod forward;
mod gradient;
mod head;
mod product;
mod recurrence;
mod rotated;
mod rotation;
mod segment;
mod state;

use crate::{
    Error, Pooled,
    attention::{Inputs, Shape},
    error::{expect_len, expect_range},
    simd::Simd,
};

pub use recurrence::{Recurrence, RecurrenceGradients};
pub use rotated::{RotatedGradients, RotatedLinearAttention};
pub use rotation::{Rotation, RotationGradients};
pub use state::LinearState;

/// One call of linear attention: every choice, checked when it is used.
///
/// ```
/// use whatwhere_kernels::{attention::{Inputs, Shape}, linear_attention::{LinearAttention, LinearState}};
///
/// let shape = Shape::square(1, 2, 1, 4); // one token at a time
/// let linear = LinearAttention::new(shape, true);
/// let mut state = LinearState::new(&linear);
/// for token in [[0.5; 8], [-0.5; 8]] {
///     let out = linear.decode(&mut state, &Inputs { q: &token, k: &token, v: &token })?;
///     assert_eq!(out.len(), shape.out_len());
/// }
/// # Ok::<(), whatwhere_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LinearAttention<'a> {
    /// The sizes.
    pub shape: Shape,
    /// Whether query `i` sees the keys `j ≤ i` only; there are then as many keys as queries.
    pub causal: bool,
    /// What makes features of queries and keys.
    pub map: FeatureMap,
    /// Added to the denominator, 1e-6 unless set: keeps rows finite whose features nearly vanish.
    pub epsilon: f32,
    /// The factor of the output in place of a denominator, where there is to be none.
    pub scale: Option<f32>,
    /// Keys of each sequence that are not padding, `[batch]`; keys at or beyond are ignored.
    pub key_lengths: Option<&'a [usize]>,
    /// The instruction set to run on; [`Simd::detect`] unless a test or benchmark forces another.
    pub simd: Simd,
}

/// What makes features `φ(x)` of a query or a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureMap {
    /// `elu(x) + 1`: `x + 1` from 0 on, `eˣ` below it.
    #[default]
    Elu,
    /// `max(x, 0)`.
    Relu,
    /// `eˣ`.
    Exp,
    /// `eˣ`, divided by its sum over the channels.
    Softmax,
    /// x itself, which may be negative: for outputs without a denominator.
    Identity,
}

impl FeatureMap {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Elu, Self::Relu, Self::Exp, Self::Softmax, Self::Identity];
}

/// What the forward pass makes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearOutput {
    /// `[batch, heads, queries, value_dim]`; zeros where a row has no keys.
    pub out: Vec<f32>,
    /// The denominator of each row, `φ(q)·Z + ε` or 1 where there is none, `[batch, heads, queries]`.
    pub normalizer: Vec<f32>,
}

/// What the backward pass makes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearGradients {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys; zeros for padding.
    pub k: Vec<f32>,
    /// Of the values; zeros for padding.
    pub v: Vec<f32>,
}

impl LinearGradients {
    /// Of any values, to be overwritten.
    fn uncleared(shape: &Shape) -> Self {
        let [q, k, v] = [shape.q_len(), shape.k_len(), shape.v_len()]
            .map(|length| Pooled::uncleared(length).into());
        Self { q, k, v }
    }
}

impl LinearAttention<'_> {
    /// Linear attention of the paper without padding; the other choices are fields to set.
    pub fn new(shape: Shape, causal: bool) -> Self {
        Self {
            shape,
            causal,
            map: FeatureMap::default(),
            epsilon: 1e-6,
            scale: None,
            key_lengths: None,
            simd: Simd::detect(),
        }
    }

    /// Checks the choices; every entry point does so first.
    pub fn check(&self) -> Result<(), Error> {
        self.shape.check()?;
        let Shape { batch, kv_heads, queries, keys, head_dim, value_dim, .. } = self.shape;
        let state = [batch, kv_heads, head_dim, value_dim, size_of::<f32>()];
        let bytes = state.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::TooLarge);
        }
        if self.causal && queries != keys {
            return Err(Error::Combination {
                what: "causal linear attention with unequal numbers of queries and keys",
                reason: "both count the same tokens; earlier tokens belong in the state of `decode`",
            });
        }
        let epsilon = self.epsilon;
        expect_range("epsilon", epsilon, epsilon >= 0.0 && epsilon.is_finite(), "[0, ∞)")?;
        match self.scale {
            Some(scale) => expect_range("scale", scale, scale.is_finite(), "any finite number")?,
            None if self.map == FeatureMap::Identity => {
                return Err(Error::Combination {
                    what: "the identity as feature map with a denominator",
                    reason: "features of both signs add up to any denominator, 0 too; set a scale instead",
                });
            }
            None => {}
        }
        if let Some(lengths) = self.key_lengths {
            expect_len("key_lengths", lengths.len(), batch)?;
            let longest = lengths.iter().copied().max().unwrap_or(0);
            expect_range("key length", longest, longest <= keys, "0 to the number of keys")?;
        }
        Ok(())
    }

    fn check_inputs(&self, inputs: &Inputs) -> Result<(), Error> {
        self.check()?;
        expect_len("q", inputs.q.len(), self.shape.q_len())?;
        expect_len("k", inputs.k.len(), self.shape.k_len())?;
        expect_len("v", inputs.v.len(), self.shape.v_len())
    }

    /// Key heads of the call, over all sequences. Query heads `i·group..(i + 1)·group` read key head `i`.
    fn kv_heads(&self) -> usize {
        self.shape.batch * self.shape.kv_heads
    }

    /// Keys of a key head that are not padding.
    fn keys_of(&self, kv_head: usize) -> usize {
        self.key_lengths.map_or(self.shape.keys, |lengths| lengths[kv_head / self.shape.kv_heads])
    }
}

/// The factor of a row's output; a row without keys and without ε has the denominator 0 and the output 0.
fn inverse(normalizer: f32) -> f32 {
    if normalizer == 0.0 { 0.0 } else { 1.0 / normalizer }
}
