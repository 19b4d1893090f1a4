use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::Refuses;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Random: every block of queries sees `count` blocks of keys, drawn once from the seed.
/// BigBird, Zaheer et al. 2020, <https://arxiv.org/abs/2007.14062>. Joined by `or` to a window and global places.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Random {
    /// Places in a block; default 64.
    pub block: usize,
    /// Blocks drawn for each block of queries, or all if there are fewer; default 3.
    pub count: usize,
    /// Places the draws are made among, whatever the length of a call, so that decoding sees what training saw;
    /// default 4096. Places beyond see nothing of it.
    pub length: usize,
    /// Selects the draws; default 0.
    pub seed: u64,
}

impl Default for Random {
    fn default() -> Self {
        Self { block: 64, count: 3, length: 4096, seed: 0 }
    }
}

impl PatternSettings for Random {
    fn check(&self) -> Result<(), Error> {
        if self.block == 0 {
            return Err(Error::setting("pattern.block", 0, "a block has at least one place"));
        }
        if self.count == 0 {
            return Err(Error::setting("pattern.count", 0, "draw at least one block"));
        }
        Ok(())
    }

    fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        let blocks = self.length.div_ceil(self.block.max(1));
        Ok(Box::new(kernels::Random::new(kernels::Draw {
            heads: context.heads.heads,
            queries: self.length,
            keys: self.length,
            block: self.block,
            count: self.count.min(blocks),
            seed: self.seed,
        })?))
    }

    fn is_causal(&self) -> bool {
        false
    }

    fn differs_by_head(&self) -> bool {
        true
    }
}
