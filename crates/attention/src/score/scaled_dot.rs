use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ScoreSettings;

/// Scaled dot: `q·k / √head_dim`.
/// Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>. No parameters; the usual choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaledDot {}

impl ScoreSettings for ScaledDot {}

#[cfg(feature = "burn")]
pub use layer::ScaledDotLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{module::Module, tensor::Device};

    use super::ScaledDot;
    use crate::{heads::Heads, score::ScoreLayer};

    /// Scaled dot at work; it learns nothing.
    #[derive(Module, Debug)]
    pub struct ScaledDotLayer {}

    impl ScaledDotLayer {
        pub(crate) fn new(_settings: &ScaledDot, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl ScoreLayer for ScaledDotLayer {}
}
