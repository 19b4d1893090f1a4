//! Self-attention with its projections on slices: everything between a norm and the residual stream as one piece, which owns
//! what stands between its steps.

use burn::{module::Param, nn::Linear, tensor::Tensor};
use whatwhere_kernels::{
    Pooled, Precision,
    layer::{self, HeadLayout, QuantizedLinear},
};

use crate::{
    Attention, Error, Heads, Input, Path, Sizes, Way,
    bridge::{Operand, operation, untracked},
    fused::Layout,
};

/// A linear layer: the model's own in f32, or an int8 copy of it.
pub trait Project: Sized {
    /// Several layers over the same rows `[batch, length, from]`, in one pass over their weights where nothing learns.
    fn project_all<const N: usize>(
        linears: [&Self; N],
        x: Tensor<3>,
        way: impl Into<Way>,
    ) -> [Tensor<3>; N];

    /// One layer.
    fn project(&self, x: Tensor<3>, way: impl Into<Way>) -> Tensor<3> {
        let [out] = Self::project_all([self], x, way);
        out
    }
}

/// Weights of a [`Projected`]: weight and bias of query, key, value and output, and what else a call learns.
pub const WEIGHTS: usize = 9;

/// Self-attention of one shape.
pub struct Projected {
    layout: Layout,
    sizes: Heads,
    call: Sizes,
    precision: Precision,
}

/// Queries, keys, values and what was mixed of them, all `[batch, heads, length, head_dim]`.
pub struct Compared {
    q: Pooled,
    k: Pooled,
    v: Pooled,
    out: Pooled,
    lse: Pooled,
}

impl Attention {
    /// The layer on slices, and its weights; nothing where an input or a choice needs tensors on the way.
    pub fn projected(&self, input: &Input) -> Result<Option<(Projected, Vec<Operand>)>, Error> {
        let plain = input.path != Path::Composed
            && input.memory.is_none()
            && input.past.is_none()
            && self.settings().is_plain();
        if !plain {
            return Ok(None);
        }
        let [batch, length, _] = input.x.dims();
        let call = Sizes { batch, queries: length, keys: length };
        let (layout, learned) = self.layout(input, call)?;
        let mut weights = Vec::with_capacity(WEIGHTS);
        for linear in [&self.query, &self.key, &self.value, &self.output] {
            let linear = linear.as_ref().expect("a plain layer has its projections");
            weights.extend(operands(linear));
        }
        weights.push(Operand::new(learned));
        let weights: Option<Vec<Operand>> = weights.into_iter().collect();
        let (sizes, precision) = (self.sizes(), input.precision);
        Ok(weights.map(|weights| (Projected { layout, sizes, call, precision }, weights)))
    }
}

/// Weight and bias of a projection, nothing on another backend.
pub fn operands(linear: &Linear) -> [Option<Operand>; 2] {
    let weight = linear.weight.val();
    let bias = match linear.bias.as_ref().map(Param::val) {
        Some(bias) => Operand::new(bias),
        None => Operand::new(Tensor::<1>::zeros([0], &weight.device())),
    };
    [Operand::new(weight), bias]
}

impl Project for Linear {
    fn project_all<const N: usize>(
        linears: [&Self; N],
        x: Tensor<3>,
        way: impl Into<Way>,
    ) -> [Tensor<3>; N] {
        let way = way.into();
        let fused = match way.path {
            Path::Composed => None,
            Path::Auto | Path::Fused => fused_project_all(linears, x.clone(), way.precision),
        };
        fused.unwrap_or_else(|| linears.map(|linear| linear.project(x.clone(), way)))
    }

    fn project(&self, x: Tensor<3>, way: impl Into<Way>) -> Tensor<3> {
        let way = way.into();
        let fused = match way.path {
            Path::Composed => None,
            Path::Auto | Path::Fused => fused_project(self, x.clone(), way.precision),
        };
        fused.unwrap_or_else(|| self.forward(x))
    }
}

/// Rows as they are, where there is no layer.
impl Project for Option<Linear> {
    fn project_all<const N: usize>(
        linears: [&Self; N],
        x: Tensor<3>,
        way: impl Into<Way>,
    ) -> [Tensor<3>; N] {
        let way = way.into();
        let all: Vec<&Linear> = linears.iter().filter_map(|linear| linear.as_ref()).collect();
        match <[&Linear; N]>::try_from(all) {
            Ok(all) => Linear::project_all(all, x, way),
            Err(_) => linears.map(|linear| match linear {
                Some(linear) => linear.project(x.clone(), way),
                None => x.clone(),
            }),
        }
    }
}

/// On the CPU only, without a gradient.
impl Project for QuantizedLinear {
    fn project_all<const N: usize>(
        linears: [&Self; N],
        x: Tensor<3>,
        _way: impl Into<Way>,
    ) -> [Tensor<3>; N] {
        let [batch, length, _] = x.dims();
        let x = Operand::new(x).expect("int8 copies are made of models on the CPU");
        let mut outs = linears.map(|linear| Pooled::uncleared(batch * length * linear.to()));
        let slices = outs.each_mut().map(|out| &mut **out);
        Self::forward_all(linears, x.values(), slices).expect("rows as wide as the layers");
        let mut at = 0;
        outs.map(|out| {
            let to = linears[at].to();
            at += 1;
            untracked(out, [batch, length, to])
        })
    }
}

fn fused_project_all<const N: usize>(
    linears: [&Linear; N],
    x: Tensor<3>,
    precision: Precision,
) -> Option<[Tensor<3>; N]> {
    if x.is_autodiff() {
        return None;
    }
    let [batch, length, from] = x.dims();
    let x = Operand::new(x)?;
    let weights: Option<Vec<Operand>> = linears.into_iter().flat_map(operands).collect();
    let weights = weights?;
    let calls: [layer::Linear; N] = std::array::from_fn(|i| {
        linear(weights[2 * i].values(), weights[2 * i + 1].values(), from, precision)
    });
    let mut outs = calls.map(|call| Pooled::uncleared(batch * length * call.to));
    let slices = outs.each_mut().map(|out| &mut **out);
    layer::Linear::forward_all(calls.each_ref(), x.values(), slices).ok()?;
    let mut widths = calls.iter().map(|call| call.to);
    Some(outs.map(|out| {
        let to = widths.next().expect("as many calls as outputs");
        untracked(out, [batch, length, to])
    }))
}

fn fused_project(projection: &Linear, x: Tensor<3>, precision: Precision) -> Option<Tensor<3>> {
    let [batch, length, from] = x.dims();
    let [weight, bias] = operands(projection);
    let operands = [Operand::new(x)?, weight?, bias?];
    let [x, weight, bias] = operands.each_ref().map(Operand::values);
    let call = linear(weight, bias, from, precision);
    let to = call.to;
    let mut out = Pooled::uncleared(batch * length * to);
    call.forward(x, &mut out).ok()?;
    Some(operation(operands, [batch, length, to], out, move |seen| {
        const CHECKED: &str = "the forward pass has checked the same call";
        let [x, weight, bias] = seen.operands;
        let call = linear(weight, bias, from, precision);
        let mut d_x = Pooled::uncleared(x.len());
        call.backward(seen.d_out, &mut d_x, false).expect(CHECKED);
        let [d_weight, d_bias] = weight_gradients(&call, x, seen.d_out).expect(CHECKED);
        [d_x, d_weight, d_bias]
    }))
}

/// A projection of weight and bias, the latter empty if there is none.
pub fn linear<'a>(
    weight: &'a [f32],
    bias: &'a [f32],
    from: usize,
    precision: Precision,
) -> layer::Linear<'a> {
    let to = weight.len() / from.max(1);
    layer::Linear { from, to, weight, bias: (!bias.is_empty()).then_some(bias), precision }
}

impl Projected {
    fn heads(&self, heads: usize) -> HeadLayout {
        let Sizes { batch, queries, .. } = self.call;
        HeadLayout { batch, length: queries, heads, dim: self.sizes.head_dim }
    }

    /// `x` projected and split into heads.
    fn project(
        &self,
        x: &[f32],
        weight: &[f32],
        bias: &[f32],
        heads: usize,
    ) -> Result<Pooled, Error> {
        let linear = linear(weight, bias, self.sizes.width, self.precision);
        let mut rows = Pooled::uncleared(x.len() / self.sizes.width * linear.to);
        linear.forward(x, &mut rows)?;
        let mut out = Pooled::uncleared(rows.len());
        self.heads(heads).split(&rows, &mut out)?;
        Ok(out)
    }

    fn join(&self, x: &[f32], heads: usize) -> Result<Pooled, Error> {
        let mut out = Pooled::uncleared(x.len());
        self.heads(heads).join(x, &mut out)?;
        Ok(out)
    }
}

impl Projected {
    /// The output, and what the backward pass needs besides the input.
    pub fn forward(&self, x: &[f32], weights: &[&[f32]]) -> Result<(Pooled, Compared), Error> {
        let &[qw, qb, kw, kb, vw, vb, ow, ob, learned] = weights else {
            unreachable!("as many weights as `projected` gives")
        };
        let Heads { heads, kv_heads, head_dim, .. } = self.sizes;
        let q = self.project(x, qw, qb, heads)?;
        let k = self.project(x, kw, kb, kv_heads)?;
        let v = self.project(x, vw, vb, kv_heads)?;
        let (out, lse) = self.layout.forward([&q, &k, &v, learned])?;
        let joined = self.join(&out, heads)?;
        let output = linear(ow, ob, heads * head_dim, self.precision);
        let mut made = Pooled::uncleared(x.len() / self.sizes.width * output.to);
        output.forward(&joined, &mut made)?;
        Ok((made, Compared { q, k, v, out, lse }))
    }

    /// Gradients of the input and of each weight.
    pub fn backward(
        &self,
        x: &[f32],
        weights: &[&[f32]],
        kept: &Compared,
        d_made: &[f32],
    ) -> Result<(Pooled, Vec<Pooled>), Error> {
        let &[qw, qb, kw, kb, vw, vb, ow, ob, learned] = weights else {
            unreachable!("as many weights as `projected` gives")
        };
        let Heads { width, heads, kv_heads, head_dim } = self.sizes;
        let Compared { q, k, v, out, lse } = kept;
        let output = linear(ow, ob, heads * head_dim, self.precision);
        let joined = self.join(out, heads)?;
        let [d_ow, d_ob] = weight_gradients(&output, &joined, d_made)?;
        let mut d_joined = joined;
        output.backward(d_made, &mut d_joined, false)?;
        let mut d_out = Pooled::uncleared(d_joined.len());
        self.heads(heads).split(&d_joined, &mut d_out)?;
        drop(d_joined);
        let [d_q, d_k, d_v, d_learned] =
            self.layout.backward([q, k, v, learned], out, lse, &d_out)?;
        drop(d_out);
        let mut d_x = Pooled::uncleared(x.len());
        let mut d_weights = Vec::with_capacity(WEIGHTS);
        for (i, (weight, bias, d, heads)) in
            [(qw, qb, d_q, heads), (kw, kb, d_k, kv_heads), (vw, vb, d_v, kv_heads)]
                .into_iter()
                .enumerate()
        {
            let rows = self.join(&d, heads)?;
            drop(d);
            let linear = linear(weight, bias, width, self.precision);
            linear.backward(&rows, &mut d_x, i > 0)?;
            d_weights.extend(weight_gradients(&linear, x, &rows)?);
        }
        d_weights.extend([d_ow, d_ob, d_learned]);
        Ok((d_x, d_weights))
    }
}

/// Gradients of weight and bias.
fn weight_gradients(
    linear: &layer::Linear,
    x: &[f32],
    d_out: &[f32],
) -> Result<[Pooled; 2], Error> {
    let mut made =
        [linear.weight.len(), linear.bias.map_or(0, <[f32]>::len)].map(Pooled::uncleared);
    let [weight, bias] = &mut made;
    linear.backward_weights(x, d_out, weight, bias)?;
    Ok(made)
}
