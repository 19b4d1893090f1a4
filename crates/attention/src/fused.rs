//! The bridge: attention as one operation on burn's CPU backend, computed by the kernels, with their own backward.
//!
//! The operation has four parents: q, k, v and one flat tensor of everything else that learns. A [`Recipe`] remembers
//! where each learned thing lies in it, and rebuilds the kernels' call from plain slices in both passes.

use std::{ops::Range, sync::Arc};

use burn::tensor::{DType, Tensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn_flex::{Flex, FlexTensor};
use whatwhere_kernels::{self as kernels, Angles, Inputs, Shape, pattern::Pattern};

use crate::{
    Error,
    call::{Bias, Call, Compare, FeatureKind, Relative},
};

/// `out [batch, heads, queries, value_dim]` from q, k, v of the same layout, on the CPU backend with or without autodiff.
/// Returns nothing if the tensors live elsewhere.
pub(crate) fn attend(
    call: &Call,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
) -> Result<Option<Tensor<4>>, Error> {
    let (recipe, learned) = Recipe::new(call, &q, &k, &v);
    let recipe = Arc::new(recipe);
    if q.is_autodiff() {
        on_autodiff(recipe, q, k, v, learned)
    } else {
        on_flex(&recipe, q, k, v, learned)
    }
}

fn on_flex(
    recipe: &Recipe,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    learned: Tensor<1>,
) -> Result<Option<Tensor<4>>, Error> {
    let flex = |tensor: Tensor<4>| tensor.try_into_primitive::<Flex>().ok();
    let (Some(q), Some(k), Some(v)) = (flex(q), flex(k), flex(v)) else { return Ok(None) };
    let Ok(learned) = learned.try_into_primitive::<Flex>() else { return Ok(None) };
    let tensors = [q, k, v, learned].map(|tensor| tensor.to_contiguous());
    let (out, _) = recipe.forward(&tensors)?;
    Ok(Some(Tensor::from_primitive::<Flex>(out)))
}

fn on_autodiff(
    recipe: Arc<Recipe>,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    learned: Tensor<1>,
) -> Result<Option<Tensor<4>>, Error> {
    type Tracked = Autodiff<Flex>;
    let tracked = |tensor: Tensor<4>| tensor.try_into_primitive::<Tracked>().ok();
    let (Some(q), Some(k), Some(v)) = (tracked(q), tracked(k), tracked(v)) else { return Ok(None) };
    let Ok(learned) = learned.try_into_primitive::<Tracked>() else { return Ok(None) };
    let prepared = Attend
        .prepare::<NoCheckpointing>([q.node(), k.node(), v.node(), learned.node()])
        .compute_bound()
        .stateful();
    let tensors = [q, k, v, learned].map(|tensor| tensor.primitive().to_contiguous());
    let (out, log_sum) = recipe.forward(&tensors)?;
    let out = match prepared {
        OpsKind::UnTracked(prepared) => prepared.finish(out),
        OpsKind::Tracked(prepared) => {
            let state = Kept { recipe, tensors, out: out.clone(), log_sum: log_sum.into() };
            prepared.finish(state, out)
        }
    };
    Ok(Some(Tensor::from_primitive::<Tracked>(out)))
}

/// The operation.
#[derive(Debug)]
struct Attend;

/// What the backward pass needs.
#[derive(Clone, Debug)]
struct Kept {
    recipe: Arc<Recipe>,
    tensors: [FlexTensor; 4],
    out: FlexTensor,
    log_sum: Arc<[f32]>,
}

impl Backward<Flex, 4> for Attend {
    type State = Kept;

    fn backward(self, ops: Ops<Kept, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Kept { recipe, tensors, out, log_sum } = ops.state;
        let d_out = grads.consume::<Flex>(&ops.node).to_contiguous();
        let made = recipe
            .backward(&tensors, values(&out), &log_sum, values(&d_out))
            .expect("the forward pass has checked the same call");
        for ((parent, tensor), made) in ops.parents.into_iter().zip(&tensors).zip(made) {
            if let Some(parent) = parent {
                let mut gradient = FlexTensor::empty(tensor.layout().shape().clone(), DType::F32);
                gradient.storage_mut::<f32>().copy_from_slice(&made);
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// A contiguous tensor's values.
pub(crate) fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("a contiguous f32 tensor")
}

/// A call without its tensors: shapes, settings, and where each learned thing lies in the flat tensor.
struct Recipe {
    shape: Shape,
    first_query: usize,
    first_key: usize,
    compare: CompareAt,
    soft_cap: Option<f32>,
    query_bias: Option<Range<usize>>,
    features: Vec<FeatureAt>,
    biases: Vec<BiasAt>,
    relative_values: Option<RelativeAt>,
    pattern: Arc<dyn Pattern>,
    focus: Option<(Range<usize>, f32)>,
    dropout: Option<kernels::Dropout>,
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Recipe").field("shape", &self.shape).finish_non_exhaustive()
    }
}

enum CompareAt {
    Dot(f32),
    Cosine(f32),
    Additive(Range<usize>),
}

struct FeatureAt {
    kind: KindAt,
    channels: Range<usize>,
    heads: Range<usize>,
    angles: Angles,
}

enum KindAt {
    Rotary(kernels::Layout),
    Polar(kernels::Magnitude, Option<Range<usize>>),
}

enum BiasAt {
    Slopes(Range<usize>),
    Buckets(Range<usize>, kernels::Buckets),
    Relative(RelativeAt, Option<Range<usize>>, f32),
    Dense(Range<usize>, [usize; 4]),
}

struct RelativeAt {
    table: Range<usize>,
    per_head: bool,
    left: usize,
    right: usize,
}

impl RelativeAt {
    fn of<'a>(&self, learned: &'a [f32]) -> kernels::Relative<'a> {
        kernels::Relative {
            table: &learned[self.table.clone()],
            per_head: self.per_head,
            left: self.left,
            right: self.right,
        }
    }
}

/// Collects tensors into one.
#[derive(Default)]
struct Flat {
    parts: Vec<Tensor<1>>,
    len: usize,
}

impl Flat {
    fn put<const D: usize>(&mut self, tensor: &Tensor<D>) -> Range<usize> {
        let len = tensor.shape().num_elements();
        self.parts.push(tensor.clone().reshape([len]));
        self.len += len;
        self.len - len..self.len
    }

    fn relative(&mut self, relative: &Relative) -> RelativeAt {
        let per_head = relative.table.dims()[0] > 1;
        let table = self.put(&relative.table);
        RelativeAt { table, per_head, left: relative.left, right: relative.right }
    }
}

impl Recipe {
    fn new(call: &Call, q: &Tensor<4>, k: &Tensor<4>, v: &Tensor<4>) -> (Self, Tensor<1>) {
        let ([batch, heads, queries, head_dim], [_, kv_heads, keys, _]) = (q.dims(), k.dims());
        let shape =
            Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim: v.dims()[3] };
        let mut flat = Flat::default();
        let end = (call.first_query + queries).max(call.first_key + keys);
        let start = call.first_query.min(call.first_key);
        let recipe = Self {
            shape,
            first_query: call.first_query,
            first_key: call.first_key,
            compare: match &call.compare {
                Compare::Dot { scale } => CompareAt::Dot(*scale),
                Compare::Cosine { scale } => CompareAt::Cosine(*scale),
                Compare::Additive { weight } => CompareAt::Additive(flat.put(weight)),
            },
            soft_cap: call.soft_cap,
            query_bias: call.query_bias.as_ref().map(|u| flat.put(u)),
            features: call
                .features
                .iter()
                .map(|feature| FeatureAt {
                    kind: match &feature.kind {
                        FeatureKind::Rotary { layout } => KindAt::Rotary(*layout),
                        FeatureKind::Polar { magnitude, delta } => {
                            KindAt::Polar(*magnitude, delta.as_ref().map(|delta| flat.put(delta)))
                        }
                    },
                    channels: feature.channels.clone(),
                    heads: feature.heads.clone(),
                    angles: Angles::new(&feature.frequencies, start..end, feature.amplitude),
                })
                .collect(),
            biases: call
                .biases
                .iter()
                .map(|bias| match bias {
                    Bias::Slopes(slopes) => BiasAt::Slopes(flat.put(slopes)),
                    Bias::Buckets(table, buckets) => BiasAt::Buckets(flat.put(table), *buckets),
                    Bias::Relative { vectors, query_bias } => BiasAt::Relative(
                        flat.relative(vectors),
                        query_bias.as_ref().map(|v| flat.put(v)),
                        call.compare.scale(),
                    ),
                    Bias::Dense(values) => BiasAt::Dense(flat.put(values), values.dims()),
                })
                .collect(),
            relative_values: call.relative_values.as_ref().map(|r| flat.relative(r)),
            pattern: call.pattern.clone(),
            focus: call.focus.as_ref().map(|focus| (flat.put(&focus.centers), focus.deviation)),
            dropout: call.dropout,
        };
        let learned = match flat.parts.len() {
            0 => Tensor::zeros([0], &q.device()),
            1 => flat.parts.remove(0),
            _ => Tensor::cat(flat.parts, 0),
        };
        (recipe, learned)
    }

    /// The kernels' call on these learned values.
    fn call<'a>(&'a self, learned: &'a [f32]) -> kernels::Attention<'a> {
        let at = |range: &Range<usize>| &learned[range.clone()];
        let mut call = kernels::Attention::new(self.shape, &*self.pattern);
        call.first_query = self.first_query;
        call.first_key = self.first_key;
        call.score = match &self.compare {
            CompareAt::Dot(scale) => kernels::Score::Dot { scale: *scale },
            CompareAt::Cosine(scale) => kernels::Score::Cosine { scale: *scale },
            CompareAt::Additive(weight) => kernels::Score::Additive { weight: at(weight) },
        };
        call.soft_cap = self.soft_cap;
        call.query_bias = self.query_bias.as_ref().map(at);
        call.features = self
            .features
            .iter()
            .map(|feature| kernels::Feature {
                kind: match &feature.kind {
                    KindAt::Rotary(layout) => kernels::Kind::Rotary { layout: *layout },
                    KindAt::Polar(magnitude, delta) => kernels::Kind::Polar {
                        magnitude: *magnitude,
                        delta: delta.as_ref().map(at),
                    },
                },
                channels: feature.channels.clone(),
                heads: feature.heads.clone(),
                angles: &feature.angles,
            })
            .collect();
        call.biases = self
            .biases
            .iter()
            .map(|bias| match bias {
                BiasAt::Slopes(slopes) => kernels::Bias::Slopes { slopes: at(slopes) },
                BiasAt::Buckets(table, buckets) => {
                    kernels::Bias::Buckets { table: at(table), buckets: *buckets }
                }
                BiasAt::Relative(vectors, query_bias, scale) => kernels::Bias::Relative {
                    vectors: vectors.of(learned),
                    query_bias: query_bias.as_ref().map(at),
                    scale: *scale,
                },
                BiasAt::Dense(values, shape) => {
                    kernels::Bias::Dense { values: at(values), shape: *shape, learned: true }
                }
            })
            .collect();
        call.relative_values = self.relative_values.as_ref().map(|r| r.of(learned));
        call.focus = self.focus.as_ref().map(|(centers, deviation)| kernels::Focus {
            centers: at(centers),
            deviation: *deviation,
        });
        call.dropout = self.dropout;
        call
    }

    fn forward(
        &self,
        [q, k, v, learned]: &[FlexTensor; 4],
    ) -> Result<(FlexTensor, Vec<f32>), Error> {
        let call = self.call(values(learned));
        let Shape { batch, heads, queries, value_dim, .. } = self.shape;
        let mut out = FlexTensor::empty([batch, heads, queries, value_dim].into(), DType::F32);
        let mut log_sum = vec![0.0; self.shape.rows()];
        let inputs = Inputs { q: values(q), k: values(k), v: values(v) };
        call.forward_into(&inputs, out.storage_mut::<f32>(), &mut log_sum)?;
        Ok((out, log_sum))
    }

    /// Gradients of q, k, v and of the flat tensor.
    fn backward(
        &self,
        [q, k, v, learned]: &[FlexTensor; 4],
        out: &[f32],
        log_sum: &[f32],
        d_out: &[f32],
    ) -> Result<[Vec<f32>; 4], Error> {
        let learned = values(learned);
        let call = self.call(learned);
        let inputs = Inputs { q: values(q), k: values(k), v: values(v) };
        let mut made = kernels::Gradients::zeros(&call);
        call.backward_into(&inputs, out, log_sum, d_out, &mut made)?;
        let mut flat = vec![0.0; learned.len()];
        let mut put = |range: &Range<usize>, d: &[f32]| flat[range.clone()].copy_from_slice(d);
        if let CompareAt::Additive(weight) = &self.compare {
            put(weight, &made.score);
        }
        if let Some(range) = &self.query_bias {
            put(range, &made.query_bias);
        }
        for (feature, d) in self.features.iter().zip(&made.features) {
            if let KindAt::Polar(_, Some(delta)) = &feature.kind {
                put(delta, d);
            }
        }
        for (bias, d) in self.biases.iter().zip(&made.biases) {
            match bias {
                BiasAt::Slopes(range) | BiasAt::Buckets(range, _) | BiasAt::Dense(range, _) => {
                    put(range, &d.table);
                }
                BiasAt::Relative(vectors, query_bias, _) => {
                    put(&vectors.table, &d.table);
                    if let Some(range) = query_bias {
                        put(range, &d.query_bias);
                    }
                }
            }
        }
        if let Some(relative) = &self.relative_values {
            put(&relative.table, &made.relative_values);
        }
        if let Some((centers, _)) = &self.focus {
            put(centers, &made.centers);
        }
        Ok([made.q, made.k, made.v, flat])
    }
}
