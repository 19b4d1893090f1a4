//! Learned: one vector per place, added to embeddings, `x + table[place]`.
//! Gehring et al. 2017, <https://arxiv.org/abs/1705.03122>. `length · width` parameters; nothing beyond `length`.

use burn::{
    module::{Module, Param},
    nn::Initializer,
    tensor::{Device, Tensor},
};
use serde::{Deserialize, Serialize};

use super::{Encode, Encoding, PositionLayer};
use crate::{Error, heads::Heads};

/// One learned vector per place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Learned {
    /// Number of places; default 1024. Longer inputs are refused.
    pub length: usize,
}

impl Default for Learned {
    fn default() -> Self {
        Self { length: 1024 }
    }
}

/// Learned vectors at work.
#[derive(Module, Debug)]
pub struct LearnedLayer {
    /// `[length, width]`.
    pub table: Param<Tensor<2>>,
}

impl Encoding for Learned {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.length == 0 {
            return Err(Error::setting("position.length", 0, "a table has at least one place"));
        }
        Ok(())
    }

    fn build(&self, heads: &Heads, device: &Device) -> PositionLayer {
        let table =
            Initializer::Normal { mean: 0.0, std: 0.02 }.init([self.length, heads.width], device);
        PositionLayer::Learned(LearnedLayer { table })
    }

    fn is_relative(&self) -> bool {
        false
    }

    fn embeds(&self) -> bool {
        true
    }

    fn limit(&self) -> Option<usize> {
        Some(self.length)
    }
}

impl Encode for LearnedLayer {
    fn embed(&self, x: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
        let (length, places) = (x.dims()[1], self.table.dims()[0]);
        if first + length > places {
            let reason =
                format!("the input reaches place {}, longer than the table", first + length - 1);
            return Err(Error::setting("position.length", places, reason));
        }
        Ok(x + self.table.val().narrow(0, first, length).unsqueeze::<3>())
    }
}
