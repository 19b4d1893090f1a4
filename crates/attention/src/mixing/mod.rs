//! Mixing: how weights are made of scores, or what stands in their place.

mod delta;
mod gated_delta;
mod gated_linear;
mod linear;
mod retention;
mod softmax;

#[cfg(feature = "burn")]
use burn::tensor::{Device, Tensor};
use whatwhere_kernels::{attention::Shape, linear_attention::LinearAttention};

use crate::{Error, axis::axis, heads::Heads};
#[cfg(feature = "burn")]
use crate::{Path, Way, call::Call, recurrence::Gates};

pub use gated_linear::Gating;
pub use linear::LinearFeatures;

/// Settings of a mixing.
pub trait MixingSettings {
    /// Whether scores exist, so that they can be capped, biased, hidden pair by pair or dropped.
    fn has_scores(&self) -> bool;

    /// Refuses settings without meaning.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether features of queries and keys are magnitudes already, so that an encoding has none to make.
    fn makes_magnitudes(&self) -> bool {
        false
    }

    /// The kernels' call, for one that needs no more than queries, keys, values and positions.
    fn kernel(&self, _shape: Shape, _causal: bool) -> Option<LinearAttention<'static>> {
        None
    }

    /// Whether a state is carried from token to token, so that none sees a later one.
    fn is_causal(&self) -> bool {
        false
    }

    /// Why positions cannot turn queries and keys, if they cannot.
    fn refuses_rotation(&self) -> Option<&'static str> {
        None
    }

    /// Weights of the projections that make its gates.
    fn weights(&self, _heads: &Heads) -> usize {
        0
    }

    /// Arithmetic for one token in all heads, a multiplication with its addition counted as two, where it does not
    /// depend on how many keys there are; `extra` is by how many channels, over all heads, queries and keys grow.
    fn flops_per_token(&self, _heads: &Heads, _extra: usize) -> Option<f64> {
        None
    }
}

axis! {
    /// How weights are made of scores.
    Mixing: MixingSettings, MixingModule: MixingLayer {
        softmax::{Softmax, SoftmaxLayer} => "softmax",
        linear::{Linear, LinearLayer} => "linear",
        retention::{Retention, RetentionLayer} => "retention",
        gated_linear::{GatedLinear, GatedLinearLayer} => "gated_linear",
        delta::{Delta, DeltaLayer} => "delta",
        gated_delta::{GatedDelta, GatedDeltaLayer} => "gated_delta",
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
    /// What the mixing made of the keys' tokens.
    pub(crate) gates: &'a Gates,
}

/// A mixing at work.
#[cfg(feature = "burn")]
pub(crate) trait MixingLayer {
    /// What it makes of the tokens that keys are made of, `[batch, keys, width]`, besides keys.
    fn gates(&self, _x: &Tensor<3>, _way: Way) -> Gates {
        Gates::default()
    }

    /// `out [batch, heads, queries, head_dim]`.
    fn attend(
        &self,
        mix: Mix,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Tensor<4>, Error>;

    /// Whether a state stands for all earlier keys, which [`Self::step`] asks.
    fn keeps_state(&self) -> bool {
        false
    }

    /// The next tokens against the state of those before, which takes them up.
    fn step(
        &self,
        mix: Mix,
        _state: &mut Option<State>,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Tensor<4>, Error> {
        self.attend(mix, q, k, v)
    }
}

/// What is left of the keys and values seen so far.
#[cfg(feature = "burn")]
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Products of keys and values, `[batch, heads, channels of a key, head_dim]`.
    pub(crate) sums: Tensor<4>,
    /// Of a denominator, sums of keys, `[batch, heads, head_dim, 1]`.
    pub(crate) total: Option<Tensor<4>>,
}

#[cfg(feature = "burn")]
impl MixingLayer for MixingModule {
    fn gates(&self, x: &Tensor<3>, way: Way) -> Gates {
        self.role().gates(x, way)
    }

    fn attend(
        &self,
        mix: Mix,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Tensor<4>, Error> {
        self.role().attend(mix, q, k, v)
    }

    fn keeps_state(&self) -> bool {
        self.role().keeps_state()
    }

    fn step(
        &self,
        mix: Mix,
        state: &mut Option<State>,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Tensor<4>, Error> {
        self.role().step(mix, state, q, k, v)
    }
}

impl Mixing {
    /// Whether scores exist, so that they can be capped, biased, hidden pair by pair or dropped.
    pub fn has_scores(&self) -> bool {
        self.role().has_scores()
    }

    /// Refuses settings without meaning.
    pub fn check(&self) -> Result<(), Error> {
        self.role().check()
    }

    /// Whether features of queries and keys are magnitudes already, so that an encoding has none to make.
    pub fn makes_magnitudes(&self) -> bool {
        self.role().makes_magnitudes()
    }

    /// The kernels' call, for one that needs no more than queries, keys, values and positions.
    pub fn kernel(&self, shape: Shape, causal: bool) -> Option<LinearAttention<'static>> {
        self.role().kernel(shape, causal)
    }

    /// Whether a state is carried from token to token, so that none sees a later one.
    pub fn is_causal(&self) -> bool {
        self.role().is_causal()
    }

    /// Why positions cannot turn queries and keys, if they cannot.
    pub fn refuses_rotation(&self) -> Option<&'static str> {
        self.role().refuses_rotation()
    }

    /// Weights of the projections that make its gates.
    pub fn weights(&self, heads: &Heads) -> usize {
        self.role().weights(heads)
    }

    /// Arithmetic for one token in all heads, where it does not depend on how many keys there are; `extra` is by how many
    /// channels, over all heads, queries and keys grow.
    pub fn flops_per_token(&self, heads: &Heads, extra: usize) -> Option<f64> {
        self.role().flops_per_token(heads, extra)
    }

    /// The mixing at work.
    #[cfg(feature = "burn")]
    pub fn build(&self, heads: &Heads, device: &Device) -> MixingModule {
        self.module(heads, device)
    }
}
