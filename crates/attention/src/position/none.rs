//! No position: a causal pattern alone still tells order, since every place sees another number of keys (NoPE).
//! Kazemnejad et al. 2023, <https://arxiv.org/abs/2305.19466>. No parameters; a bidirectional layer is then blind to order.

use burn::{module::Module, tensor::Device};
use serde::{Deserialize, Serialize};

use super::{Encode, Encoding, PositionLayer};
use crate::{Error, heads::Heads};

/// No encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NoPosition {}

/// No encoding at work.
#[derive(Module, Debug)]
pub struct NoPositionLayer {}

impl Encoding for NoPosition {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        Ok(())
    }

    fn build(&self, _heads: &Heads, _device: &Device) -> PositionLayer {
        PositionLayer::NoPosition(NoPositionLayer {})
    }

    fn is_relative(&self) -> bool {
        true
    }
}

impl Encode for NoPositionLayer {}
