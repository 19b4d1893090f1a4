use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{self as kernels, Shape};
use whatwhere_settings::Refuses;

use super::ScoreSettings;
use crate::{Error, slot::Slot};

/// Cosine: `scale · q·k / (|q| |k|)`, bounded by its scale.
/// Graves et al. 2014, <https://arxiv.org/abs/1410.5401>. No parameters; scores cannot grow with the norms of q and k.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl ScoreSettings for Cosine {
    fn check(&self) -> Result<(), Error> {
        if self.scale.is_finite() && self.scale > 0.0 {
            Ok(())
        } else {
            Err(Error::setting("score.scale", self.scale, "the scale of cosine is above 0"))
        }
    }

    fn compare(&self, _shape: &Shape) -> kernels::Score<Slot> {
        kernels::Score::Cosine { scale: self.scale }
    }
}

#[cfg(feature = "burn")]
pub use layer::CosineLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{module::Module, tensor::Device};

    use super::Cosine;
    use crate::{heads::Heads, score::ScoreLayer};

    /// Cosine at work; it learns nothing.
    #[derive(Module, Debug)]
    pub struct CosineLayer {}

    impl CosineLayer {
        pub(crate) fn new(_settings: &Cosine, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl ScoreLayer for CosineLayer {}
}
