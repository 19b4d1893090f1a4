use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MixingSettings;
use crate::heads::Heads;

/// Gated delta rule: the delta rule on a state that forgets, `S = α S + β k (v − α Sᵀ k)ᵀ`, with `α = exp(−rate · softplus(w·x + b))`
/// and `β = σ(u·x)` for each key head, and queries and keys of length 1, after positions that rotate have turned them.
/// Yang et al. 2024, <https://arxiv.org/abs/2412.06464>. Causal. Forgets what is over, and overwrites what a key held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatedDelta {
    /// Whether each head's output is normalized (RMS, no parameters), as published; default true.
    pub norm: bool,
}

impl Default for GatedDelta {
    fn default() -> Self {
        Self { norm: true }
    }
}

impl MixingSettings for GatedDelta {
    fn has_scores(&self) -> bool {
        false
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn weights(&self, heads: &Heads) -> usize {
        2 * heads.width * heads.kv_heads
    }

    /// A state is asked and updated by every token of a key head, and asked by those of its query heads.
    fn flops_per_token(&self, heads: &Heads, extra: usize) -> Option<f64> {
        let channels = (heads.heads + 2 * heads.kv_heads) * heads.head_dim + 3 * extra;
        Some(2.0 * (channels * heads.head_dim) as f64)
    }
}

#[cfg(feature = "burn")]
pub use layer::GatedDeltaLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::{Linear, LinearConfig},
        tensor::{
            Device, Tensor, TensorData,
            activation::{log_sigmoid, sigmoid},
        },
    };

    use super::GatedDelta;
    use crate::{
        Error, Way,
        heads::Heads,
        mixing::{Mix, MixingLayer, State},
        projected::Project,
        recurrence::{self, Gates, normed},
    };

    /// Rates of the first and the last head, and steps, as Mamba draws them from: spread evenly over the heads.
    const RATES: [f64; 2] = [1.0, 16.0];
    const STEPS: [f64; 2] = [1e-3, 0.1];

    /// The gated delta rule at work.
    #[derive(Module, Debug)]
    pub struct GatedDeltaLayer {
        /// How much is overwritten, `[width, kv_heads]`.
        pub beta: Linear,
        /// How much is forgotten, `[width, kv_heads]`.
        pub gate: Linear,
        /// b, `[kv_heads]`.
        pub step: Param<Tensor<1>>,
        /// The rate's logarithm, `[kv_heads]`.
        pub rate: Param<Tensor<1>>,
        #[module(skip)]
        kv_heads: usize,
        #[module(skip)]
        norm: bool,
    }

    impl GatedDeltaLayer {
        pub(crate) fn new(settings: &GatedDelta, heads: &Heads, device: &Device) -> Self {
            let &Heads { width, kv_heads, .. } = heads;
            let linear = || LinearConfig::new(width, kv_heads).with_bias(false).init(device);
            let share = |head: usize| head as f64 / (kv_heads - 1).max(1) as f64;
            let table = |value: &dyn Fn(f64) -> f64| {
                let values: Vec<f32> =
                    (0..kv_heads).map(|head| value(share(head)) as f32).collect();
                let table = Tensor::from_data(TensorData::new(values, [kv_heads]), device);
                Param::from_tensor(table)
            };
            // softplus(b) is a step: far apart, as logarithms are.
            let step = |share: f64| (STEPS[0] * (STEPS[1] / STEPS[0]).powf(share)).exp_m1().ln();
            let rate = |share: f64| (RATES[0] + (RATES[1] - RATES[0]) * share).ln();
            Self {
                beta: linear(),
                gate: linear(),
                step: table(&step),
                rate: table(&rate),
                kv_heads,
                norm: settings.norm,
            }
        }
    }

    impl MixingLayer for GatedDeltaLayer {
        fn gates(&self, x: &Tensor<3>, way: Way) -> Gates {
            let [beta, gate] = Linear::project_all([&self.beta, &self.gate], x.clone(), way);
            let [step, rate] = [&self.step, &self.rate].map(|table| table.val().unsqueeze::<3>());
            // softplus(x) = −log σ(−x)
            let decay = log_sigmoid(-(gate + step)) * rate.exp();
            let [decay, beta] =
                [decay, sigmoid(beta)].map(|gate| Some(recurrence::split(gate, self.kv_heads)));
            Gates { decay, beta }
        }

        fn attend(
            &self,
            mix: Mix,
            q: Tensor<4>,
            k: Tensor<4>,
            v: Tensor<4>,
        ) -> Result<Tensor<4>, Error> {
            Ok(normed(recurrence::attend(mix, q, k, v)?, self.norm))
        }

        fn keeps_state(&self) -> bool {
            true
        }

        fn step(
            &self,
            mix: Mix,
            state: &mut Option<State>,
            q: Tensor<4>,
            k: Tensor<4>,
            v: Tensor<4>,
        ) -> Result<Tensor<4>, Error> {
            Ok(normed(recurrence::step(mix, state, q, k, v)?, self.norm))
        }
    }
}
