//! Polar (PoPE): content is a magnitude, place a phase: `Σ_c μ(q_c) μ(k_c) cos(distance·θ_c + δ_c)`.
//! Gopalakrishnan et al. 2025, <https://arxiv.org/abs/2509.10534>. One δ per head and channel; holds far beyond the trained length.

use std::f64::consts::TAU;

use burn::{
    module::{Module, Param},
    nn::Initializer,
    tensor::{Device, Tensor},
};
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Angles, Magnitude};

use super::{Claim, Encode, Encoding, PositionLayer};
use crate::{
    Error,
    call::{Call, Feature, FeatureKind},
    heads::{Heads, Sizes, check_share, share_of},
};

/// A magnitude and a phase for each channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Polar {
    /// θ_c = base^(−c/width), one for each channel; default 10000.
    pub base: f64,
    /// How the learned phase of keys starts; default `zero`, which the paper found best for longer inputs.
    pub delta: DeltaInit,
    /// From a channel's value to its magnitude; default `softplus`.
    pub magnitude: PolarMagnitude,
    /// Share of a head's channels that are polar, the first ones; default 1.
    pub channels: f64,
    /// Share of the heads that are polar, the first ones; default 1.
    pub heads: f64,
}

/// How δ starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaInit {
    /// At 0.
    #[default]
    Zero,
    /// Uniform over [−2π, 0].
    Uniform,
    /// No δ.
    Off,
}

/// From a value to a magnitude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolarMagnitude {
    /// `ln(1 + eˣ)`, the paper's.
    #[default]
    Softplus,
    /// `max(x, 0)`, an ablation.
    Relu,
    /// `x`, an ablation.
    Identity,
}

impl From<PolarMagnitude> for Magnitude {
    fn from(magnitude: PolarMagnitude) -> Self {
        match magnitude {
            PolarMagnitude::Softplus => Magnitude::Softplus,
            PolarMagnitude::Relu => Magnitude::Relu,
            PolarMagnitude::Identity => Magnitude::Identity,
        }
    }
}

impl Default for Polar {
    fn default() -> Self {
        Self {
            base: 10_000.0,
            delta: DeltaInit::default(),
            magnitude: PolarMagnitude::default(),
            channels: 1.0,
            heads: 1.0,
        }
    }
}

/// Magnitudes and phases at work.
#[derive(Module, Debug)]
pub struct PolarLayer {
    /// Phase of keys, `[heads, channels]`; used clamped to [−2π, 0].
    pub delta: Option<Param<Tensor<2>>>,
    #[module(skip)]
    settings: Polar,
    #[module(skip)]
    heads: Heads,
}

impl Encoding for Polar {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        check_share("position.channels", self.channels)?;
        check_share("position.heads", self.heads)?;
        if share_of(self.channels, heads.head_dim).is_empty() {
            return Err(Error::setting("position.channels", self.channels, "leaves no channel"));
        }
        if self.base.is_nan() || self.base <= 1.0 {
            return Err(Error::setting("position.base", self.base, "the base is above 1"));
        }
        Ok(())
    }

    fn build(&self, heads: &Heads, device: &Device) -> PositionLayer {
        let shape = [heads.heads, share_of(self.channels, heads.head_dim).len()];
        let delta = match self.delta {
            DeltaInit::Zero => Some(Initializer::Zeros.init(shape, device)),
            DeltaInit::Uniform => {
                Some(Initializer::Uniform { min: -TAU, max: 0.0 }.init(shape, device))
            }
            DeltaInit::Off => None,
        };
        PositionLayer::Polar(PolarLayer { delta, settings: *self, heads: *heads })
    }

    fn claims(&self, heads: &Heads) -> Claim {
        Claim {
            channels: share_of(self.channels, heads.head_dim),
            heads: share_of(self.heads, heads.heads),
        }
    }

    fn turns_channels(&self) -> bool {
        true
    }

    fn is_relative(&self) -> bool {
        true
    }
}

impl Encode for PolarLayer {
    fn shape(&self, call: &mut Call, _sizes: &Sizes) -> Result<(), Error> {
        let channels = share_of(self.settings.channels, self.heads.head_dim);
        call.features.push(Feature {
            kind: FeatureKind::Polar {
                magnitude: self.settings.magnitude.into(),
                delta: self.delta.as_ref().map(Param::val),
            },
            frequencies: Angles::polar_frequencies(channels.len(), self.settings.base),
            amplitude: 1.0,
            channels,
            heads: share_of(self.settings.heads, self.heads.heads),
        });
        Ok(())
    }
}
