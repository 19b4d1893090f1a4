//! Mixing: how weights are made of scores.

mod linear;
mod softmax;

#[cfg(feature = "burn")]
use burn::tensor::{Device, Tensor};

#[cfg(feature = "burn")]
use crate::{Error, Path, call::Call};
use crate::{axis::axis, heads::Heads};

#[cfg(feature = "burn")]
pub(crate) use linear::{DecodeSums, State};

/// Settings of a mixing.
pub trait MixingSettings {
    /// Whether scores exist, so that they can be capped, biased, hidden pair by pair or dropped.
    fn has_scores(&self) -> bool;

    /// Arithmetic for one token in all heads, a multiplication with its addition counted as two, where it does not
    /// depend on how many keys there are.
    fn flops_per_token(&self, _heads: &Heads) -> Option<f64> {
        None
    }
}

axis! {
    /// How weights are made of scores.
    Mixing: MixingSettings, MixingModule: MixingLayer {
        softmax::{Softmax, SoftmaxLayer} => "softmax",
        linear::{Linear, LinearLayer} => "linear",
    }
}

/// What a mixing needs besides q, k and v.
#[cfg(feature = "burn")]
#[derive(Clone, Copy)]
pub(crate) struct Mix<'a> {
    /// The call, with the pattern and what is added to scores.
    pub(crate) call: &'a Call,
    pub(crate) path: Path,
    /// Whether a query sees no later key.
    pub(crate) causal: bool,
    /// The position where padding starts, for each sequence.
    pub(crate) key_lengths: Option<&'a [usize]>,
}

/// A mixing at work.
#[cfg(feature = "burn")]
pub(crate) trait MixingLayer {
    /// `out [batch, heads, queries, head_dim]`.
    fn attend(
        &self,
        mix: Mix,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Tensor<4>, Error>;

    /// How new tokens meet those before, for a mixing that keeps sums instead of keys.
    fn decode(&self) -> Option<DecodeSums> {
        None
    }
}

#[cfg(feature = "burn")]
impl MixingLayer for MixingModule {
    fn attend(
        &self,
        mix: Mix,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Tensor<4>, Error> {
        self.role().attend(mix, q, k, v)
    }

    fn decode(&self) -> Option<DecodeSums> {
        self.role().decode()
    }
}

impl Mixing {
    /// Whether scores exist, so that they can be capped, biased, hidden pair by pair or dropped.
    pub fn has_scores(&self) -> bool {
        self.role().has_scores()
    }

    /// Arithmetic for one token in all heads, where it does not depend on how many keys there are.
    pub fn flops_per_token(&self, heads: &Heads) -> Option<f64> {
        self.role().flops_per_token(heads)
    }

    /// The mixing at work.
    #[cfg(feature = "burn")]
    pub fn build(&self, heads: &Heads, device: &Device) -> MixingModule {
        self.module(heads, device)
    }
}
