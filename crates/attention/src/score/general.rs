use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ScoreSettings;

/// General: `qᵀ W k / √head_dim`, a learned bilinear form for each head.
/// Luong et al. 2015, <https://arxiv.org/abs/1508.04025>, who do not divide: scores start with the spread of scaled dots, and W
/// can learn any other. `heads · head_dim²` parameters; a dot after one more projection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct General {}

impl ScoreSettings for General {
    fn changes_queries(&self) -> bool {
        true
    }
}

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
    use crate::{heads::Heads, score::ScoreLayer};

    /// The form at work.
    #[derive(Module, Debug)]
    pub struct GeneralLayer {
        /// `[heads, head_dim, head_dim]`.
        pub weight: Param<Tensor<3>>,
    }

    impl GeneralLayer {
        pub(crate) fn new(_settings: &General, heads: &Heads, device: &Device) -> Self {
            let dim = heads.head_dim;
            let bound = (3.0 / dim as f64).sqrt(); // keeps the variance of q
            let uniform = Initializer::Uniform { min: -bound, max: bound };
            Self { weight: uniform.init([heads.heads, dim, dim], device) }
        }
    }

    impl ScoreLayer for GeneralLayer {
        fn queries(&self, q: Tensor<4>) -> Tensor<4> {
            q.matmul(self.weight.val().unsqueeze::<4>())
        }
    }
}

#[cfg(all(test, feature = "burn"))]
mod tests {
    use burn::tensor::{Device, Distribution, Tensor};
    use whatwhere_kernels::attention::{self as kernels, Shape};

    use super::*;
    use crate::{heads::Heads, score::ScoreLayer};

    #[test]
    fn what_is_computed_is_what_is_said() {
        let device = Device::flex();
        let heads = Heads { width: 16, heads: 1, kv_heads: 1, head_dim: 16 };
        let layer = GeneralLayer::new(&General {}, &heads, &device);
        let q = Tensor::<4>::random([1, 1, 1, 16], Distribution::Normal(0.0, 1.0), &device);
        let turned: Vec<f32> = layer.queries(q.clone()).into_data().try_into_vec().unwrap();
        let shape = Shape::square(1, 1, 1, 16);
        let kernels::Score::Dot { scale } = General {}.compare(&shape) else { unreachable!() };
        let q: Vec<f32> = q.into_data().try_into_vec().unwrap();
        let weight: Vec<f32> = layer.weight.val().into_data().try_into_vec().unwrap();
        for (column, turned) in turned.into_iter().enumerate() {
            let product: f32 = (0..16).map(|row| q[row] * weight[row * 16 + column]).sum();
            assert!((scale * turned - product / 4.0).abs() < 1e-5);
        }
        let choices = whatwhere_settings::reference::choices::<crate::Score>();
        let general = choices.into_iter().find(|choice| choice.name == "general").unwrap();
        assert!(general.summary[0].contains("`qᵀ W k / √head_dim`"), "{:?}", general.summary);
    }
}
