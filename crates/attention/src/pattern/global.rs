//! Global: the first `places` see everything and are seen by all.
//! Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Joined by `or` to a window.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::Error;

/// the first `places` see everything and are seen by all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Global {
    /// How many; default 1.
    pub places: usize,
}

impl Default for Global {
    fn default() -> Self {
        Self { places: 1 }
    }
}

impl Seeing for Global {
    fn check(&self) -> Result<(), Error> {
        if self.places == 0 {
            return Err(Error::setting("pattern.places", 0, "at least one place is global"));
        }
        Ok(())
    }

    fn build(&self, _scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Global::first(self.places)))
    }

    fn is_causal(&self) -> bool {
        false
    }
}
