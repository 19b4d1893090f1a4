use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::Refuses;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Predicted: each query of each head predicts the place `p = keys · σ(vᵀ tanh(W x))` and sees `radius` keys to either side,
/// its weights times `exp(−(key − p)² / 2σ²)` with σ = radius / 2, not renormalised.
/// Local-p of Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. `width² + width · heads` parameters, one v for each head
/// (the paper has one head); for a memory that is read in an order of its own, not for causal layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Predicted {
    /// Keys to either side of the predicted place, the paper's D; default 10.
    pub radius: usize,
}

impl Default for Predicted {
    fn default() -> Self {
        Self { radius: 10 }
    }
}

impl PatternSettings for Predicted {
    fn check(&self) -> Result<(), Error> {
        if self.radius == 0 {
            let reason = "the Gaussian has a deviation of radius / 2; use 1 or more";
            return Err(Error::setting("pattern.radius", 0, reason));
        }
        Ok(())
    }

    fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        let Some((centers, sizes)) = context.centers else {
            let reason = "needs the places that the layer's queries predict";
            return Err(Error::setting("pattern", "predicted", reason));
        };
        let spans = centers.iter().map(|center| self.span(*center)).collect();
        Ok(Box::new(kernels::Spans::new(sizes, context.first_query, spans)?))
    }

    fn is_causal(&self) -> bool {
        false
    }

    fn deviation(&self) -> Option<f32> {
        Some(self.radius as f32 / 2.0)
    }

    #[cfg(feature = "burn")]
    fn layer(&self, heads: &Heads, device: &Device) -> Option<PredictedLayer> {
        Some(PredictedLayer::new(heads, device))
    }
}

impl Predicted {
    /// Keys at most `radius` from a place, none where it is no number; the hard ends pass no gradient.
    fn span(&self, place: f32) -> Range<usize> {
        let radius = self.radius as f32;
        (place - radius).ceil().max(0.0) as usize..((place + radius).floor() + 1.0) as usize
    }
}

#[cfg(feature = "burn")]
pub use layer::PredictedLayer;
#[cfg(feature = "burn")]
use {crate::heads::Heads, burn::tensor::Device};

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        nn::{Linear, LinearConfig},
        tensor::{
            Device, Tensor, TensorData,
            activation::{sigmoid, tanh},
        },
    };

    use crate::heads::Heads;

    /// The prediction at work.
    #[derive(Module, Debug)]
    pub struct PredictedLayer {
        /// W, `[width, width]`.
        pub hidden: Linear,
        /// v of each head, `[width, heads]`.
        pub place: Linear,
    }

    impl PredictedLayer {
        pub(super) fn new(heads: &Heads, device: &Device) -> Self {
            let linear = |to| LinearConfig::new(heads.width, to).with_bias(false).init(device);
            Self { hidden: linear(heads.width), place: linear(heads.heads) }
        }

        /// Where the queries of `x` `[batch, queries, width]` look among keys that start at `first_key`; `counts` says how
        /// many there are, for all sequences or for each.
        pub(crate) fn focus(&self, x: Tensor<3>, first_key: usize, counts: &[usize]) -> Tensor<3> {
            let counts: Vec<f32> = counts.iter().map(|count| *count as f32).collect();
            let counts = TensorData::new(counts.clone(), [counts.len(), 1, 1]);
            let counts = Tensor::<3>::from_data(counts, &x.device());
            let share = sigmoid(self.place.forward(tanh(self.hidden.forward(x)))); // [batch, queries, heads]
            share.swap_dims(1, 2) * counts + first_key as f32
        }
    }
}

#[cfg(all(test, feature = "burn"))]
mod tests {
    use burn::tensor::Tensor;

    use super::*;

    #[test]
    fn keys_at_most_radius_away_are_seen() {
        let pattern = Predicted { radius: 3 };
        assert_eq!(pattern.span(7.0), 4..11);
        assert_eq!(pattern.span(7.5), 5..11);
        assert_eq!(pattern.span(0.25), 0..4);
        assert!(pattern.span(f32::NAN).is_empty());
    }

    #[test]
    fn places_are_those_of_the_formula() {
        let device = Device::flex();
        let heads = Heads { width: 2, heads: 1, kv_heads: 1, head_dim: 2 };
        let settings = Predicted { radius: 4 };
        assert_eq!(settings.deviation(), Some(2.0));
        let mut layer = settings.layer(&heads, &device).unwrap();
        layer.hidden.weight = burn::module::Param::from_data([[1.0, 0.0], [0.0, 2.0]], &device);
        layer.place.weight = burn::module::Param::from_data([[1.0], [-1.0]], &device);
        let x = Tensor::<3>::from_data([[[0.5, 0.25]], [[1.0, -1.0]]], &device);
        let focus = layer.focus(x, 100, &[10, 20]);
        let found = focus.into_data().try_to_vec::<f32>().unwrap();
        let want = |count: f64, a: f64, b: f64| {
            100.0 + count / (1.0 + (-(a.tanh() - (2.0 * b).tanh())).exp())
        };
        assert!((f64::from(found[0]) - want(10.0, 0.5, 0.25)).abs() < 1e-4, "{found:?}");
        assert!((f64::from(found[1]) - want(20.0, 1.0, -1.0)).abs() < 1e-4, "{found:?}");
    }
}
