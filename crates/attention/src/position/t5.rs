use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::PositionSettings;
use crate::{Error, heads::Heads};

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
        tensor::{Device, Int, Tensor, TensorData},
    };
    use whatwhere_kernels::attention::Buckets;

    use super::T5;
    use crate::{
        Error,
        call::{Bias, Call, flat},
        heads::Heads,
        position::PositionLayer,
    };

    /// Buckets at work.
    #[derive(Module, Debug)]
    pub struct T5Layer {
        /// `[heads, buckets]`.
        pub table: Param<Tensor<2>>,
        #[module(skip)]
        settings: T5,
    }

    impl T5Layer {
        pub(crate) fn new(settings: &T5, heads: &Heads, device: &Device) -> Self {
            let normal = Initializer::Normal { mean: 0.0, std: (heads.width as f64).powf(-0.5) };
            let table = normal.init([heads.heads, settings.buckets], device);
            Self { table, settings: *settings }
        }
    }

    impl PositionLayer for T5Layer {
        fn add_terms(&self, call: &mut Call) -> Result<(), Error> {
            let (buckets, (left, right)) = (self.settings.buckets(), call.reach());
            let entries: Vec<i64> =
                (-(left as isize)..=right as isize).map(|d| buckets.index(d) as i64).collect();
            let entries = TensorData::new(entries, [left + 1 + right]);
            let entries = Tensor::<1, Int>::from_data(entries, &self.table.device());
            let table = self.table.val().select(1, entries); // [heads, distances]
            call.biases.push(Bias::ByDistance { table: flat(table), left, right });
            Ok(())
        }
    }

    impl T5 {
        fn buckets(&self) -> Buckets {
            let Self { buckets: count, max_distance, bidirectional } = *self;
            Buckets { count, max_distance, bidirectional }
        }
    }
}
