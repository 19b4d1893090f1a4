//! T5: a learned scalar per head and bucket of distances, exact near, logarithmic far, `score += table[head, bucket]`.
//! Raffel et al. 2020, <https://arxiv.org/abs/1910.10683>. `heads · buckets` parameters; distances beyond the last bucket look alike.

use burn::{
    module::{Module, Param},
    nn::Initializer,
    tensor::{Device, Tensor},
};
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::Buckets;

use super::{Encode, Encoding, PositionLayer};
use crate::{
    Error,
    call::{Bias, Call},
    heads::{Heads, Sizes},
};

/// A learned value per bucket of distances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct T5 {
    /// Buckets per head; default 32.
    pub buckets: usize,
    /// Distances from here on share the last bucket; default 128.
    pub max_distance: usize,
    /// Whether keys after the query have buckets of their own; default false, for causal layers.
    pub bidirectional: bool,
}

impl Default for T5 {
    fn default() -> Self {
        Self { buckets: 32, max_distance: 128, bidirectional: false }
    }
}

impl T5 {
    fn buckets(&self) -> Buckets {
        let Self { buckets: count, max_distance, bidirectional } = *self;
        Buckets { count, max_distance, bidirectional }
    }
}

/// Buckets at work.
#[derive(Module, Debug)]
pub struct T5Layer {
    /// `[heads, buckets]`.
    pub table: Param<Tensor<2>>,
    #[module(skip)]
    settings: T5,
}

impl Encoding for T5 {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        let least = if self.bidirectional { 4 } else { 2 };
        if self.buckets < least || self.bidirectional && !self.buckets.is_multiple_of(2) {
            let reason = format!("expected {least} or more, and an even number if bidirectional");
            return Err(Error::setting("position.buckets", self.buckets, reason));
        }
        let exact = self.buckets / least;
        if self.max_distance <= exact {
            let reason = format!("expected more than the {exact} exact buckets");
            return Err(Error::setting("position.max_distance", self.max_distance, reason));
        }
        Ok(())
    }

    fn build(&self, heads: &Heads, device: &Device) -> PositionLayer {
        let std = (heads.width as f64).powf(-0.5);
        let table =
            Initializer::Normal { mean: 0.0, std }.init([heads.heads, self.buckets], device);
        PositionLayer::T5(T5Layer { table, settings: *self })
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }
}

impl Encode for T5Layer {
    fn shape(&self, call: &mut Call, _sizes: &Sizes) -> Result<(), Error> {
        call.biases.push(Bias::Buckets(self.table.val(), self.settings.buckets()));
        Ok(())
    }
}
