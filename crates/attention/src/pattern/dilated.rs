use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::Refuses;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Dilated: a window with gaps, places `query ± step·m`.
/// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>. Reaches `step` times as far as a window of as many keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dilated {
    /// Keys before the own place; default 64.
    pub left: usize,
    /// Keys after it; default 0.
    pub right: usize,
    /// Distance between them; default 2.
    pub step: usize,
}

impl Default for Dilated {
    fn default() -> Self {
        Self { left: 64, right: 0, step: 2 }
    }
}

impl PatternSettings for Dilated {
    fn check(&self) -> Result<(), Error> {
        kernels::Dilated::new(self.left, self.right, self.step)?;
        if self.left == 0 && self.right == 0 {
            let reason = "a window of nothing but the own place mixes nothing; use 1 or more";
            return Err(Error::setting("pattern.left", 0, reason));
        }
        Ok(())
    }

    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Dilated::new(self.left, self.right, self.step)?))
    }

    fn reach(&self) -> Option<usize> {
        self.left.checked_mul(self.step)
    }

    fn is_causal(&self) -> bool {
        self.right == 0
    }
}
