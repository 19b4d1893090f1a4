//! Scaled dot: `q·k / √head_dim`.
//! Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>. No parameters; the usual choice.

use burn::{module::Module, tensor::Device};
use serde::{Deserialize, Serialize};

use super::{Comparing, ScoreLayer, Scoring};
use crate::{call::Compare, heads::Heads};

/// `q·k / √head_dim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScaledDot {}

/// Scaled dot at work.
#[derive(Module, Debug)]
pub struct ScaledDotLayer {
    #[module(skip)]
    scale: f32,
}

impl Scoring for ScaledDot {
    fn build(&self, heads: &Heads, _device: &Device) -> ScoreLayer {
        ScoreLayer::ScaledDot(ScaledDotLayer { scale: 1.0 / (heads.head_dim as f32).sqrt() })
    }
}

impl Comparing for ScaledDotLayer {
    fn compare(&self) -> Compare {
        Compare::Dot { scale: self.scale }
    }
}
