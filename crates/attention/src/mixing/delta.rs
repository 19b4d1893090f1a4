use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MixingSettings;
use crate::heads::Heads;

/// Delta rule: a key's value is overwritten, `S = S + β k (v − Sᵀ k)ᵀ`, `out = Sᵀ q / √head_dim`, with `β = σ(w·x)` for each key
/// head, and queries and keys of length 1, after positions that rotate have turned them.
/// Yang et al. 2024, <https://arxiv.org/abs/2406.06484>. Causal. Sharper retrieval than sums, from a state of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Delta {
    /// Whether each head's output is normalized (RMS, no parameters), as published; default true.
    pub norm: bool,
}

impl Default for Delta {
    fn default() -> Self {
        Self { norm: true }
    }
}

impl MixingSettings for Delta {
    fn has_scores(&self) -> bool {
        false
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn weights(&self, heads: &Heads) -> usize {
        heads.width * heads.kv_heads
    }

    /// A state is asked and updated by every token of a key head, and asked by those of its query heads.
    fn flops_per_token(&self, heads: &Heads, extra: usize) -> Option<f64> {
        let channels = (heads.heads + 2 * heads.kv_heads) * heads.head_dim + 3 * extra;
        Some(2.0 * (channels * heads.head_dim) as f64)
    }
}

#[cfg(feature = "burn")]
pub use layer::DeltaLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        nn::{Linear, LinearConfig},
        tensor::{Device, Tensor, activation::sigmoid},
    };

    use super::Delta;
    use crate::{
        Error, Way,
        heads::Heads,
        mixing::{Mix, MixingLayer, State},
        projected::Project,
        recurrence::{self, Gates, normed},
    };

    /// The delta rule at work.
    #[derive(Module, Debug)]
    pub struct DeltaLayer {
        /// How much is overwritten, `[width, kv_heads]`.
        pub beta: Linear,
        #[module(skip)]
        kv_heads: usize,
        #[module(skip)]
        norm: bool,
    }

    impl DeltaLayer {
        pub(crate) fn new(settings: &Delta, heads: &Heads, device: &Device) -> Self {
            let beta = LinearConfig::new(heads.width, heads.kv_heads).with_bias(false);
            Self { beta: beta.init(device), kv_heads: heads.kv_heads, norm: settings.norm }
        }
    }

    impl MixingLayer for DeltaLayer {
        fn gates(&self, x: &Tensor<3>, way: Way) -> Gates {
            let beta = sigmoid(self.beta.project(x.clone(), way));
            Gates { decay: None, beta: Some(recurrence::split(beta, self.kv_heads)) }
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
