//! Cosine: `scale · q·k / (|q| |k|)`, bounded by its scale.
//! Graves et al. 2014, <https://arxiv.org/abs/1410.5401>. No parameters; scores cannot grow with the norms of q and k.

use burn::{module::Module, tensor::Device};
use serde::{Deserialize, Serialize};

use super::{Comparing, ScoreLayer, Scoring};
use crate::{Error, call::Compare, heads::Heads};

/// `scale · q·k / (|q| |k|)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cosine {
    /// Largest score; default 10.
    pub scale: f32,
}

impl Default for Cosine {
    fn default() -> Self {
        Self { scale: 10.0 }
    }
}

/// Cosine at work.
#[derive(Module, Debug)]
pub struct CosineLayer {
    #[module(skip)]
    scale: f32,
}

impl Scoring for Cosine {
    fn check(&self) -> Result<(), Error> {
        if self.scale.is_finite() && self.scale > 0.0 {
            Ok(())
        } else {
            Err(Error::setting("score.scale", self.scale, "the scale of cosine is above 0"))
        }
    }

    fn build(&self, _heads: &Heads, _device: &Device) -> ScoreLayer {
        ScoreLayer::Cosine(CosineLayer { scale: self.scale })
    }
}

impl Comparing for CosineLayer {
    fn compare(&self) -> Compare {
        Compare::Cosine { scale: self.scale }
    }
}
