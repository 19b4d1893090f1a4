use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PositionSettings;
use crate::{Error, heads::Heads};

/// No position: a causal pattern alone still tells order, since every position sees another number of keys (NoPE).
/// Kazemnejad et al. 2023, <https://arxiv.org/abs/2305.19466>. No parameters; a bidirectional layer is then blind to order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoPosition {}

impl PositionSettings for NoPosition {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        Ok(())
    }

    fn is_relative(&self) -> bool {
        true
    }
}

#[cfg(feature = "burn")]
pub use layer::NoPositionLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{module::Module, tensor::Device};

    use super::NoPosition;
    use crate::{heads::Heads, position::PositionLayer};

    /// No encoding at work.
    #[derive(Module, Debug)]
    pub struct NoPositionLayer {}

    impl NoPositionLayer {
        pub(crate) fn new(_settings: &NoPosition, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl PositionLayer for NoPositionLayer {}
}
