//! Linear mixing: what it refuses, and its gradients.

use whatwhere_kernels::{
    attention::{Inputs, Shape},
    linear_attention::{LinearAttention, LinearGradients},
};
use whatwhere_settings::Refuses;

use crate::{
    Error,
    call::{Call, CallArgs},
};

/// The call, or the reason why a choice has no meaning without scores.
pub(crate) fn build<'a>(
    call: &Call,
    shape: Shape,
    args: &'a CallArgs,
    masked: bool,
) -> Result<LinearAttention<'a>, Error> {
    let mixing = call.settings.mixing.name();
    let refuse = |other: &str, reason| Err(Error::combination(mixing, other, reason));
    if args.dropout.is_some() {
        return refuse("dropout_p", "without weights there is nothing to drop");
    }
    if masked || args.bias.is_some() {
        return refuse("attn_mask", "without scores there is nothing to hide or to add to");
    }
    if args.first_query != args.first_key {
        return refuse("first_query", "earlier tokens would belong in its state");
    }
    let mut linear = LinearAttention::new(shape, call.settings.pattern.choice.is_causal());
    linear.key_lengths = args.key_lengths.as_deref();
    Ok(linear)
}

/// The gradients of q, k and v; nothing else learns.
#[expect(clippy::type_complexity, reason = "the same as softmax returns")]
pub(crate) fn backward(
    linear: &LinearAttention,
    inputs: &Inputs,
    out: &[f32],
    normalizer: &[f32],
    d_out: &[f32],
) -> Result<([Vec<f32>; 3], Vec<Option<Vec<f32>>>), Error> {
    let mut gradients = LinearGradients {
        q: vec![0.0; inputs.q.len()],
        k: vec![0.0; inputs.k.len()],
        v: vec![0.0; inputs.v.len()],
    };
    linear.backward_into(inputs, out, normalizer, d_out, &mut gradients)?;
    Ok(([gradients.q, gradients.k, gradients.v], Vec::new()))
}
