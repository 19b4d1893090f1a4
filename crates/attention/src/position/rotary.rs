use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Feature, FeatureKind, Layout};
use whatwhere_settings::{Refuses, Share};

use super::{Channels, Position, PositionSettings};
use crate::{
    Error, Scaling, grid,
    heads::Heads,
    slot::{Terms, angles},
};

/// Rotary: rotate pairs of channels of q and k by `position · θ_i`, so that their product depends on the distance.
/// Su et al. 2021, <https://arxiv.org/abs/2104.09864>. No parameters; beyond the trained length it needs a `scaling`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rotary {
    /// θ_i = base^(−2i/width); default 10000.
    pub base: f64,
    /// Which channels form a pair; default `half_split`.
    pub layout: RotaryLayout,
    /// Share of a head's channels that rotate: the first ones, or `[from, to]`; default 1.
    pub channels: Share,
    /// Share of the heads that rotate: the first ones, or `[from, to]`; default 1.
    pub heads: Share,
    /// How to reach further than trained; default none.
    pub scaling: Scaling,
    /// Positions in a row, for sequences read off a grid row by row, such as pixels: half of the pairs
    /// then rotate by the row, half by the column (axial, Heo et al. 2024, <https://arxiv.org/abs/2403.13298>); default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<usize>,
}

/// Which channels form a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// Channels `2i` and `2i + 1` (RoFormer, GPT-J).
    Interleaved,
    /// Channels `i` and `i + width/2` (GPT-NeoX, Llama in transformers).
    #[default]
    HalfSplit,
}

impl Default for Rotary {
    fn default() -> Self {
        Self {
            base: 10_000.0,
            layout: RotaryLayout::default(),
            channels: Share::default(),
            heads: Share::default(),
            scaling: Scaling::None,
            grid: None,
        }
    }
}

impl PositionSettings for Rotary {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        self.channels.check("position.channels")?;
        self.heads.check_of("position.heads", heads.heads)?;
        let width = self.channels.of(heads.head_dim).len();
        if !width.is_multiple_of(2) || width == 0 {
            let reason = format!(
                "rotary rotates pairs, but {width} channels of a head would rotate; use an even head_dim or another position.channels"
            );
            return Err(Error::setting("head_dim", heads.head_dim, reason));
        }
        if self.base.is_nan() || self.base <= 1.0 {
            return Err(Error::setting("position.base", self.base, "the base is above 1"));
        }
        grid::check(self.grid, width, 2)?;
        if self.grid.is_some() && self.scaling != Scaling::None {
            let reason = "a scaling reaches further in one dimension, and a grid has two";
            return Err(Error::combination("position.scaling", "position.grid", reason));
        }
        self.scaling.check(width / 2)
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
        let channels = self.channels.of(call.shape.head_dim);
        let (frequencies, amplitude) = self.frequencies(channels.len(), call.positions().end);
        let layout = match self.layout {
            RotaryLayout::Interleaved => Layout::Interleaved,
            RotaryLayout::HalfSplit => Layout::HalfSplit,
        };
        call.features.push(Feature {
            kind: FeatureKind::Rotary { layout },
            angles: angles(call, &frequencies, self.grid, amplitude)?,
            channels,
            heads: self.heads.of(call.shape.heads),
        });
        Ok(())
    }

    fn follows_length(&self) -> bool {
        self.scaling.follows_length()
    }

    fn scalings(&self, trained: usize, length: usize) -> Vec<(&'static str, Position)> {
        if self.scaling != Scaling::None || self.grid.is_some() {
            return Vec::new();
        }
        let factor = length as f64 / trained as f64;
        let yarn = Scaling::yarn(factor, trained);
        [("linear", Scaling::Linear { factor }), ("ntk", Scaling::Ntk { factor }), ("yarn", yarn)]
            .map(|(name, scaling)| (name, Self { scaling, ..self.clone() }.into()))
            .into()
    }

    fn unscaled(&self) -> Option<Position> {
        let scaled = self.scaling != Scaling::None;
        scaled.then(|| Self { scaling: Scaling::None, ..self.clone() }.into())
    }
}

impl Rotary {
    /// Radians per position for each pair of `width` channels in a text of `length`, and the factor on cosine and sine.
    pub fn frequencies(&self, width: usize, length: usize) -> (Vec<f64>, f64) {
        let (_, amplitude) = self.scaling.frequencies(self.base, width, length);
        let of = |width| self.scaling.frequencies(self.base, width, length).0;
        (grid::frequencies(self.grid, width, of), amplitude)
    }
}

#[cfg(feature = "burn")]
pub use layer::RotaryLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{module::Module, tensor::Device};

    use super::Rotary;
    use crate::{heads::Heads, position::PositionLayer};

    /// Rotation at work; it learns nothing.
    #[derive(Module, Debug)]
    pub struct RotaryLayer {}

    impl RotaryLayer {
        pub(crate) fn new(_settings: &Rotary, _heads: &Heads, _device: &Device) -> Self {
            Self {}
        }
    }

    impl PositionLayer for RotaryLayer {}
}
