use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Fixed: the own block of `stride` keys, and the last `summary` keys of every block before it, causal.
/// Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For text; O(length · √length) pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fixed {
    /// Length of a block; default 128.
    pub stride: usize,
    /// Keys of a block that later blocks see; default 8.
    pub summary: usize,
}

impl Default for Fixed {
    fn default() -> Self {
        Self { stride: 128, summary: 8 }
    }
}

impl PatternSettings for Fixed {
    fn check(&self) -> Result<(), Error> {
        kernels::Fixed::new(self.stride, self.summary)?;
        Ok(())
    }

    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Fixed::new(self.stride, self.summary)?))
    }

    fn is_causal(&self) -> bool {
        true
    }
}
