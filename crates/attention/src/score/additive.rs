//! Additive: `wᵀ tanh(q + k)`, with q and k the projected states.
//! Bahdanau et al. 2015, <https://arxiv.org/abs/1409.0473>. `width` parameters; costs a tanh per channel and pair.

use burn::{
    module::{Module, Param},
    nn::Initializer,
    tensor::{Device, Tensor},
};
use serde::{Deserialize, Serialize};

use super::{Comparing, ScoreLayer, Scoring};
use crate::{call::Compare, heads::Heads};

/// `wᵀ tanh(q + k)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Additive {}

/// The weight at work.
#[derive(Module, Debug)]
pub struct AdditiveLayer {
    /// `[heads, head_dim]`.
    pub weight: Param<Tensor<2>>,
}

impl Scoring for Additive {
    fn build(&self, heads: &Heads, device: &Device) -> ScoreLayer {
        // The paper starts at 0, which leaves q and k without a gradient until w has moved.
        let bound = (3.0 / heads.head_dim as f64).sqrt();
        let weight = Initializer::Uniform { min: -bound, max: bound }
            .init([heads.heads, heads.head_dim], device);
        ScoreLayer::Additive(AdditiveLayer { weight })
    }
}

impl Comparing for AdditiveLayer {
    fn compare(&self) -> Compare {
        Compare::Additive { weight: self.weight.val() }
    }
}
