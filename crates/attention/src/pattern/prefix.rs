use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::Numbers;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Prefix: the first `length` places are seen by all, the rest is causal.
/// Raffel et al. 2020 (T5), <https://arxiv.org/abs/1910.10683>. For prefix language models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Prefix {
    /// Length of the prefix, or a list with that of each sequence; default 64.
    pub length: Numbers,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { length: 64.into() }
    }
}

impl PatternSettings for Prefix {
    fn build(&self, _context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        let lengths = match &self.length {
            Numbers::One(length) => vec![*length],
            Numbers::Many(lengths) => lengths.clone(),
        };
        Ok(Box::new(kernels::Prefix::new(lengths)?))
    }

    fn is_causal(&self) -> bool {
        false
    }
}
