//! Attention as one operation on burn's CPU backend, computed by the kernels, with their own backward.
//!
//! The operation has four operands: q, k, v and one flat tensor of everything else that learns. A [`Recipe`] remembers
//! where each learned thing lies in it, and rebuilds the kernels' call from plain slices in both passes.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, Tensor};
use whatwhere_kernels::{
    Pooled,
    attention::{self as kernels, Angles, Inputs, Shape, pattern::Pattern},
};

use crate::{
    Error,
    bridge::{Operand, operation},
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
    // Gradients belong to keys that are there.
    let (k, v) = if q.is_autodiff() { call.present(k, v) } else { (k, v) };
    let ([batch, heads, queries, head_dim], [_, kv_heads, capacity, _]) = (q.dims(), k.dims());
    let (value_dim, keys) = (v.dims()[3], call.keys.unwrap_or(capacity));
    let shape = Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim };
    let (mut recipe, learned) = Recipe::new(call, shape, &q.device());
    recipe.capacity = (capacity > keys).then_some(capacity);
    let (q, k, v) = (Operand::new(q), Operand::new(k), Operand::new(v));
    let (Some(q), Some(k), Some(v), Some(learned)) = (q, k, v, Operand::new(learned)) else {
        return Ok(None);
    };
    let operands = [q, k, v, learned];
    let (out, lse) = recipe.forward(operands.each_ref().map(Operand::values))?;
    let shape = [batch, heads, queries, value_dim];
    Ok(Some(operation(operands, shape, out, move |seen| {
        recipe
            .backward(seen.operands, seen.out, &lse, seen.d_out)
            .expect("the forward pass has checked the same call")
    })))
}

/// A call without its tensors: shapes, settings, and where each learned thing lies in the flat tensor.
pub(crate) struct Recipe {
    shape: Shape,
    first_query: usize,
    first_key: usize,
    /// Keys for which k and v have space, where it is more than are present.
    capacity: Option<usize>,
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

enum CompareAt {
    Dot(f32),
    Cosine(f32),
    Additive(Range<usize>),
}

struct FeatureAt {
    kind: KindAt,
    channels: Range<usize>,
    heads: Range<usize>,
    angles: Arc<Angles>,
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
    /// The recipe, and everything that learns besides q, k and v.
    pub(crate) fn new(call: &Call, shape: Shape, device: &Device) -> (Self, Tensor<1>) {
        let Shape { queries, keys, .. } = shape;
        let mut flat = Flat::default();
        let end = (call.first_query + queries).max(call.first_key + keys);
        let start = call.first_query.min(call.first_key);
        let recipe = Self {
            shape,
            first_query: call.first_query,
            first_key: call.first_key,
            capacity: None,
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
                    angles: Angles::kept(&feature.frequencies, start..end, feature.amplitude),
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
            0 => Tensor::zeros([0], device),
            1 => flat.parts.remove(0),
            _ => Tensor::cat(flat.parts, 0),
        };
        (recipe, learned)
    }

    /// The kernels' call on these learned values.
    pub(crate) fn call<'a>(&'a self, learned: &'a [f32]) -> kernels::Attention<'a> {
        let at = |range: &Range<usize>| &learned[range.clone()];
        let mut call = kernels::Attention::new(self.shape, &*self.pattern);
        call.first_query = self.first_query;
        call.first_key = self.first_key;
        call.capacity = self.capacity;
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
                    KindAt::Rotary(layout) => kernels::FeatureKind::Rotary { layout: *layout },
                    KindAt::Polar(magnitude, delta) => kernels::FeatureKind::Polar {
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

    /// The output and each row's log-sum-exp.
    pub(crate) fn forward(
        &self,
        [q, k, v, learned]: [&[f32]; 4],
    ) -> Result<(Pooled, Pooled), Error> {
        let call = self.call(learned);
        let mut out = Pooled::uncleared(self.shape.out_len());
        let mut lse = Pooled::uncleared(self.shape.rows());
        call.forward_into(&Inputs { q, k, v }, &mut out, &mut lse)?;
        Ok((out, lse))
    }

    /// Gradients of q, k, v and of the flat tensor.
    pub(crate) fn backward(
        &self,
        [q, k, v, learned]: [&[f32]; 4],
        out: &[f32],
        lse: &[f32],
        d_out: &[f32],
    ) -> Result<[Pooled; 4], Error> {
        let call = self.call(learned);
        let inputs = Inputs { q, k, v };
        let mut made = kernels::Gradients::pooled(&call);
        call.backward_into(&inputs, out, lse, d_out, &mut made)?;
        let mut flat = Pooled::zeros(learned.len());
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
        Ok([made.q.into(), made.k.into(), made.v.into(), flat])
    }
}
