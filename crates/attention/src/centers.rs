//! Where queries look, for a pattern that follows what they hold: each predicts the position of a key.
//! Local-p of Luong et al. 2015, <https://arxiv.org/abs/1508.04025>.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{
        Device, Tensor, TensorData,
        activation::{sigmoid, tanh},
    },
};

use crate::heads::Heads;

/// For each head, `p = first_key + keys · σ(vᵀ tanh(W x))`.
#[derive(Module, Debug)]
pub struct CenterLayer {
    /// W, `[width, width]`.
    pub hidden: Linear,
    /// v of each head, `[width, heads]`.
    pub center: Linear,
}

impl CenterLayer {
    pub(crate) fn new(heads: &Heads, device: &Device) -> Self {
        let linear = |to| LinearConfig::new(heads.width, to).with_bias(false).init(device);
        Self { hidden: linear(heads.width), center: linear(heads.heads) }
    }

    /// Where the queries of `x` `[batch, queries, width]` look among keys that start at `first_key`; `counts` says how
    /// many there are, for all sequences or for each.
    pub(crate) fn focus(&self, x: Tensor<3>, first_key: usize, counts: &[usize]) -> Tensor<3> {
        let counts: Vec<f32> = counts.iter().map(|count| *count as f32).collect();
        let counts = TensorData::new(counts.clone(), [counts.len(), 1, 1]);
        let counts = Tensor::<3>::from_data(counts, &x.device());
        let share = sigmoid(self.center.forward(tanh(self.hidden.forward(x)))); // [batch, queries, heads]
        share.swap_dims(1, 2) * counts + first_key as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, pattern::Predicted};

    #[test]
    fn centers_are_those_of_the_formula() {
        let device = Device::flex();
        let heads = Heads { width: 2, heads: 1, kv_heads: 1, head_dim: 2 };
        let pattern = Pattern::from(Predicted { radius: 4 });
        assert_eq!(pattern.deviation(), Some(2.0));
        let mut layer = CenterLayer::new(&heads, &device);
        layer.hidden.weight = burn::module::Param::from_data([[1.0, 0.0], [0.0, 2.0]], &device);
        layer.center.weight = burn::module::Param::from_data([[1.0], [-1.0]], &device);
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
