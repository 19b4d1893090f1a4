use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{self as kernels, Shape};
use whatwhere_settings::Refuses;

use super::ScoreSettings;
use crate::{Error, slot::Slot};

/// Dot: `scale · q·k`, Luong's dot score with scale 1.
/// Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. No parameters; T5 uses it and scales its weights instead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl ScoreSettings for Dot {
    fn check(&self) -> Result<(), Error> {
        if self.scale.is_finite() {
            Ok(())
        } else {
            Err(Error::setting("score.scale", self.scale, "a scale is a finite number"))
        }
    }

    fn compare(&self, _shape: &Shape) -> kernels::Score<Slot> {
        kernels::Score::Dot { scale: self.scale }
    }
}

#[cfg(feature = "burn")]
pub use layer::DotLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{module::Module, tensor::Device};

    use super::Dot;
    use crate::{heads::Heads, score::ScoreLayer};

    /// Dot at work; it learns nothing.
    #[derive(Module, Debug)]
    pub struct DotLayer {}

    impl DotLayer {
        pub(crate) fn new(_settings: &Dot, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl ScoreLayer for DotLayer {}
}
