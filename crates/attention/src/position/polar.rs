use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Angles, Feature, FeatureKind, Magnitude};
use whatwhere_settings::{Refuses, Share};

use super::{Channels, Position, PositionSettings};
use crate::{
    Error, grid,
    heads::Heads,
    slot::{Handed, Slot, Terms, angles},
};

/// Polar (PoPE): content is a magnitude, position a phase: `Σ_c μ(q_c) μ(k_c) cos(distance·θ_c + δ_c)`.
/// Gopalakrishnan et al. 2025, <https://arxiv.org/abs/2509.10534>. One δ per head and channel; holds far beyond the trained length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Polar {
    /// θ_c = base^(−c/width), one for each channel; default 10000.
    pub base: f64,
    /// How the learned phase of keys starts; default `zero`, which the paper found best for longer inputs.
    pub delta: DeltaInit,
    /// From a channel's value to its magnitude; default `softplus`. Under linear mixing the feature map makes magnitudes.
    pub magnitude: PolarMagnitude,
    /// Share of a head's channels that are polar: the first ones, or `[from, to]`; default 1.
    pub channels: Share,
    /// Share of the heads that are polar: the first ones, or `[from, to]`; default 1.
    pub heads: Share,
    /// Positions in a row, for sequences read off a grid row by row, such as pixels: half of the
    /// channels then turn by the row, half by the column; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<usize>,
}

/// How δ starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
            channels: Share::default(),
            heads: Share::default(),
            grid: None,
        }
    }
}

impl PositionSettings for Polar {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        self.channels.check_of("position.channels", heads.head_dim)?;
        self.heads.check_of("position.heads", heads.heads)?;
        if self.base.is_nan() || self.base <= 1.0 {
            return Err(Error::setting("position.base", self.base, "the base is above 1"));
        }
        grid::check(self.grid, self.channels.of(heads.head_dim).len(), 1)
    }

    fn channels(&self, heads: &Heads) -> Channels {
        Channels { channels: self.channels.of(heads.head_dim), heads: self.heads.of(heads.heads) }
    }

    /// On a grid, positions as far apart as others may lie more rows apart.
    fn is_relative(&self) -> bool {
        self.grid.is_none()
    }

    fn grid(&self) -> Option<usize> {
        self.grid
    }

    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        let (heads, channels) = (call.shape.heads, self.channels.of(call.shape.head_dim));
        let frequencies = self.frequencies(channels.len());
        let delta = || Slot {
            note: "kept between −2π and 0; none if left out",
            ..Slot::new("delta", &[heads, channels.len()], "[heads, channels]")
        };
        let delta = (self.delta != DeltaInit::Off).then(delta);
        call.features.push(Feature {
            kind: FeatureKind::Polar { magnitude: self.magnitude.into(), delta },
            angles: angles(call, &frequencies, self.grid, 1.0)?,
            channels,
            heads: self.heads.of(heads),
        });
        Ok(())
    }

    fn with_arrays(&self, handed: &Handed) -> Result<Option<Position>, Error> {
        if self.delta == DeltaInit::Uniform {
            let reason = "expected an array, `zero` or `off`; a uniform start is yours to draw";
            return Err(Error::setting("position.delta", "uniform", reason));
        }
        let delta = if handed.has("delta") { DeltaInit::Zero } else { DeltaInit::Off };
        Ok(Some(Self { delta, ..*self }.into()))
    }

    fn has_own_magnitude(&self) -> bool {
        self.magnitude != PolarMagnitude::default()
    }

    /// Cosines and sines are compared in place of each channel.
    fn extra_channels(&self, heads: &Heads) -> usize {
        let Channels { channels, heads } = self.channels(heads);
        channels.len() * heads.len()
    }

    fn phases(&self) -> Option<&'static str> {
        (self.delta != DeltaInit::Off).then_some("delta")
    }
}

impl Polar {
    /// Radians per position for each of `width` channels.
    pub fn frequencies(&self, width: usize) -> Vec<f64> {
        grid::frequencies(self.grid, width, |width| Angles::polar_frequencies(width, self.base))
    }
}

#[cfg(feature = "burn")]
pub use layer::PolarLayer;

#[cfg(feature = "burn")]
mod layer {
    use std::f64::consts::TAU;

    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };

    use super::{DeltaInit, Polar};
    use crate::{call::flat, heads::Heads, position::PositionLayer, slot::Terms};

    /// Magnitudes and phases at work.
    #[derive(Module, Debug)]
    pub struct PolarLayer {
        /// Phase of keys, `[heads, channels]`; used clamped to [−2π, 0].
        pub delta: Option<Param<Tensor<2>>>,
    }

    impl PolarLayer {
        pub(crate) fn new(settings: &Polar, heads: &Heads, device: &Device) -> Self {
            let shape = [heads.heads, settings.channels.of(heads.head_dim).len()];
            let delta = match settings.delta {
                DeltaInit::Zero => Some(Initializer::Zeros.init(shape, device)),
                DeltaInit::Uniform => {
                    Some(Initializer::Uniform { min: -TAU, max: 0.0 }.init(shape, device))
                }
                DeltaInit::Off => None,
            };
            Self { delta }
        }
    }

    impl PositionLayer for PolarLayer {
        fn array(&self, _name: &str, _call: &Terms) -> Option<Tensor<1>> {
            Some(flat(self.delta.as_ref()?.val()))
        }
    }
}
