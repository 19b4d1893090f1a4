use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::{Numbers, Refuses};

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Global: the first `places`, or those listed, see everything and are seen by all.
/// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Joined by `or` to a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Global {
    /// How many, or a list of the places themselves; default 1.
    pub places: Numbers,
}

impl Default for Global {
    fn default() -> Self {
        Self { places: 1.into() }
    }
}

impl PatternSettings for Global {
    fn check(&self) -> Result<(), Error> {
        if self.places == Numbers::One(0) {
            return Err(Error::setting("pattern.places", 0, "at least one place is global"));
        }
        Ok(())
    }

    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(match &self.places {
            Numbers::One(count) => kernels::Global::first(*count),
            Numbers::Many(places) => kernels::Global::at(places.clone()),
        }))
    }

    fn is_causal(&self) -> bool {
        false
    }
}
