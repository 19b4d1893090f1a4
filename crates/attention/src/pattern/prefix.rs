//! Prefix: the first `length` places are seen by all, the rest is causal.
//! Raffel et al. 2020 (T5), <https://arxiv.org/abs/1910.10683>. For prefix language models.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::Error;

/// the first `length` places are seen by all, the rest is causal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prefix {
    /// Length of the prefix; default 64.
    pub length: usize,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { length: 64 }
    }
}

impl Seeing for Prefix {
    fn build(&self, _scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Prefix::new(vec![self.length])?))
    }

    fn is_causal(&self) -> bool {
        false
    }
}
