//! Attention as one operation on burn's CPU backend, computed by the kernels, with their own backward.
//!
//! The operation has four operands: q, k, v and one flat tensor of everything else that learns. A [`Layout`] remembers
//! where each learned thing lies in it, and is the kernels' call on plain slices in both passes.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, Tensor};
use whatwhere_kernels::{
    Pooled,
    attention::{self as kernels, Gradients, Inputs, pattern::Pattern},
};

use crate::{
    Error,
    bridge::{Operand, operation},
    call::{Call, present},
};

/// `out [batch, heads, queries, value_dim]` from q, k, v of the same layout, on the CPU backend with or without autodiff.
/// Returns nothing if the tensors live elsewhere.
pub(crate) fn attend(
    call: &Call,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
) -> Result<Option<Tensor<4>>, Error> {
    // Gradients belong to keys that are present.
    let (k, v) = if q.is_autodiff() { present(call, k, v) } else { (k, v) };
    let (mut layout, learned) = Layout::new(call, &q.device());
    let capacity = k.dims()[2];
    layout.0.capacity = (capacity > call.shape.keys).then_some(capacity);
    let (q, k, v) = (Operand::new(q), Operand::new(k), Operand::new(v));
    let (Some(q), Some(k), Some(v), Some(learned)) = (q, k, v, Operand::new(learned)) else {
        return Ok(None);
    };
    let operands = [q, k, v, learned];
    let (out, lse) = layout.forward(operands.each_ref().map(Operand::values))?;
    let kernels::Shape { batch, heads, queries, value_dim, .. } = call.shape;
    Ok(Some(operation(operands, [batch, heads, queries, value_dim], out, move |seen| {
        layout
            .backward(seen.operands, seen.out, &lse, seen.d_out)
            .expect("the forward pass has checked the same call")
    })))
}

/// A call over where each learned thing lies in one flat tensor.
pub(crate) struct Layout(kernels::Call<Range<usize>, Arc<dyn Pattern>>);

impl Layout {
    /// The layout, and everything that learns besides q, k and v.
    pub(crate) fn new(call: &Call, device: &Device) -> (Self, Tensor<1>) {
        let mut parts: Vec<Tensor<1>> = Vec::new();
        let mut end = 0;
        let layout = call.map(call.pattern.clone(), |part| {
            let start = end;
            end += part.dims()[0];
            parts.push(part.clone());
            start..end
        });
        let learned = match parts.len() {
            0 => Tensor::zeros([0], device),
            1 => parts.remove(0),
            _ => Tensor::cat(parts, 0),
        };
        (Self(layout), learned)
    }

    /// The kernels' call on these learned values.
    pub(crate) fn call<'a>(&'a self, learned: &'a [f32]) -> kernels::Attention<'a> {
        self.0.map(&*self.0.pattern, |range| &learned[range.clone()])
    }

    /// The output and each row's log-sum-exp.
    pub(crate) fn forward(
        &self,
        [q, k, v, learned]: [&[f32]; 4],
    ) -> Result<(Pooled, Pooled), Error> {
        let mut out = Pooled::uncleared(self.0.shape.out_len());
        let mut lse = Pooled::uncleared(self.0.shape.rows());
        self.call(learned).forward_into(&Inputs { q, k, v }, &mut out, &mut lse)?;
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
        let mut made = Gradients::pooled(&call);
        call.backward_into(&Inputs { q, k, v }, out, lse, d_out, &mut made)?;
        let mut flat = Pooled::zeros(learned.len());
        for (range, d) in self.0.values().into_iter().zip(made.learned.values()) {
            flat[range.clone()].copy_from_slice(d);
        }
        Ok([made.q.into(), made.k.into(), made.v.into(), flat])
    }
}
