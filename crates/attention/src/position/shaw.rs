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
/// Shaw et al. 2018, <https://arxiv.org/abs/1803.02155>. `(2k + 1) · head_dim` parameters per table; far distances look alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shaw {
    /// Distances told apart on each side, the paper's k; default 16.
    pub reach: usize,
    /// Whether keys have vectors; default true.
    pub keys: bool,
    /// Whether values have vectors; default true.
    pub values: bool,
    /// Whether queries have vectors, too, with which distances ask keys, `a_Q·k`, in a term as large as the scores; default
    /// false, as in the paper.
    pub queries: bool,
    /// Whether every head has its own tables; default true.
    pub per_head: bool,
}

impl Default for Shaw {
    fn default() -> Self {
        Self { reach: 16, keys: true, values: true, queries: false, per_head: true }
    }
}

impl PositionSettings for Shaw {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.keys || self.values || self.queries {
            Ok(())
        } else {
            let reason = "and position.values = false leave nothing to learn; use position = \"none\", or vectors on position.queries";
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

    fn asks_keys(&self) -> bool {
        self.queries
    }

    fn with_arrays(&self, handed: &Handed) -> Result<Option<Position>, Error> {
        if self.queries || handed.has("queries") {
            let reason = "distances ask keys between the projections of a layer, which arrays do not have; use a model";
            return Err(Error::setting("position.queries", "vectors", reason));
        }
        let (keys, values) = (handed.has("keys"), handed.has("values"));
        if !keys && !values {
            let reason = "hand in keys, values or both, [heads or 1, 2·reach + 1, head_dim]";
            return Err(Error::setting("position.keys", "none", reason));
        }
        let table = if keys { "keys" } else { "values" };
        let reach = handed.size(table, 1, "reach").map_or(self.reach, |count| count / 2);
        let per_head = handed.size(table, 0, "per_head").map_or(self.per_head, |heads| heads != 1);
        Ok(Some(Self { reach, keys, values, queries: false, per_head }.into()))
    }

    fn only_of_layers(&self) -> &'static [&'static str] {
        &["queries"]
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
        nn::{Initializer, Linear},
        tensor::{Device, Tensor},
    };

    use super::Shaw;
    use crate::{
        call::{Call, flat},
        heads::Heads,
        key_terms::add_key_terms,
        position::PositionLayer,
        slot::Terms,
    };

    /// Tables at work.
    #[derive(Module, Debug)]
    pub struct ShawLayer {
        /// `[heads or 1, 2·reach + 1, head_dim]`.
        pub keys: Option<Param<Tensor<3>>>,
        /// As wide as a value.
        pub values: Option<Param<Tensor<3>>>,
        /// As wide as a key.
        pub queries: Option<Param<Tensor<3>>>,
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
                queries: settings.queries.then(table),
                reach: settings.reach,
            }
        }
    }

    impl PositionLayer for ShawLayer {
        fn array(&self, name: &str, _call: &Terms) -> Option<Tensor<1>> {
            let table = if name == "keys" { &self.keys } else { &self.values };
            Some(flat(table.as_ref()?.val()))
        }

        fn add_key_terms(&self, call: &mut Call, k: &Tensor<4>, _query: Option<&Linear>) {
            if let Some(queries) = &self.queries {
                add_key_terms(call, k, queries.val(), [self.reach; 2]);
            }
        }
    }
}

#[cfg(all(test, feature = "burn"))]
mod tests {
    use burn::{
        module::Param,
        tensor::{Device, Distribution, Tensor},
    };

    use crate::{AttentionSettings, Input, position::PositionModule};

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().try_to_vec::<f32>().expect("f32").into_iter().map(f64::from).collect()
    }

    /// `q·k + q·a_K + a_Q·k`, pair by pair in f64, with tables of its own for every head or one for all.
    #[test]
    fn weights_are_those_of_the_formula() {
        let (device, spread) = (Device::flex(), Distribution::Normal(0.0, 1.0));
        let (length, reach, dim) = (9usize, 2usize, 4usize);
        for (keys, per_head) in [(true, true), (false, true), (true, false), (false, false)] {
            let text = format!(
                "width = 8\nheads = 2\nkv_heads = 1\npattern = 'full'\nposition = {{ kind = 'shaw', \
                 reach = {reach}, keys = {keys}, values = false, queries = true, per_head = {per_head} }}"
            );
            let mut layer = AttentionSettings::from_toml(&text).unwrap().build(&device).unwrap();
            let PositionModule::Shaw(own) = &mut layer.position[0] else { unreachable!() };
            let tables = if per_head { 2 } else { 1 };
            let drawn = || Param::from_tensor(Tensor::random([tables, 5, dim], spread, &device));
            own.keys = keys.then(drawn);
            own.queries = Some(drawn());
            let on_keys = own.keys.as_ref().map_or(vec![0.0; tables * 20], |t| numbers(t.val()));
            let on_queries = own.queries.as_ref().map(|t| numbers(t.val())).unwrap();
            let x = Tensor::<3>::random([1, length, 8], spread, &device);
            let q = numbers(layer.query.as_ref().unwrap().forward(x.clone()));
            let k = numbers(layer.key.as_ref().unwrap().forward(x.clone()));
            let found = numbers(layer.weights(Input::new(x)).unwrap());
            for (head, i) in (0..2).flat_map(|head| (0..length).map(move |i| (head, i))) {
                let q = &q[i * 8 + head * dim..][..dim];
                let score = |j: usize| -> f64 {
                    let k = &k[j * dim..][..dim];
                    let clipped = (j as isize - i as isize).clamp(-2, 2) + 2;
                    let at = ((head % tables) * 5 + clipped as usize) * dim;
                    let sum =
                        |c: usize| q[c] * k[c] + q[c] * on_keys[at + c] + on_queries[at + c] * k[c];
                    (0..dim).map(sum).sum::<f64>() / 2.0
                };
                let scores: Vec<f64> = (0..length).map(score).collect();
                let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                for (j, score) in scores.iter().enumerate() {
                    let off = (found[(head * length + i) * length + j] - score.exp() / sum).abs();
                    assert!(off < 1e-5, "{text} {head} {i} {j}: {off}");
                }
            }
        }
    }
}
