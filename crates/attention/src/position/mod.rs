//! Positions: what a token knows of its position.
//!
//! An encoding acts at one or more sites: it is added to embeddings ([`PositionLayer::embed`]), or it adds terms to a call
//! ([`PositionSettings::add_terms`]): features of q and k, biases on scores, vectors that join the values. A layer calls every
//! site of every encoding it was given and never asks which one it is.

mod alibi;
mod disentangled;
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

#[cfg(feature = "burn")]
use burn::{
    nn::Linear,
    tensor::{Device, Tensor},
};

#[cfg(feature = "burn")]
use crate::call::Call;
use crate::{
    Error,
    axis::axis,
    heads::Heads,
    slot::{Handed, Terms},
};

pub use polar::{DeltaInit, PolarMagnitude};
pub use rotary::RotaryLayout;
pub use sinusoidal::SinusoidalLayout;

/// Settings of an encoding.
pub trait PositionSettings {
    /// Refuses what cannot be built for these heads.
    fn check(&self, heads: &Heads) -> Result<(), Error>;

    /// The channels and heads the encoding rotates.
    fn channels(&self, _heads: &Heads) -> Channels {
        Channels::default()
    }

    /// Whether scores under this encoding depend on distances only.
    fn is_relative(&self) -> bool;

    /// Positions in a row of the grid that the encoding reads positions on; nothing if it knows one dimension.
    fn grid(&self) -> Option<usize> {
        None
    }

    /// Whether the encoding is added to embeddings, once, before the first layer.
    fn embeds(&self) -> bool {
        false
    }

    /// Whether the encoding was published with embeddings that are multiplied by √width.
    fn scales_embeddings(&self) -> bool {
        false
    }

    /// How many positions the encoding knows; nothing if there is no such bound.
    fn limit(&self) -> Option<usize> {
        None
    }

    /// Whether what the encoding does to a token depends on the length at hand.
    fn follows_length(&self) -> bool {
        false
    }

    /// Whether the encoding adds to scores or values.
    fn adds_to_scores(&self) -> bool {
        false
    }

    /// Whether magnitudes of channels were set to something else than by default.
    fn has_own_magnitude(&self) -> bool {
        false
    }

    /// Whether scores ask keys for distances, so that they are formed between projections.
    fn asks_keys(&self) -> bool {
        false
    }

    /// Whether vectors of the encoding go through the layer's projections.
    fn projects(&self) -> bool {
        false
    }

    /// Adds the encoding's terms to a call, over the names of what it learns.
    fn add_terms(&self, _call: &mut Terms) -> Result<(), Error> {
        Ok(())
    }

    /// The encoding whose arrays are handed in: settings that were left out follow from them.
    fn with_arrays(&self, _handed: &Handed) -> Result<Option<Position>, Error> {
        Ok(None)
    }

    /// Settings that have no meaning where arrays are handed in.
    fn only_of_layers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Channels, over all heads, by which queries and keys grow before they are compared.
    fn extra_channels(&self, _heads: &Heads) -> usize {
        0
    }

    /// Entries of the table that the encoding learns for positions or distances.
    fn entries(&self) -> usize {
        0
    }

    /// The distance beyond which all look alike to every head; nothing if there is none.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// What the encoding adds to a score where it does not ask the query: its name, and what it is.
    fn bias_term(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// The parameter that holds learned phases of keys, in radians from −2π to 0.
    fn phases(&self) -> Option<&'static str> {
        None
    }

    /// How the encoding can reach from the trained length to another without training, each with its name.
    fn scalings(&self, _trained: usize, _length: usize) -> Vec<(&'static str, Position)> {
        Vec::new()
    }

    /// The encoding without its scaling; nothing if it has none.
    fn unscaled(&self) -> Option<Position> {
        None
    }
}

/// Channels of heads that an encoding rotates; empty for one that rotates none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Channels of a head.
    pub channels: Range<usize>,
    /// Query heads.
    pub heads: Range<usize>,
}

impl Channels {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() || self.heads.is_empty()
    }

    /// Whether two encodings share a channel of a head.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        meet(&self.channels, &other.channels) && meet(&self.heads, &other.heads)
    }
}

axis! {
    /// What a token knows of its position.
    Position: PositionSettings, PositionModule: PositionLayer {
        none::{NoPosition, NoPositionLayer} => "none",
        sinusoidal::{Sinusoidal, SinusoidalLayer} => "sinusoidal",
        learned::{Learned, LearnedLayer} => "learned",
        shaw::{Shaw, ShawLayer} => "shaw",
        transformer_xl::{TransformerXl, TransformerXlLayer} => "transformer_xl",
        disentangled::{Disentangled, DisentangledLayer} => "disentangled",
        rotary::{Rotary, RotaryLayer} => "rotary",
        polar::{Polar, PolarLayer} => "polar",
        single_angle::{SingleAngle, SingleAngleLayer} => "single_angle",
        alibi::{Alibi, AlibiLayer} => "alibi",
        t5::{T5, T5Layer} => "t5",
    }
}

/// An encoding at work.
#[cfg(feature = "burn")]
pub trait PositionLayer {
    /// Adds positions to embeddings, `[batch, length, width]`, the first of which stands at `first`.
    fn embed(&self, x: Tensor<3>, _first: usize) -> Result<Tensor<3>, Error> {
        Ok(x)
    }

    /// The parameter of this name, or what a call has in its place; nothing if the settings ask for none.
    fn array(&self, _name: &str, _call: &Terms) -> Option<Tensor<1>> {
        None
    }

    /// Adds the terms of vectors that go through the layer's projection of keys, which settings cannot lay out.
    fn add_projected_terms(&self, _call: &mut Call, _key: Option<&Linear>) -> Result<(), Error> {
        Ok(())
    }

    /// Adds the terms that ask keys, `[batch, kv_heads, keys or more, head_dim]`, with the layer's projection of queries.
    fn add_key_terms(&self, _call: &mut Call, _k: &Tensor<4>, _query: Option<&Linear>) {}
}

#[cfg(feature = "burn")]
impl PositionLayer for PositionModule {
    fn embed(&self, x: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
        self.role().embed(x, first)
    }

    fn array(&self, name: &str, call: &Terms) -> Option<Tensor<1>> {
        self.role().array(name, call)
    }

    fn add_projected_terms(&self, call: &mut Call, key: Option<&Linear>) -> Result<(), Error> {
        self.role().add_projected_terms(call, key)
    }

    fn add_key_terms(&self, call: &mut Call, k: &Tensor<4>, query: Option<&Linear>) {
        self.role().add_key_terms(call, k, query);
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

    /// Positions in a row of the grid that the encoding reads positions on; nothing if it knows one dimension.
    pub fn grid(&self) -> Option<usize> {
        self.role().grid()
    }

    /// Whether the encoding is added to embeddings, once, before the first layer: a model keeps it apart from its layers.
    pub fn embeds(&self) -> bool {
        self.role().embeds()
    }

    /// Whether the encoding was published with embeddings that are multiplied by √width.
    pub fn scales_embeddings(&self) -> bool {
        self.role().scales_embeddings()
    }

    /// How many positions the encoding knows; nothing if there is no such bound.
    pub fn limit(&self) -> Option<usize> {
        self.role().limit()
    }

    /// The channels and heads the encoding rotates.
    pub fn channels(&self, heads: &Heads) -> Channels {
        self.role().channels(heads)
    }

    /// Whether the encoding rotates channels of queries and keys.
    pub fn rotates(&self, heads: &Heads) -> bool {
        !self.channels(heads).is_empty()
    }

    /// Whether what the encoding does to a token depends on the length at hand.
    pub fn follows_length(&self) -> bool {
        self.role().follows_length()
    }

    /// Whether the encoding adds to scores or values.
    pub fn adds_to_scores(&self) -> bool {
        self.role().adds_to_scores()
    }

    /// Whether magnitudes of channels were set to something else than by default.
    pub fn has_own_magnitude(&self) -> bool {
        self.role().has_own_magnitude()
    }

    /// Whether scores ask keys for distances, so that they are formed between projections.
    pub fn asks_keys(&self) -> bool {
        self.role().asks_keys()
    }

    /// Whether vectors of the encoding go through the layer's projections.
    pub fn projects(&self) -> bool {
        self.role().projects()
    }

    /// Adds the encoding's terms to a call, over the names of what it learns.
    pub fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        self.role().add_terms(call)
    }

    /// The encoding whose arrays are handed in: settings that were left out follow from them.
    pub fn with_arrays(&self, handed: &Handed) -> Result<Self, Error> {
        Ok(self.role().with_arrays(handed)?.unwrap_or_else(|| self.clone()))
    }

    /// Settings that have no meaning where arrays are handed in.
    pub fn only_of_layers(&self) -> &'static [&'static str] {
        self.role().only_of_layers()
    }

    /// Channels, over all heads, by which queries and keys grow before they are compared.
    pub fn extra_channels(&self, heads: &Heads) -> usize {
        self.role().extra_channels(heads)
    }

    /// Entries of the table that the encoding learns for positions or distances.
    pub fn entries(&self) -> usize {
        self.role().entries()
    }

    /// The distance beyond which all look alike to every head; nothing if there is none.
    pub fn reach(&self) -> Option<usize> {
        self.role().reach()
    }

    /// What the encoding adds to a score where it does not ask the query: its name, and what it is.
    pub fn bias_term(&self) -> Option<(&'static str, &'static str)> {
        self.role().bias_term()
    }

    /// The parameter that holds learned phases of keys, in radians from −2π to 0.
    pub fn phases(&self) -> Option<&'static str> {
        self.role().phases()
    }

    /// How the encoding can reach from the trained length to another without training, each with its name.
    pub fn scalings(&self, trained: usize, length: usize) -> Vec<(&'static str, Position)> {
        self.role().scalings(trained, length)
    }

    /// The encoding without its scaling; nothing if it has none.
    pub fn unscaled(&self) -> Option<Position> {
        self.role().unscaled()
    }

    /// The encoding with its parameters.
    #[cfg(feature = "burn")]
    pub fn build(&self, heads: &Heads, device: &Device) -> Result<PositionModule, Error> {
        self.check(heads)?;
        Ok(self.module(heads, device))
    }
}

#[cfg(all(test, feature = "burn"))]
mod tests {
    use std::sync::Arc;

    use whatwhere_kernels::attention::{
        Shape,
        pattern::{Causal, Pattern},
    };

    use super::*;
    use crate::call::value;

    #[test]
    fn every_encoding_says_what_it_adds_to_a_call() {
        let heads = Heads { width: 16, heads: 2, kv_heads: 2, head_dim: 8 };
        for position in Position::all() {
            let layer = position.build(&heads, &Device::flex()).unwrap();
            let shape = Shape::square(1, heads.heads, 4, heads.head_dim);
            let mut terms = Terms::new(shape, ());
            position.add_terms(&mut terms).unwrap();
            let causal: Arc<dyn Pattern> = Arc::new(Causal::upper_left());
            let name = position.name();
            let mut call = terms.map(causal, |slot| {
                let array = layer.array(slot.array, &terms).expect("an array of the layer");
                assert_eq!(array.dims(), [slot.sizes.iter().product::<usize>()], "{name}");
                value(slot, array, heads.heads)
            });
            let key = burn::nn::LinearConfig::new(16, 16).init(&Device::flex());
            layer.add_projected_terms(&mut call, Some(&key)).unwrap();
            let adds = !call.biases.is_empty() || call.relative_values.is_some();
            assert_eq!(position.adds_to_scores(), adds, "{name} adds to scores");
            assert_eq!(position.rotates(&heads), !call.features.is_empty(), "{name} rotates");
        }
    }
}
