use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ScoreSettings;

/// General: `qᵀ W k`, a learned bilinear form for each head.
/// Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. `heads · head_dim²` parameters; a dot after one more projection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct General {}

impl ScoreSettings for General {}

#[cfg(feature = "burn")]
pub use layer::GeneralLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };

    use super::General;
    use crate::{call::Compare, heads::Heads, score::ScoreLayer};

    /// The form at work.
    #[derive(Module, Debug)]
    pub struct GeneralLayer {
        /// `[heads, head_dim, head_dim]`.
        pub weight: Param<Tensor<3>>,
        #[module(skip)]
        scale: f32,
    }

    impl GeneralLayer {
        pub(crate) fn new(_settings: &General, heads: &Heads, device: &Device) -> Self {
            let dim = heads.head_dim;
            let bound = (3.0 / dim as f64).sqrt(); // keeps the variance of q
            let uniform = Initializer::Uniform { min: -bound, max: bound };
            Self {
                weight: uniform.init([heads.heads, dim, dim], device),
                scale: 1.0 / (dim as f32).sqrt(),
            }
        }
    }

    impl ScoreLayer for GeneralLayer {
        fn queries(&self, q: Tensor<4>) -> Tensor<4> {
            q.matmul(self.weight.val().unsqueeze::<4>())
        }

        fn changes_queries(&self) -> bool {
            true
        }

        fn compare(&self) -> Compare {
            Compare::Dot { scale: self.scale }
        }
    }
}
