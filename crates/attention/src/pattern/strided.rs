//! Strided: the last `stride` keys and every `stride`-th before them, causal.
//! Child et al. 2019, <https://arxiv.org/abs/1904.10509>. For data with a period, such as images; O(length · √length) pairs.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::Error;

/// the last `stride` keys and every `stride`-th before them, causal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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

impl Seeing for Strided {
    fn check(&self) -> Result<(), Error> {
        kernels::Strided::new(self.stride)?;
        Ok(())
    }

    fn build(&self, _scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Strided::new(self.stride)?))
    }

    fn is_causal(&self) -> bool {
        true
    }
}
