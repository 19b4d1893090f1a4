//! Rotary: turn pairs of channels of q and k by `place · θ_i`, so that their product depends on the distance.
//! Su et al. 2021, <https://arxiv.org/abs/2104.09864>. No parameters; needs [`Scaling`] beyond the trained length.

use burn::{module::Module, tensor::Device};
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::Layout;

use super::{Claim, Encode, Encoding, PositionLayer};
use crate::{
    Error, Scaling,
    call::{Call, Feature, FeatureKind},
    heads::{Heads, Sizes, check_share, share_of},
};

/// Rotation of channel pairs by the place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rotary {
    /// θ_i = base^(−2i/width); default 10000.
    pub base: f64,
    /// Which channels form a pair; default `half_split`.
    pub layout: RotaryLayout,
    /// Share of a head's channels that turn, the first ones; default 1.
    pub channels: f64,
    /// Share of the heads that turn, the first ones; default 1.
    pub heads: f64,
    /// How to reach further than trained; default none.
    pub scaling: Scaling,
}

/// Which channels form a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
            channels: 1.0,
            heads: 1.0,
            scaling: Scaling::None,
        }
    }
}

/// Rotation at work.
#[derive(Module, Debug)]
pub struct RotaryLayer {
    #[module(skip)]
    settings: Rotary,
    #[module(skip)]
    heads: Heads,
}

impl Encoding for Rotary {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        check_share("position.channels", self.channels)?;
        check_share("position.heads", self.heads)?;
        let width = share_of(self.channels, heads.head_dim).len();
        if !width.is_multiple_of(2) || width == 0 {
            let reason = format!(
                "rotary turns pairs, but {width} channels of a head would turn; use an even head_dim or another position.channels"
            );
            return Err(Error::setting("head_dim", heads.head_dim, reason));
        }
        if self.base.is_nan() || self.base <= 1.0 {
            return Err(Error::setting("position.base", self.base, "the base is above 1"));
        }
        self.scaling.check()
    }

    fn build(&self, heads: &Heads, _device: &Device) -> PositionLayer {
        PositionLayer::Rotary(RotaryLayer { settings: *self, heads: *heads })
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

impl Encode for RotaryLayer {
    fn shape(&self, call: &mut Call, sizes: &Sizes) -> Result<(), Error> {
        let Rotary { base, layout, channels, heads, scaling } = self.settings;
        let channels = share_of(channels, self.heads.head_dim);
        let length = (call.first_key + sizes.keys).max(call.first_query + sizes.queries);
        let (frequencies, amplitude) = scaling.frequencies(base, channels.len(), length);
        let layout = match layout {
            RotaryLayout::Interleaved => Layout::Interleaved,
            RotaryLayout::HalfSplit => Layout::HalfSplit,
        };
        call.features.push(Feature {
            kind: FeatureKind::Rotary { layout },
            frequencies,
            amplitude,
            channels,
            heads: share_of(heads, self.heads.heads),
        });
        Ok(())
    }
}
