//! Scores: how alike a query and a key are.

mod additive;
mod cosine;
mod dot;
mod general;
mod scaled_dot;

#[cfg(feature = "burn")]
use burn::tensor::{Device, Tensor};
use whatwhere_kernels::attention::{self as kernels, Shape};

#[cfg(feature = "burn")]
use crate::heads::Heads;
use crate::{Error, axis::axis, slot::Slot};

/// Settings of a score.
pub trait ScoreSettings {
    /// Refuses settings out of range.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// How queries and keys are compared, over the names of what it learns.
    fn compare(&self, shape: &Shape) -> kernels::Score<Slot> {
        kernels::Score::scaled_dot(shape.head_dim)
    }

    /// Whether the score is made of products of q and k, which depend on the distance alone after a rotation of both.
    fn is_product(&self) -> bool {
        true
    }

    /// Whether the score does something to queries before their features.
    fn changes_queries(&self) -> bool {
        false
    }
}

axis! {
    /// How alike a query and a key are.
    Score: ScoreSettings, ScoreModule: ScoreLayer {
        scaled_dot::{ScaledDot, ScaledDotLayer} => "scaled_dot",
        dot::{Dot, DotLayer} => "dot",
        general::{General, GeneralLayer} => "general",
        additive::{Additive, AdditiveLayer} => "additive",
        cosine::{Cosine, CosineLayer} => "cosine",
    }
}

/// A score at work.
#[cfg(feature = "burn")]
pub trait ScoreLayer {
    /// What the score does to queries before their features, `[batch, heads, queries, head_dim]`.
    fn queries(&self, q: Tensor<4>) -> Tensor<4> {
        q
    }

    /// The parameter of this name; nothing if [`ScoreSettings::compare`] names none.
    fn array(&self, _name: &str) -> Option<Tensor<1>> {
        None
    }
}

#[cfg(feature = "burn")]
impl ScoreLayer for ScoreModule {
    fn queries(&self, q: Tensor<4>) -> Tensor<4> {
        self.role().queries(q)
    }

    fn array(&self, name: &str) -> Option<Tensor<1>> {
        self.role().array(name)
    }
}

impl Score {
    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        self.role().check()
    }

    /// How queries and keys are compared, over the names of what it learns.
    pub fn compare(&self, shape: &Shape) -> kernels::Score<Slot> {
        self.role().compare(shape)
    }

    /// Whether the score is made of products of q and k, which depend on the distance alone after a rotation of both.
    pub fn is_product(&self) -> bool {
        self.role().is_product()
    }

    /// Whether the score does something to queries before their features.
    pub fn changes_queries(&self) -> bool {
        self.role().changes_queries()
    }

    /// The score with its parameters.
    #[cfg(feature = "burn")]
    pub fn build(&self, heads: &Heads, device: &Device) -> Result<ScoreModule, Error> {
        self.check()?;
        Ok(self.module(heads, device))
    }
}
