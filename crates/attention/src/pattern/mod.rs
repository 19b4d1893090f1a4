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

use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::{Refuses, choice};

use crate::{Error, heads::Heads};

pub use and::And;
pub use causal::Causal;
pub use dilated::Dilated;
pub use document::Document;
pub use fixed::Fixed;
pub use full::Full;
pub use global::Global;
pub use or::Or;
pub use predicted::Predicted;
#[cfg(feature = "burn")]
pub use predicted::PredictedLayer;
pub use prefix::Prefix;
pub use random::Random;
pub use strided::Strided;
pub use window::Window;

/// What a pattern may need to know of a call.
#[derive(Clone, Debug)]
pub struct PatternContext<'a> {
    /// The layer's sizes.
    pub heads: Heads,
    /// Where the documents of each sequence start, for [`Document`].
    pub documents: Option<&'a [Vec<usize>]>,
    /// Place of the first query.
    pub first_query: usize,
    /// The place each query predicts, `[batch, heads, queries]` with these sizes, for a pattern with a
    /// [deviation](PatternSettings::deviation).
    pub centers: Option<(&'a [f32], [usize; 3])>,
}

/// Settings of a pattern.
pub trait PatternSettings {
    /// Refuses settings without meaning.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The pattern for a call.
    fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error>;

    /// How many keys before its own place a query can see at the most; nothing if there is no such bound.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// Whether no query sees a key after its own place.
    fn is_causal(&self) -> bool;

    /// Whether a query sees every key, or every key up to its own place: what a sum over keys can stand for.
    fn is_whole(&self) -> bool {
        false
    }

    /// Whether the call has to say where documents start.
    fn needs_documents(&self) -> bool {
        false
    }

    /// Whether each head sees other pairs.
    fn differs_by_head(&self) -> bool {
        false
    }

    /// Deviation in places of the Gaussian around predicted places, for a pattern that follows what the queries hold.
    fn deviation(&self) -> Option<f32> {
        None
    }

    /// The part that learns, for a pattern that follows content; most are fixed.
    #[cfg(feature = "burn")]
    fn layer(&self, _heads: &Heads, _device: &burn::tensor::Device) -> Option<PredictedLayer> {
        None
    }
}

choice! {
    /// Which keys a query may see.
    Pattern: PatternSettings {
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
    pub fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        self.role().build(context)
    }

    /// The part that learns, for a pattern that follows content.
    #[cfg(feature = "burn")]
    pub fn layer(&self, heads: &Heads, device: &burn::tensor::Device) -> Option<PredictedLayer> {
        self.role().layer(heads, device)
    }

    /// Whether the call has to say where documents start.
    pub fn needs_documents(&self) -> bool {
        self.role().needs_documents()
    }

    /// Whether each head sees other pairs.
    pub fn differs_by_head(&self) -> bool {
        self.role().differs_by_head()
    }

    /// Deviation in places of the Gaussian around predicted places, for a pattern that follows what the queries hold.
    pub fn deviation(&self) -> Option<f32> {
        self.role().deviation()
    }

    /// Whether a query sees every key, or every key up to its own place.
    pub fn is_whole(&self) -> bool {
        self.role().is_whole()
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
        if part.deviation().is_some() {
            let reason = "its center is a share of all keys, and its Gaussian weighs every key that is seen; use it alone";
            return Err(Error::combination(part.name(), joint, reason));
        }
        part.check()
    })
}
