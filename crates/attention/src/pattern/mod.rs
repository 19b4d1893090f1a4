//! Patterns: which keys a query may see.
//!
//! Settings here; who sees whom is defined, with its cost per tile, in [`whatwhere_kernels::attention::pattern`].

mod and;
mod causal;
mod dilated;
mod document;
mod fixed;
mod full;
mod global;
mod or;
mod predicted;
mod prefix;
mod random;
mod strided;
mod window;

use burn::tensor::Device;
use whatwhere_kernels::attention::pattern as kernels;

use crate::{Error, axis::axis, call::Focus, heads::Heads};

pub use and::And;
pub use causal::Causal;
pub use dilated::Dilated;
pub use document::Document;
pub use fixed::Fixed;
pub use full::Full;
pub use global::Global;
pub use or::Or;
pub use predicted::{Predicted, PredictedLayer};
pub use prefix::Prefix;
pub use random::Random;
pub use strided::Strided;
pub use window::Window;

/// What a pattern may need to know of a call.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// The layer's sizes.
    pub heads: Heads,
    /// Where the documents of each sequence start, for [`Document`].
    pub documents: Option<&'a [Vec<usize>]>,
    /// Place of the first query.
    pub first_query: usize,
    /// Where queries look, for a pattern that [follows content](Seeing::follows_content).
    pub focus: Option<&'a Focus>,
}

/// Settings of a pattern.
pub trait Seeing {
    /// Refuses settings without meaning.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The pattern for a call.
    fn build(&self, scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error>;

    /// How many keys before its own place a query can see at the most; nothing if there is no such bound.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// Whether no query sees a key after its own place.
    fn is_causal(&self) -> bool;

    /// The part that learns, for a pattern that follows content; most are fixed.
    fn layer(&self, _heads: &Heads, _device: &Device) -> Option<PredictedLayer> {
        None
    }

    /// Whether what is seen depends on what the queries hold, not only on places.
    fn follows_content(&self) -> bool {
        false
    }
}

axis! {
    /// Which keys a query may see.
    Pattern: Seeing {
        Full => "full",
        Causal => "causal",
        Window => "window",
        Dilated => "dilated",
        Strided => "strided",
        Fixed => "fixed",
        Random => "random",
        Global => "global",
        Prefix => "prefix",
        Document => "document",
        Predicted => "predicted",
        And => "and",
        Or => "or",
    }
}

impl Pattern {
    /// Refuses settings without meaning.
    pub fn check(&self) -> Result<(), Error> {
        self.role().check()
    }

    /// The pattern for a call.
    pub fn build(&self, scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        self.role().build(scene)
    }

    /// The part that learns, for a pattern that follows content.
    pub fn layer(&self, heads: &Heads, device: &Device) -> Option<PredictedLayer> {
        self.role().layer(heads, device)
    }

    /// How many keys before its own place a query can see at the most; nothing if there is no such bound.
    pub fn reach(&self) -> Option<usize> {
        self.role().reach()
    }

    /// Whether no query sees a key after its own place.
    pub fn is_causal(&self) -> bool {
        self.role().is_causal()
    }
}

/// Refuses parts that `and` and `or` cannot join.
fn check_parts(joint: &'static str, of: &[Pattern]) -> Result<(), Error> {
    if of.is_empty() {
        return Err(Error::setting("pattern.of", "[]", "expected at least one pattern"));
    }
    of.iter().try_for_each(|part| {
        if part.role().follows_content() {
            let reason = "its center is a share of all keys, and its Gaussian weighs every key that is seen; use it alone";
            return Err(Error::combination(part.name(), joint, reason));
        }
        part.check()
    })
}
