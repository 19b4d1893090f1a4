//! Looking inside: the weights of a layer, and its call laid out as plain slices for the kernels' reference and inspection.
//!
//! [`CallView::call`] and [`CallView::inputs`] are what the kernels take, so weights can be recomputed row by row
//! ([`whatwhere_kernels::attention::Inspection`]), and scores compared with and without a term ([`whatwhere_kernels::attention::reference`]).
//! A view holds q, k and v, and nothing as large as the scores.

use burn::{nn::Linear, tensor::Tensor};
use whatwhere_kernels::attention as kernels;
use whatwhere_settings::Refuses;

use crate::{
    Attention, Error, Input, Path, QkNormLayer,
    call::Call,
    fused::Layout,
    layer::{attend, memory, sizes},
    projected::Project as _,
    score::ScoreLayer,
};

/// A call and its tensors as slices.
pub struct CallView {
    layout: Layout,
    learned: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl CallView {
    /// Lays out a call on q, k, v of `[batch, heads, length, head_dim]`.
    pub fn new(call: &Call, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Self {
        let (layout, learned) = Layout::new(call, &q.device());
        Self { layout, learned: slice(learned), q: slice(q), k: slice(k), v: slice(v) }
    }

    /// The call as the kernels have it.
    pub fn call(&self) -> kernels::Attention<'_> {
        self.layout.call(&self.learned)
    }

    /// Its tensors.
    pub fn inputs(&self) -> kernels::Inputs<'_> {
        kernels::Inputs { q: &self.q, k: &self.k, v: &self.v }
    }
}

impl Attention {
    /// The call that [`Self::forward`] would compute, dropout aside; linear mixing has no scores to look at.
    pub fn look(&self, mut input: Input) -> Result<CallView, Error> {
        self.check_scores(&input)?;
        input.seed = None;
        let (memory, first_key) = memory(&mut input);
        let (k, v) = (self.keys(memory.clone(), input.path), self.values(memory, input.path));
        let q = self.queries(input.x.clone(), input.path);
        let mut call = self.call(&input, input.first, first_key, sizes(&q, &k))?;
        self.add_key_terms(&mut call, &input, &k);
        Ok(CallView::new(&call, q, k, v))
    }

    /// What a part of `x` contributes to its queries and keys, `[batch, heads, length, head_dim]` and the same of key heads:
    /// projections without their bias, norms with the statistics of the whole. So parts of `x` add up to those of `x`, but
    /// for the bias.
    pub fn shares(&self, part: Tensor<3>, whole: Tensor<3>) -> (Tensor<4>, Tensor<4>) {
        let project = |linear: &Option<Linear>, heads: usize, norm: &Option<QkNormLayer>| {
            let share = match linear {
                None => part.clone(),
                Some(linear) => part.clone().matmul(linear.weight.val().unsqueeze::<3>()),
            };
            let share = match norm {
                None => share,
                Some(norm) => norm.part(share, linear.project(whole.clone(), Path::Composed)),
            };
            self.split(share, heads)
        };
        let q = project(&self.query, self.sizes.heads, &self.query_norm);
        let k = project(&self.key, self.sizes.kv_heads, &self.key_norm);
        (self.score.queries(q), k)
    }

    /// The weights by which values are mixed, `[batch, heads, queries, keys]`, as large as the scores; dropout aside.
    /// For looking inside; linear mixing has none.
    pub fn weights(&self, mut input: Input) -> Result<Tensor<4>, Error> {
        self.check_scores(&input)?;
        input.seed = None;
        let (memory, first_key) = memory(&mut input);
        let (q, k) = (self.queries(input.x.clone(), input.path), self.keys(memory, input.path));
        let mut call = self.call(&input, input.first, first_key, sizes(&q, &k))?;
        self.add_key_terms(&mut call, &input, &k);
        // What is mixed of unit vectors, one for each position, is the weights.
        call.relative_values = None;
        let [batch, kv_heads, keys, _] = k.dims();
        call.shape.value_dim = keys;
        let positions = Tensor::<2>::eye(keys, &k.device()).unsqueeze::<4>();
        let positions = positions.expand([batch, kv_heads, keys, keys]);
        attend(&call, input.path, q, k, positions)
    }

    fn check_scores(&self, input: &Input) -> Result<(), Error> {
        input.check(self.settings(), self.sizes())?;
        if self.settings().mixing.has_scores() {
            return Ok(());
        }
        let reason = "without scores there are none to look at";
        Err(Error::combination(self.settings().mixing.name(), "weights", reason))
    }
}

fn slice<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().expect("f32 as everywhere")
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::{AttentionSettings, Path, Position};

    /// Sums of a dozen products of numbers around 1, in another order.
    const TOLERANCE: f32 = 1e-4;

    fn close(found: &[f32], expected: &[f32], what: &str) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < TOLERANCE, "{what}: {found}, expected {expected}");
        }
    }

    #[test]
    fn a_look_computes_what_the_layer_computes() {
        let device = Device::flex();
        for position in Position::all() {
            let settings = AttentionSettings {
                width: 16,
                heads: 4,
                kv_heads: Some(2),
                position: vec![position.clone()],
                ..Default::default()
            };
            let layer = settings.build(&device).unwrap();
            let x = Tensor::random([2, 7, 16], Distribution::Normal(0.0, 1.0), &device);
            let look = layer.look(Input::new(x.clone())).unwrap();
            let made = look.call().forward(&look.inputs()).unwrap();
            let out = Tensor::<4>::from_data(
                burn::tensor::TensorData::new(made.out, [2, 4, 7, 4]),
                &device,
            );
            let out =
                layer.output.as_ref().unwrap().forward(out.swap_dims(1, 2).reshape([2, 7, 16]));
            let expected = slice(layer.forward(Input::new(x)).unwrap());
            close(&slice(out), &expected, position.name());
        }
    }

    #[test]
    fn shares_of_parts_add_up_to_queries_and_keys() {
        let device = Device::flex();
        for (by, kind) in
            ["head", "each_head", "all"].into_iter().flat_map(|by| [(by, "rms"), (by, "layer")])
        {
            let text = format!(
                "width = 16\nheads = 4\nkv_heads = 2\nscore = 'general'\nqk_norm = '{by}'\nqk_norm_kind = '{kind}'"
            );
            let layer = AttentionSettings::from_toml(&text).unwrap().build(&device).unwrap();
            let part = || Tensor::random([1, 5, 16], Distribution::Normal(0.0, 1.0), &device);
            let (a, b) = (part(), part());
            let whole = a.clone() + b.clone();
            let (qa, ka) = layer.shares(a, whole.clone());
            let (qb, kb) = layer.shares(b, whole.clone());
            close(&slice(qa + qb), &slice(layer.queries(whole.clone(), Path::Auto)), "queries");
            close(&slice(ka + kb), &slice(layer.keys(whole, Path::Auto)), "keys");
        }
    }
}
