//! Predicted: each query of each head predicts the place `p = keys · σ(vᵀ tanh(W x))` and sees `radius` keys to either side,
//! its weights times `exp(−(key − p)² / 2σ²)` with σ = radius / 2, not renormalised.
//! Local-p of Luong et al. 2015, <https://arxiv.org/abs/1508.04025>. `width² + width · heads` parameters, one v for each head
//! (the paper has one head); for a memory that is read in an order of its own, not for causal layers.

use std::ops::Range;

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{
        Device, Tensor, TensorData,
        activation::{sigmoid, tanh},
    },
};
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::{Error, call::Focus, heads::Heads};

/// A window with a Gaussian around a place that the query predicts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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

/// The prediction at work.
#[derive(Module, Debug)]
pub struct PredictedLayer {
    /// W, `[width, width]`.
    pub hidden: Linear,
    /// v of each head, `[width, heads]`.
    pub place: Linear,
    #[module(skip)]
    settings: Predicted,
}

impl Seeing for Predicted {
    fn check(&self) -> Result<(), Error> {
        if self.radius == 0 {
            let reason = "the Gaussian has a deviation of radius / 2; use 1 or more";
            return Err(Error::setting("pattern.radius", 0, reason));
        }
        Ok(())
    }

    fn build(&self, scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        let Some(focus) = scene.focus else {
            let reason = "needs the places that the layer's queries predict";
            return Err(Error::setting("pattern", "predicted", reason));
        };
        let places = focus.centers.to_data().try_to_vec::<f32>().expect("f32 as everywhere");
        let spans = places.into_iter().map(|place| self.span(place)).collect();
        Ok(Box::new(kernels::Spans::new(focus.centers.dims(), scene.first_query, spans)?))
    }

    fn is_causal(&self) -> bool {
        false
    }

    fn layer(&self, heads: &Heads, device: &Device) -> Option<PredictedLayer> {
        let linear = |to| LinearConfig::new(heads.width, to).with_bias(false).init(device);
        let (hidden, place) = (linear(heads.width), linear(heads.heads));
        Some(PredictedLayer { hidden, place, settings: *self })
    }

    fn follows_content(&self) -> bool {
        true
    }
}

impl Predicted {
    /// Keys at most `radius` from a place; the hard ends pass no gradient.
    fn span(&self, place: f32) -> Range<usize> {
        let radius = self.radius as f32;
        (place - radius).ceil().max(0.0) as usize..(place + radius).floor() as usize + 1
    }
}

impl PredictedLayer {
    /// Where the queries of `x` `[batch, queries, width]` look among keys that start at `first_key`; `counts` says how many
    /// there are, for all sequences or for each.
    pub(crate) fn focus(&self, x: Tensor<3>, first_key: usize, counts: &[usize]) -> Focus {
        let counts: Vec<f32> = counts.iter().map(|count| *count as f32).collect();
        let counts = TensorData::new(counts.clone(), [counts.len(), 1, 1]);
        let counts = Tensor::<3>::from_data(counts, &x.device());
        let share = sigmoid(self.place.forward(tanh(self.hidden.forward(x)))); // [batch, queries, heads]
        let centers = share.swap_dims(1, 2) * counts + first_key as f32;
        Focus { centers, deviation: self.settings.radius as f32 / 2.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_at_most_radius_away_are_seen() {
        let pattern = Predicted { radius: 3 };
        assert_eq!(pattern.span(7.0), 4..11);
        assert_eq!(pattern.span(7.5), 5..11);
        assert_eq!(pattern.span(0.25), 0..4);
    }

    #[test]
    fn places_are_those_of_the_formula() {
        let device = Device::flex();
        let heads = Heads { width: 2, heads: 1, kv_heads: 1, head_dim: 2 };
        let mut layer = Predicted { radius: 4 }.layer(&heads, &device).unwrap();
        layer.hidden.weight = burn::module::Param::from_data([[1.0, 0.0], [0.0, 2.0]], &device);
        layer.place.weight = burn::module::Param::from_data([[1.0], [-1.0]], &device);
        let x = Tensor::<3>::from_data([[[0.5, 0.25]], [[1.0, -1.0]]], &device);
        let focus = layer.focus(x, 100, &[10, 20]);
        assert_eq!(focus.deviation, 2.0);
        let found = focus.centers.into_data().try_to_vec::<f32>().unwrap();
        let want = |count: f64, a: f64, b: f64| {
            100.0 + count / (1.0 + (-(a.tanh() - (2.0 * b).tanh())).exp())
        };
        assert!((f64::from(found[0]) - want(10.0, 0.5, 0.25)).abs() < 1e-4, "{found:?}");
        assert!((f64::from(found[1]) - want(20.0, 1.0, -1.0)).abs() < 1e-4, "{found:?}");
    }
}
