//! Positions: what a token knows of its place.
//!
//! An encoding acts at one or more sites: it is added to embeddings ([`Encode::embed`]), or it adds terms to a call
//! ([`Encode::shape`]): features of q and k, biases on scores, vectors that join the values. A layer calls every site of
//! every encoding it was given and never asks which one it is.

mod alibi;
mod learned;
mod none;
mod polar;
mod rotary;
mod shaw;
mod single_angle;
mod sinusoidal;
mod t5;
mod transformer_xl;

use std::ops::Range;

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};

use crate::{
    Error,
    axis::axis,
    call::Call,
    heads::{Heads, Sizes},
};

pub use alibi::{Alibi, AlibiLayer};
pub use learned::{Learned, LearnedLayer};
pub use none::{NoPosition, NoPositionLayer};
pub use polar::{DeltaInit, Polar, PolarLayer, PolarMagnitude};
pub use rotary::{Rotary, RotaryLayer, RotaryLayout};
pub use shaw::{Shaw, ShawLayer};
pub use single_angle::{SingleAngle, SingleAngleLayer};
pub use sinusoidal::{Sinusoidal, SinusoidalLayer, SinusoidalLayout};
pub use t5::{T5, T5Layer};
pub use transformer_xl::{TransformerXl, TransformerXlLayer};

/// Settings of an encoding.
pub trait Encoding {
    /// Refuses what cannot be built for these heads.
    fn check(&self, heads: &Heads) -> Result<(), Error>;

    /// The encoding with its parameters.
    fn build(&self, heads: &Heads, device: &Device) -> PositionLayer;

    /// The channels and heads the encoding turns.
    fn claims(&self, _heads: &Heads) -> Claim {
        Claim::default()
    }

    /// Whether scores under this encoding depend on distances only.
    fn is_relative(&self) -> bool;

    /// Whether the encoding is added to embeddings, once, before the first layer.
    fn embeds(&self) -> bool {
        false
    }

    /// How many places the encoding knows; nothing if there is no such bound.
    fn limit(&self) -> Option<usize> {
        None
    }

    /// Whether the encoding adds to scores or values.
    fn adds_to_scores(&self) -> bool {
        false
    }

    /// Whether the encoding turns channels of queries and keys.
    fn turns_channels(&self) -> bool {
        false
    }
}

/// Channels of heads that an encoding turns; empty for one that turns none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Channels of a head.
    pub channels: Range<usize>,
    /// Query heads.
    pub heads: Range<usize>,
}

impl Claim {
    /// Whether two claims share a channel of a head.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        meet(&self.channels, &other.channels) && meet(&self.heads, &other.heads)
    }
}

/// An encoding at work.
pub trait Encode {
    /// Adds places to embeddings, `[batch, length, width]`, the first of which stands at `first`.
    fn embed(&self, x: Tensor<3>, _first: usize) -> Result<Tensor<3>, Error> {
        Ok(x)
    }

    /// Adds the encoding's terms to a call.
    fn shape(&self, _call: &mut Call, _sizes: &Sizes) -> Result<(), Error> {
        Ok(())
    }
}

/// Declares the list once: settings, layers, and their dispatch.
macro_rules! positions {
    ($($choice:ident, $layer:ident => $name:literal;)*) => {
        axis! {
            /// What a token knows of its place.
            Position: Encoding { $($choice => $name,)* }
        }

        /// An encoding with its parameters.
        #[derive(Module, Debug)]
        pub enum PositionLayer {
            $(
                #[doc = concat!("`", $name, "`.")]
                $choice($layer),
            )*
        }

        impl PositionLayer {
            fn role(&self) -> &dyn Encode {
                match self { $(Self::$choice(layer) => layer,)* }
            }
        }
    };
}

positions! {
    NoPosition, NoPositionLayer => "none";
    Sinusoidal, SinusoidalLayer => "sinusoidal";
    Learned, LearnedLayer => "learned";
    Shaw, ShawLayer => "shaw";
    TransformerXl, TransformerXlLayer => "transformer_xl";
    Rotary, RotaryLayer => "rotary";
    Polar, PolarLayer => "polar";
    SingleAngle, SingleAngleLayer => "single_angle";
    Alibi, AlibiLayer => "alibi";
    T5, T5Layer => "t5";
}

impl Encode for PositionLayer {
    fn embed(&self, x: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
        self.role().embed(x, first)
    }

    fn shape(&self, call: &mut Call, sizes: &Sizes) -> Result<(), Error> {
        self.role().shape(call, sizes)
    }
}

impl Position {
    /// Refuses what cannot be built for these heads.
    pub fn check(&self, heads: &Heads) -> Result<(), Error> {
        self.role().check(heads)
    }

    /// Whether scores under this encoding depend on distances only.
    pub fn is_relative(&self) -> bool {
        self.role().is_relative()
    }

    /// Whether the encoding is added to embeddings, once, before the first layer: a model keeps it apart from its layers.
    pub fn embeds(&self) -> bool {
        self.role().embeds()
    }

    /// How many places the encoding knows; nothing if there is no such bound.
    pub fn limit(&self) -> Option<usize> {
        self.role().limit()
    }

    /// The encoding with its parameters.
    pub fn build(&self, heads: &Heads, device: &Device) -> Result<PositionLayer, Error> {
        self.check(heads)?;
        Ok(self.role().build(heads, device))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use whatwhere_kernels::attention::pattern::Causal;

    use super::*;

    #[test]
    fn every_encoding_says_what_it_adds_to_a_call() {
        let heads = Heads { width: 16, heads: 2, kv_heads: 2, head_dim: 8 };
        for position in Position::all() {
            let layer = position.build(&heads, &Device::flex()).unwrap();
            let mut call = Call::new(heads.head_dim, Arc::new(Causal::upper_left()));
            layer.shape(&mut call, &Sizes { batch: 1, queries: 4, keys: 4 }).unwrap();
            let (name, role) = (position.name(), position.role());
            let adds = !call.biases.is_empty() || call.relative_values.is_some();
            assert_eq!(role.adds_to_scores(), adds, "{name} adds to scores");
            let claim = role.claims(&heads);
            let turns = !call.features.is_empty();
            assert_eq!(role.turns_channels(), turns, "{name} turns channels");
            assert_eq!(!claim.channels.is_empty(), turns, "{name} claims channels");
        }
    }
}
