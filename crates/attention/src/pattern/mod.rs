//! Patterns: which keys a query may see.
//!
//! Settings here; who sees whom is defined, with its cost per tile, in [`whatwhere_kernels::pattern`].

mod and;
mod causal;
mod dilated;
mod document;
mod fixed;
mod full;
mod global;
mod or;
mod prefix;
mod random;
mod strided;
mod window;

use whatwhere_kernels::pattern as kernels;

use crate::{Error, axis::axis, heads::Heads};

pub use and::And;
pub use causal::Causal;
pub use dilated::Dilated;
pub use document::Document;
pub use fixed::Fixed;
pub use full::Full;
pub use global::Global;
pub use or::Or;
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

    /// How many keys before its own place a query can see at the most; nothing if there is no such bound.
    pub fn reach(&self) -> Option<usize> {
        self.role().reach()
    }

    /// Whether no query sees a key after its own place.
    pub fn is_causal(&self) -> bool {
        self.role().is_causal()
    }
}
