use std::f64::consts::TAU;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Feature, FeatureKind, Magnitude};
use whatwhere_settings::Refuses;

use super::{Channels, PositionSettings};
use crate::{
    Error,
    heads::Heads,
    slot::{Terms, angles},
};

/// Single angle: polar coordinates with one angle for all channels, `θ = 2π·position / period`, and |x| softened as in polar.
/// The simplified form of PoPE found in blog reviews. It differs from the paper (`polar`): there every channel has its own
/// frequency, there is no period, and keys learn a phase. Here positions one period apart look the same. For comparison only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SingleAngle {
    /// Positions in a full turn, the reviews' maximum length P; default 1024.
    pub period: usize,
}

impl Default for SingleAngle {
    fn default() -> Self {
        Self { period: 1024 }
    }
}

impl PositionSettings for SingleAngle {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.period == 0 {
            return Err(Error::setting("position.period", 0, "a period has at least one position"));
        }
        Ok(())
    }

    fn channels(&self, heads: &Heads) -> Channels {
        Channels { channels: 0..heads.head_dim, heads: 0..heads.heads }
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        let channels = 0..call.shape.head_dim;
        let frequencies = vec![TAU / self.period as f64; channels.len()];
        call.features.push(Feature {
            kind: FeatureKind::Polar { magnitude: Magnitude::Softplus, delta: None },
            angles: angles(call, &frequencies, None, 1.0)?,
            channels,
            heads: 0..call.shape.heads,
        });
        Ok(())
    }

    /// Cosines and sines are compared in place of each channel.
    fn extra_channels(&self, heads: &Heads) -> usize {
        heads.head_dim * heads.heads
    }
}

#[cfg(feature = "burn")]
pub use layer::SingleAngleLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{module::Module, tensor::Device};

    use super::SingleAngle;
    use crate::{heads::Heads, position::PositionLayer};

    /// One angle at work; it learns nothing.
    #[derive(Module, Debug)]
    pub struct SingleAngleLayer {}

    impl SingleAngleLayer {
        pub(crate) fn new(_settings: &SingleAngle, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl PositionLayer for SingleAngleLayer {}
}
