use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::PositionSettings;
use crate::{Error, heads::Heads};

/// Shaw: learned vectors by clipped distance join keys and values, `q·(k + a_K)` and `Σ w (v + a_V)`.
/// Shaw et al. 2018, <https://arxiv.org/abs/1803.02155>. `2 (2k + 1) · head_dim` parameters per table; far distances look alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shaw {
    /// Distances told apart on each side, the paper's k; default 16.
    pub reach: usize,
    /// Whether keys have vectors; default true.
    pub keys: bool,
    /// Whether values have vectors; default true.
    pub values: bool,
    /// Whether every head has its own tables; default true.
    pub per_head: bool,
}

impl Default for Shaw {
    fn default() -> Self {
        Self { reach: 16, keys: true, values: true, per_head: true }
    }
}

impl PositionSettings for Shaw {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.keys || self.values {
            Ok(())
        } else {
            let reason =
                "and position.values = false leave nothing to learn; use position = \"none\"";
            Err(Error::setting("position.keys", false, reason))
        }
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }

    fn entries(&self) -> usize {
        self.reach
    }

    fn reach(&self) -> Option<usize> {
        Some(self.reach)
    }
}

#[cfg(feature = "burn")]
pub use layer::ShawLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };

    use super::Shaw;
    use crate::{
        Error,
        call::{Bias, Call, Relative, flat},
        heads::Heads,
        position::PositionLayer,
    };

    /// Tables at work.
    #[derive(Module, Debug)]
    pub struct ShawLayer {
        /// `[heads or 1, 2·reach + 1, head_dim]`.
        pub keys: Option<Param<Tensor<3>>>,
        /// As wide as a value.
        pub values: Option<Param<Tensor<3>>>,
        #[module(skip)]
        reach: usize,
    }

    impl ShawLayer {
        pub(crate) fn new(settings: &Shaw, heads: &Heads, device: &Device) -> Self {
            let tables = if settings.per_head { heads.heads } else { 1 };
            let shape = [tables, 2 * settings.reach + 1, heads.head_dim];
            let bound = (6.0 / (shape[1] + shape[2]) as f64).sqrt();
            let table = || Initializer::Uniform { min: -bound, max: bound }.init(shape, device);
            Self {
                keys: settings.keys.then(table),
                values: settings.values.then(table),
                reach: settings.reach,
            }
        }
    }

    impl PositionLayer for ShawLayer {
        fn add_terms(&self, call: &mut Call) -> Result<(), Error> {
            let relative = |table: &Param<Tensor<3>>| Relative {
                table: flat(table.val()),
                per_head: table.dims()[0] > 1,
                left: self.reach,
                right: self.reach,
            };
            if let Some(keys) = &self.keys {
                let (vectors, scale) = (relative(keys), call.score.scale());
                call.biases.push(Bias::Relative { vectors, query_bias: None, scale });
            }
            if let Some(values) = &self.values {
                call.relative_values = Some(relative(values));
            }
            Ok(())
        }
    }
}
