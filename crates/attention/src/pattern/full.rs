use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Full: every query sees every key.
/// For encoders and cross-attention. Cost queries × keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Full {}

impl PatternSettings for Full {
    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Full))
    }

    fn is_causal(&self) -> bool {
        false
    }

    fn is_whole(&self) -> bool {
        true
    }
}
