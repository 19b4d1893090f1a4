//! Scores: how alike a query and a key are.

mod additive;
mod cosine;
mod dot;
mod general;
mod scaled_dot;

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};

use crate::{Error, axis::axis, call::Compare, heads::Heads};

pub use additive::{Additive, AdditiveLayer};
pub use cosine::{Cosine, CosineLayer};
pub use dot::{Dot, DotLayer};
pub use general::{General, GeneralLayer};
pub use scaled_dot::{ScaledDot, ScaledDotLayer};

/// Settings of a score.
pub trait Scoring {
    /// Refuses settings out of range.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The score with its parameters.
    fn build(&self, heads: &Heads, device: &Device) -> ScoreLayer;
}

/// A score at work.
pub trait Comparing {
    /// What the score does to queries before their features, `[batch, heads, queries, head_dim]`.
    fn queries(&self, q: Tensor<4>) -> Tensor<4> {
        q
    }

    /// How queries and keys are then compared.
    fn compare(&self) -> Compare;
}

/// Declares the list once: settings, layers, and their dispatch.
macro_rules! scores {
    ($($choice:ident, $layer:ident => $name:literal;)*) => {
        axis! {
            /// How alike a query and a key are.
            Score: Scoring { $($choice => $name,)* }
        }

        /// A score with its parameters.
        #[derive(Module, Debug)]
        pub enum ScoreLayer {
            $(
                #[doc = concat!("`", $name, "`.")]
                $choice($layer),
            )*
        }

        impl ScoreLayer {
            fn role(&self) -> &dyn Comparing {
                match self { $(Self::$choice(layer) => layer,)* }
            }
        }
    };
}

scores! {
    ScaledDot, ScaledDotLayer => "scaled_dot";
    Dot, DotLayer => "dot";
    General, GeneralLayer => "general";
    Additive, AdditiveLayer => "additive";
    Cosine, CosineLayer => "cosine";
}

impl Comparing for ScoreLayer {
    fn queries(&self, q: Tensor<4>) -> Tensor<4> {
        self.role().queries(q)
    }

    fn compare(&self) -> Compare {
        self.role().compare()
    }
}

impl Score {
    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        self.role().check()
    }

    /// The score with its parameters.
    pub fn build(&self, heads: &Heads, device: &Device) -> Result<ScoreLayer, Error> {
        self.check()?;
        Ok(self.role().build(heads, device))
    }
}
