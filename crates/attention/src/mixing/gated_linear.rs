use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::MixingSettings;
use crate::{Error, heads::Heads};

/// Gated linear attention: a state that forgets as each token says, `S = diag(α) S + k vᵀ`, `out = Sᵀ q / √head_dim`, with
/// `α = σ(W x)^(1/temperature)` for each channel of a key or for each key head. Under gates of heads, positions that rotate turn
/// queries and keys.
/// Yang et al. 2023, <https://arxiv.org/abs/2312.06635>. Causal. Forgetting follows content, so it needs no positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatedLinear {
    /// What has a gate of its own; default `channel`, the paper's.
    pub gates: Gating,
    /// Root that is taken of a gate, so that it stays near 1; default 16, the paper's.
    pub temperature: f32,
    /// Channels between the two projections that make gates of channels; default 16, the paper's.
    pub rank: usize,
    /// Whether each head's output is normalized (RMS, no parameters), as published; default true.
    pub norm: bool,
}

/// What has a gate of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gating {
    /// Every channel of every key head.
    #[default]
    Channel,
    /// Every key head.
    Head,
}

impl Default for GatedLinear {
    fn default() -> Self {
        Self { gates: Gating::Channel, temperature: 16.0, rank: 16, norm: true }
    }
}

impl MixingSettings for GatedLinear {
    fn has_scores(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), Error> {
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            let reason = "a temperature is above 0";
            return Err(Error::setting("mixing.temperature", self.temperature, reason));
        }
        if self.rank == 0 {
            return Err(Error::setting("mixing.rank", 0, "expected at least 1"));
        }
        Ok(())
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn refuses_rotation(&self) -> Option<&'static str> {
        let reason = "each channel forgets at a pace of its own, so channels cannot turn as a pair or become two; use gates = \"head\", or no such positions";
        (self.gates == Gating::Channel).then_some(reason)
    }

    fn weights(&self, heads: &Heads) -> usize {
        match self.gates {
            Gating::Channel => self.rank * (heads.width + heads.kv_heads * heads.head_dim),
            Gating::Head => heads.width * heads.kv_heads,
        }
    }

    /// A state is updated by every token of a key head, and asked by those of its query heads.
    fn flops_per_token(&self, heads: &Heads, extra: usize) -> Option<f64> {
        let channels = (heads.heads + heads.kv_heads) * heads.head_dim + 2 * extra;
        Some(2.0 * (channels * heads.head_dim) as f64)
    }
}

#[cfg(feature = "burn")]
pub use layer::GatedLinearLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        nn::{Linear, LinearConfig},
        tensor::{Device, Tensor, activation::log_sigmoid},
    };

    use super::{GatedLinear, Gating};
    use crate::{
        Error, Way,
        heads::Heads,
        mixing::{Mix, MixingLayer, State},
        projected::Project,
        recurrence::{self, Gates, normed},
    };

    /// Gates at work.
    #[derive(Module, Debug)]
    pub struct GatedLinearLayer {
        /// Of gates of channels, `[width, rank]`.
        pub down: Option<Linear>,
        /// `[rank, kv_heads · head_dim]`, or of gates of heads `[width, kv_heads]`.
        pub gate: Linear,
        #[module(skip)]
        settings: GatedLinear,
        #[module(skip)]
        kv_heads: usize,
        #[module(skip)]
        norm: bool,
    }

    impl GatedLinearLayer {
        pub(crate) fn new(settings: &GatedLinear, heads: &Heads, device: &Device) -> Self {
            let &Heads { width, kv_heads, head_dim, .. } = heads;
            let linear = |from: usize, to: usize, has_bias: bool| {
                LinearConfig::new(from, to).with_bias(has_bias).init(device)
            };
            let (down, gate) = match settings.gates {
                Gating::Channel => {
                    let down = linear(width, settings.rank, false);
                    (Some(down), linear(settings.rank, kv_heads * head_dim, true))
                }
                Gating::Head => (None, linear(width, kv_heads, true)),
            };
            Self { down, gate, settings: *settings, kv_heads, norm: settings.norm }
        }
    }

    impl MixingLayer for GatedLinearLayer {
        fn gates(&self, x: &Tensor<3>, way: Way) -> Gates {
            let gates = self.gate.project(self.down.project(x.clone(), way), way);
            let decay = log_sigmoid(gates) / self.settings.temperature;
            Gates { decay: Some(recurrence::split(decay, self.kv_heads)), beta: None }
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
