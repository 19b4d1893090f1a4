//! General: `qᵀ W k`, a learned bilinear form for each head.
//! Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. `heads · head_dim²` parameters; a dot after one more projection.

use burn::{
    module::{Module, Param},
    nn::Initializer,
    tensor::{Device, Tensor},
};
use serde::{Deserialize, Serialize};

use super::{Comparing, ScoreLayer, Scoring};
use crate::{call::Compare, heads::Heads};

/// `qᵀ W k / √head_dim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct General {}

/// The form at work.
#[derive(Module, Debug)]
pub struct GeneralLayer {
    /// `[heads, head_dim, head_dim]`.
    pub weight: Param<Tensor<3>>,
    #[module(skip)]
    scale: f32,
}

impl Scoring for General {
    fn build(&self, heads: &Heads, device: &Device) -> ScoreLayer {
        let dim = heads.head_dim;
        let bound = (3.0 / dim as f64).sqrt(); // keeps the variance of q
        ScoreLayer::General(GeneralLayer {
            weight: Initializer::Uniform { min: -bound, max: bound }
                .init([heads.heads, dim, dim], device),
            scale: 1.0 / (dim as f32).sqrt(),
        })
    }
}

impl Comparing for GeneralLayer {
    fn queries(&self, q: Tensor<4>) -> Tensor<4> {
        q.matmul(self.weight.val().unsqueeze::<4>())
    }

    fn compare(&self) -> Compare {
        Compare::Dot { scale: self.scale }
    }
}
