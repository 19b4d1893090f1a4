//! Full: every query sees every key, all `queries · keys` pairs.
//! Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>. For encoders and cross-attention.

use super::{Coverage, Pair, Pattern, Tile};

/// Every key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Full;

impl Pattern for Full {
    fn sees(&self, _pair: Pair) -> bool {
        true
    }
    fn coverage(&self, _tile: &Tile) -> Coverage {
        Coverage::Full
    }
    fn hide(&self, _first: Pair, _scores: &mut [f32]) {}
}

/// As it is chosen.
#[cfg(feature = "settings")]
pub(super) mod settings {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::{
        Error,
        attention::pattern::role::{PatternContext, PatternSettings},
    };

    /// Full: every query sees every key.
    /// For encoders and cross-attention. Cost queries × keys.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Full {}

    impl PatternSettings for Full {
        fn build(&self, _context: &PatternContext) -> Result<Box<dyn super::Pattern>, Error> {
            Ok(Box::new(super::Full))
        }

        fn is_causal(&self) -> bool {
            false
        }

        fn is_whole(&self) -> bool {
            true
        }
    }
}
