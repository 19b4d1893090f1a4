use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MixingSettings;

/// Softmax: weights are `exp(score)`, divided by their sum.
/// Bahdanau et al. 2015, <https://arxiv.org/abs/1409.0473>. The usual choice; cost follows the pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Softmax {}

impl MixingSettings for Softmax {
    fn has_scores(&self) -> bool {
        true
    }
}

#[cfg(feature = "burn")]
pub use layer::SoftmaxLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        tensor::{Device, Tensor},
    };

    use super::Softmax;
    use crate::{
        Error, attend,
        heads::Heads,
        mixing::{Mix, MixingLayer},
    };

    /// Softmax at work.
    #[derive(Module, Debug)]
    pub struct SoftmaxLayer {}

    impl SoftmaxLayer {
        pub(crate) fn new(_settings: &Softmax, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl MixingLayer for SoftmaxLayer {
        fn attend(
            &self,
            mix: Mix,
            q: Tensor<4>,
            k: Tensor<4>,
            v: Tensor<4>,
        ) -> Result<Tensor<4>, Error> {
            attend(mix.call, mix.path, q, k, v)
        }
    }
}
