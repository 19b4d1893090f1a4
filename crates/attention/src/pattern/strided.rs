use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Strided: the last `stride` keys and every `stride`-th before them, causal.
/// Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For data with a period, such as images; O(length · √length) pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Strided {
    /// Length of the window and of the step; default 128.
    pub stride: usize,
}

impl Default for Strided {
    fn default() -> Self {
        Self { stride: 128 }
    }
}

impl PatternSettings for Strided {
    fn check(&self) -> Result<(), Error> {
        kernels::Strided::new(self.stride)?;
        Ok(())
    }

    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Strided::new(self.stride)?))
    }

    fn is_causal(&self) -> bool {
        true
    }
}
