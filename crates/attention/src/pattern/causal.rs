use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Causal: a query sees the keys up to its own place.
/// For language models. Half the cost of full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Causal {
    /// A query sees the keys up to so many places after its own, before it if negative; default 0.
    pub offset: isize,
}

impl PatternSettings for Causal {
    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Causal { offset: self.offset }))
    }

    fn is_causal(&self) -> bool {
        self.offset <= 0
    }

    fn is_whole(&self) -> bool {
        self.offset == 0
    }
}
