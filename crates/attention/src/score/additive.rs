use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{self as kernels, Shape};

use super::ScoreSettings;
use crate::slot::Slot;

/// Additive: `wᵀ tanh(q + k)`, with q and k the projected states.
/// Bahdanau et al. 2015, <https://arxiv.org/abs/1409.0473>. `width` parameters; costs a tanh per channel and pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Additive {}

impl ScoreSettings for Additive {
    fn compare(&self, shape: &Shape) -> kernels::Score<Slot> {
        let sizes = [shape.heads, shape.head_dim];
        kernels::Score::Additive { weight: Slot::new("weight", &sizes, "[heads, head_dim]") }
    }

    fn is_product(&self) -> bool {
        false
    }
}

#[cfg(feature = "burn")]
pub use layer::AdditiveLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };

    use super::Additive;
    use crate::{call::flat, heads::Heads, score::ScoreLayer};

    /// The weight at work.
    #[derive(Module, Debug)]
    pub struct AdditiveLayer {
        /// `[heads, head_dim]`.
        pub weight: Param<Tensor<2>>,
    }

    impl AdditiveLayer {
        pub(crate) fn new(_settings: &Additive, heads: &Heads, device: &Device) -> Self {
            // The paper starts at 0, which leaves q and k without a gradient until w has moved.
            let bound = (3.0 / heads.head_dim as f64).sqrt();
            let uniform = Initializer::Uniform { min: -bound, max: bound };
            Self { weight: uniform.init([heads.heads, heads.head_dim], device) }
        }
    }

    impl ScoreLayer for AdditiveLayer {
        fn array(&self, _name: &str) -> Option<Tensor<1>> {
            Some(flat(self.weight.val()))
        }
    }
}
