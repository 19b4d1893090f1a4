use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Bias, Buckets};
use whatwhere_settings::Refuses;

use super::{Position, PositionSettings};
use crate::{
    Error,
    heads::Heads,
    slot::{Handed, Slot, Terms, reach},
};

/// T5: a learned scalar per head and bucket of distances, exact near, logarithmic far, `score += table[head, bucket]`.
/// Raffel et al. 2020, <https://arxiv.org/abs/1910.10683>. `heads · buckets` parameters; distances beyond the last bucket look alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl PositionSettings for T5 {
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

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }

    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        let Self { buckets: count, max_distance, bidirectional } = *self;
        let buckets = Buckets { count, max_distance, bidirectional };
        let (left, right) = reach(call)?;
        let table = Slot {
            columns: Some(buckets.columns(left, right)),
            ..Slot::new("table", &[call.shape.heads, count], "[heads, buckets]")
        };
        call.biases.push(Bias::ByDistance { table, left, right });
        Ok(())
    }

    fn with_arrays(&self, handed: &Handed) -> Result<Option<Position>, Error> {
        let buckets = handed.size("table", 1, "buckets").unwrap_or(self.buckets);
        Ok(Some(Self { buckets, ..*self }.into()))
    }

    fn entries(&self) -> usize {
        self.buckets
    }

    fn bias_term(&self) -> Option<(&'static str, &'static str)> {
        Some(("bucket of the distance", "T5's bias, a number for each head and bucket"))
    }
}

#[cfg(feature = "burn")]
pub use layer::T5Layer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };

    use super::T5;
    use crate::{call::flat, heads::Heads, position::PositionLayer, slot::Terms};

    /// Buckets at work.
    #[derive(Module, Debug)]
    pub struct T5Layer {
        /// `[heads, buckets]`.
        pub table: Param<Tensor<2>>,
    }

    impl T5Layer {
        pub(crate) fn new(settings: &T5, heads: &Heads, device: &Device) -> Self {
            let normal = Initializer::Normal { mean: 0.0, std: (heads.width as f64).powf(-0.5) };
            Self { table: normal.init([heads.heads, settings.buckets], device) }
        }
    }

    impl PositionLayer for T5Layer {
        fn array(&self, _name: &str, _call: &Terms) -> Option<Tensor<1>> {
            Some(flat(self.table.val()))
        }
    }
}
