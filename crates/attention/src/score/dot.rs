//! Dot: `scale · q·k`, Luong's dot score with scale 1.
//! Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. No parameters; T5 uses it and scales its weights instead.

use burn::{module::Module, tensor::Device};
use serde::{Deserialize, Serialize};

use super::{Comparing, ScoreLayer, Scoring};
use crate::{Error, call::Compare, heads::Heads};

/// `scale · q·k`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dot {
    /// Factor on every score; default 1.
    pub scale: f32,
}

impl Default for Dot {
    fn default() -> Self {
        Self { scale: 1.0 }
    }
}

/// Dot at work.
#[derive(Module, Debug)]
pub struct DotLayer {
    #[module(skip)]
    scale: f32,
}

impl Scoring for Dot {
    fn check(&self) -> Result<(), Error> {
        if self.scale.is_finite() {
            Ok(())
        } else {
            Err(Error::setting("score.scale", self.scale, "a scale is a finite number"))
        }
    }

    fn build(&self, _heads: &Heads, _device: &Device) -> ScoreLayer {
        ScoreLayer::Dot(DotLayer { scale: self.scale })
    }
}

impl Comparing for DotLayer {
    fn compare(&self) -> Compare {
        Compare::Dot { scale: self.scale }
    }
}
