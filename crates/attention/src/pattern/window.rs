use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::Refuses;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Window: a query sees `left` keys before its place and `right` after it.
/// Beltagy et al. 2020, <https://arxiv.org/abs/2004.05150>; Luong's local-m has left = right = 10
/// (`predicted` is his local-p). Cost length × window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Window {
    /// Keys before the own place; default 128.
    pub left: usize,
    /// Keys after it; default 0, which is causal.
    pub right: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { left: 128, right: 0 }
    }
}

impl PatternSettings for Window {
    fn check(&self) -> Result<(), Error> {
        if self.left == 0 && self.right == 0 {
            let reason = "a window of nothing but the own place mixes nothing; use 1 or more";
            return Err(Error::setting("pattern.left", 0, reason));
        }
        Ok(())
    }

    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Window { left: self.left, right: self.right }))
    }

    fn reach(&self) -> Option<usize> {
        Some(self.left)
    }

    fn is_causal(&self) -> bool {
        self.right == 0
    }
}
