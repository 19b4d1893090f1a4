//! Positions that turn queries and keys where no scores follow: what linear mixing and recurrences ask of a call.

use std::sync::Arc;

use burn::tensor::Tensor;
use whatwhere_kernels::{
    Pooled,
    attention::{Magnitude, pattern::Full},
    linear_attention::Rotation,
};

use crate::{
    Error,
    bridge::{Operand, operation},
    call::{Call, FeatureKind},
    composed,
    fused::Layout,
};

/// A call that has the features of another and nothing else.
pub(crate) fn alone(call: &Call) -> Call {
    Call {
        first_query: call.first_query,
        first_key: call.first_key,
        features: call.features.clone(),
        ..Call::new(call.shape, Arc::new(Full))
    }
}

/// A call whose polar features take magnitudes as they are.
pub(crate) fn magnitudes(call: &Call) -> Call {
    let mut call = alone(call);
    for feature in &mut call.features {
        if let FeatureKind::Polar { magnitude, .. } = &mut feature.kind {
            *magnitude = Magnitude::Identity;
        }
    }
    call
}

/// Queries and every query head's keys, `[batch, heads, length, channels]`, rotated by tensor operations.
pub(crate) fn composed(call: &Call, q: &Tensor<4>, k: &Tensor<4>) -> [Tensor<4>; 2] {
    [(q, call.first_query, false), (k, call.first_key, true)]
        .map(|(x, first, is_key)| composed::turned(call, x.clone(), first, is_key))
}

/// The same by the kernels, each as one operation; nothing on another backend.
pub(crate) fn on_kernels(
    call: &Call,
    q: &Tensor<4>,
    k: &Tensor<4>,
) -> Result<Option<[Tensor<4>; 2]>, Error> {
    let (Some(q), Some(k)) = (one_on_kernels(call, q, false)?, one_on_kernels(call, k, true)?)
    else {
        return Ok(None);
    };
    Ok(Some([q, k]))
}

fn one_on_kernels(call: &Call, x: &Tensor<4>, is_key: bool) -> Result<Option<Tensor<4>>, Error> {
    const CHECKED: &str = "the forward pass has checked the same call";
    let [batch, heads, length, _] = x.dims();
    let (layout, learned) = Layout::new(&alone(call), &x.device());
    let (Some(x), Some(learned)) = (Operand::new(x.clone()), Operand::new(learned)) else {
        return Ok(None);
    };
    let (rotated, width) = {
        let rotation = Rotation::new(&layout.call(learned.values()));
        let rotated = if is_key { rotation.keys(x.values()) } else { rotation.queries(x.values()) };
        (rotated?, rotation.width())
    };
    let sizes = [batch, heads, length, width];
    Ok(Some(operation([x, learned], sizes, rotated, move |seen| {
        let [x, learned] = seen.operands;
        let call = layout.call(learned);
        let rotation = Rotation::new(&call);
        let made = match is_key {
            true => rotation.keys_backward(x, seen.d_out).expect(CHECKED),
            false => rotation.queries_backward(x, seen.d_out).expect(CHECKED),
        };
        [Pooled::from(made.x), Pooled::from(made.deltas.concat())]
    })))
}
