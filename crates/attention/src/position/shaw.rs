use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::{
    Error as KernelError,
    attention::{Bias, Relative},
};
use whatwhere_settings::Refuses;

use super::{Position, PositionSettings};
use crate::{
    Error,
    heads::Heads,
    slot::{Handed, Slot, Terms},
};

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

    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        if self.keys {
            let names = "[heads or 1, 2·reach + 1, head_dim]";
            let vectors = self.vectors(call, call.shape.head_dim, ("keys", names))?;
            let scale = call.score.scale();
            call.biases.push(Bias::Relative { vectors, query_bias: None, scale });
        }
        if self.values {
            let names = "[heads or 1, 2·reach + 1, value_dim]";
            let vectors = self.vectors(call, call.shape.value_dim, ("values", names))?;
            call.relative_values = Some(vectors);
        }
        Ok(())
    }

    fn with_arrays(&self, handed: &Handed) -> Result<Option<Position>, Error> {
        let (keys, values) = (handed.has("keys"), handed.has("values"));
        if !keys && !values {
            let reason = "hand in keys, values or both, [heads or 1, 2·reach + 1, head_dim]";
            return Err(Error::setting("position.keys", "none", reason));
        }
        let table = if keys { "keys" } else { "values" };
        let reach = handed.size(table, 1, "reach").map_or(self.reach, |count| count / 2);
        let per_head = handed.size(table, 0, "per_head").map_or(self.per_head, |heads| heads != 1);
        Ok(Some(Self { reach, keys, values, per_head }.into()))
    }

    fn entries(&self) -> usize {
        self.reach
    }

    fn reach(&self) -> Option<usize> {
        Some(self.reach)
    }
}

impl Shaw {
    fn vectors(
        &self,
        call: &Terms,
        width: usize,
        (array, names): (&'static str, &'static str),
    ) -> Result<Relative<Slot>, Error> {
        let Self { reach, per_head, .. } = *self;
        let count = reach.checked_mul(2).and_then(|two| two.checked_add(1));
        let count = count.ok_or(KernelError::TooLarge)?;
        let tables = if per_head { call.shape.heads } else { 1 };
        let table = Slot::new(array, &[tables, count, width], names);
        Ok(Relative { table, per_head, left: reach, right: reach })
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
    use crate::{call::flat, heads::Heads, position::PositionLayer, slot::Terms};

    /// Tables at work.
    #[derive(Module, Debug)]
    pub struct ShawLayer {
        /// `[heads or 1, 2·reach + 1, head_dim]`.
        pub keys: Option<Param<Tensor<3>>>,
        /// As wide as a value.
        pub values: Option<Param<Tensor<3>>>,
    }

    impl ShawLayer {
        pub(crate) fn new(settings: &Shaw, heads: &Heads, device: &Device) -> Self {
            let tables = if settings.per_head { heads.heads } else { 1 };
            let shape = [tables, 2 * settings.reach + 1, heads.head_dim];
            let bound = (6.0 / (shape[1] + shape[2]) as f64).sqrt();
            let table = || Initializer::Uniform { min: -bound, max: bound }.init(shape, device);
            Self { keys: settings.keys.then(table), values: settings.values.then(table) }
        }
    }

    impl PositionLayer for ShawLayer {
        fn array(&self, name: &str, _call: &Terms) -> Option<Tensor<1>> {
            let table = if name == "keys" { &self.keys } else { &self.values };
            Some(flat(table.as_ref()?.val()))
        }
    }
}
