use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Bias, Relative};
use whatwhere_settings::Refuses;

use super::PositionSettings;
use crate::{
    Error,
    heads::Heads,
    slot::{Slot, Terms, reach},
};

/// Transformer-XL: `(q + u)·k + (q + v)·(W R_distance)`, content and distance each with a global bias.
/// Dai et al. 2019, <https://arxiv.org/abs/1901.02860>. `width²+ 2·width` parameters; made for segments with a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransformerXl {
    /// Distances beyond this many look alike; 0, the default, tells all apart.
    pub clamp: usize,
}

impl PositionSettings for TransformerXl {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        if heads.width.is_multiple_of(2) {
            Ok(())
        } else {
            let reason = "transformer_xl needs an even width, a sine and a cosine for each wave";
            Err(Error::setting("width", heads.width, reason))
        }
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }

    /// `table` holds the projected distances, of which there are as many as the call has.
    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        let (heads, head_dim) = (call.shape.heads, call.shape.head_dim);
        let (left, right) = self.reach(call)?;
        let sizes = [heads, left + 1 + right, head_dim];
        let table = Slot::new("table", &sizes, "[heads, distances, head_dim]");
        let vectors = Relative { table, per_head: true, left, right };
        let by_head = |array| Slot::new(array, &[heads, head_dim], "[heads, head_dim]");
        let (query_bias, scale) = (Some(by_head("distance")), call.score.scale());
        call.biases.push(Bias::Relative { vectors, query_bias, scale });
        call.query_bias = Some(by_head("content"));
        Ok(())
    }
}

impl TransformerXl {
    /// Distances to either side that are told apart.
    fn reach(&self, call: &Terms) -> Result<(usize, usize), Error> {
        let limit = if self.clamp == 0 { usize::MAX } else { self.clamp };
        let (left, right) = reach(call)?;
        Ok((left.min(limit), right.min(limit)))
    }
}

#[cfg(feature = "burn")]
pub use layer::TransformerXlLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };

    use super::TransformerXl;
    use crate::{
        call::flat,
        heads::Heads,
        position::{PositionLayer, Sinusoidal, SinusoidalLayout},
        slot::Terms,
    };

    /// Projection and biases at work.
    #[derive(Module, Debug)]
    pub struct TransformerXlLayer {
        /// From sinusoids to keys, `[width, heads · head_dim]`.
        pub projection: Param<Tensor<2>>,
        /// The global content bias u, `[heads, head_dim]`.
        pub content: Param<Tensor<2>>,
        /// The global distance bias v, `[heads, head_dim]`.
        pub distance: Param<Tensor<2>>,
        #[module(skip)]
        settings: TransformerXl,
    }

    impl TransformerXlLayer {
        pub(crate) fn new(settings: &TransformerXl, heads: &Heads, device: &Device) -> Self {
            let normal = Initializer::Normal { mean: 0.0, std: 0.02 };
            Self {
                projection: normal.init([heads.width, heads.heads * heads.head_dim], device),
                content: normal.init([heads.heads, heads.head_dim], device),
                distance: normal.init([heads.heads, heads.head_dim], device),
                settings: *settings,
            }
        }
    }

    impl PositionLayer for TransformerXlLayer {
        fn array(&self, name: &str, call: &Terms) -> Option<Tensor<1>> {
            match name {
                "content" => Some(flat(self.content.val())),
                "distance" => Some(flat(self.distance.val())),
                _ => self.table(call),
            }
        }
    }

    impl TransformerXlLayer {
        fn table(&self, call: &Terms) -> Option<Tensor<1>> {
            let (left, right) = self.settings.reach(call).ok()?;
            let ([heads, head_dim], width) = (self.content.dims(), self.projection.dims()[0]);
            let waves = Sinusoidal { layout: SinusoidalLayout::Concatenated, ..Default::default() };
            // The paper's R is indexed by query − key, which falls as the distance key − query rises.
            let count = left + 1 + right;
            let table = waves.table(-(right as isize), count, width, &self.projection.device());
            let table = table
                .flip([0])
                .matmul(self.projection.val())
                .reshape([count, heads, head_dim])
                .swap_dims(0, 1); // [heads, distances, head_dim]
            Some(flat(table))
        }
    }
}
