use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MixingSettings;
use crate::heads::Heads;

/// Retention: a state that forgets at a fixed rate, `S = γ S + k vᵀ`, `out = Sᵀ q / √head_dim`, with `γ = 1 − 2^(−5−h)` for key
/// head h. Positions that rotate turn queries and keys, as published with rotary.
/// Sun et al. 2023, <https://arxiv.org/abs/2307.08621>. Causal; no parameters. Far tokens fade out, at another pace in each head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Whether each head's output is normalized (RMS, no parameters), as published; default true.
    pub norm: bool,
}

impl Default for Retention {
    fn default() -> Self {
        Self { norm: true }
    }
}

impl Retention {
    /// The logarithm of what remains of the state of a key head after each token.
    pub fn decay(head: usize) -> f64 {
        (-(2f64.powi(-5 - head as i32))).ln_1p()
    }
}

impl MixingSettings for Retention {
    fn has_scores(&self) -> bool {
        false
    }

    fn is_causal(&self) -> bool {
        true
    }

    /// A state is updated by every token of a key head, and asked by those of its query heads.
    fn flops_per_token(&self, heads: &Heads, extra: usize) -> Option<f64> {
        let channels = (heads.heads + heads.kv_heads) * heads.head_dim + 2 * extra;
        Some(2.0 * (channels * heads.head_dim) as f64)
    }
}

#[cfg(feature = "burn")]
pub use layer::RetentionLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        tensor::{Device, Tensor, TensorData},
    };

    use super::Retention;
    use crate::{
        Error, Way,
        heads::Heads,
        mixing::{Mix, MixingLayer, State},
        recurrence::{self, Gates, normed},
    };

    /// Retention at work; it learns nothing.
    #[derive(Module, Debug)]
    pub struct RetentionLayer {
        #[module(skip)]
        norm: bool,
        #[module(skip)]
        kv_heads: usize,
    }

    impl RetentionLayer {
        pub(crate) fn new(settings: &Retention, heads: &Heads, _device: &Device) -> Self {
            Self { norm: settings.norm, kv_heads: heads.kv_heads }
        }
    }

    impl MixingLayer for RetentionLayer {
        fn gates(&self, x: &Tensor<3>, _way: Way) -> Gates {
            let [batch, keys, _] = x.dims();
            let decays = (0..self.kv_heads).map(|head| Retention::decay(head) as f32);
            let each = decays.flat_map(|decay| std::iter::repeat_n(decay, keys));
            let all = each.collect::<Vec<f32>>().repeat(batch);
            let sizes = [batch, self.kv_heads, keys, 1];
            let decay = Tensor::from_data(TensorData::new(all, sizes), &x.device());
            Gates { decay: Some(decay), beta: None }
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
