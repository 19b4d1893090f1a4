//! Linear mixing: what it refuses, with positions and without, and its gradients.

use whatwhere_kernels::{
    attention::{Attention, Gradients, Inputs, Shape},
    linear_attention::{LinearAttention, LinearGradients, RotatedLinearAttention},
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
    let causal = call.settings.pattern.choice.is_causal();
    let Some(linear) = call.settings.mixing.kernel(shape, causal) else {
        return refuse("arrays", "its gates are a layer's, made of the tokens themselves");
    };
    if args.dropout.is_some() {
        return refuse("dropout_p", "without weights there is nothing to drop");
    }
    if masked || args.bias.is_some() {
        return refuse("attn_mask", "without scores there is nothing to hide or to add to");
    }
    if args.first_query != args.first_key {
        return refuse("first_query", "earlier tokens would belong in its state");
    }
    Ok(LinearAttention { key_lengths: args.key_lengths.as_deref(), ..linear })
}

/// Fills the output and each row's denominator; `call` says what positions turn.
pub(crate) fn forward(
    linear: LinearAttention,
    call: &Attention,
    inputs: &Inputs,
    out: &mut [f32],
    normalizer: &mut [f32],
) -> Result<(), Error> {
    match call.features.is_empty() {
        true => Ok(linear.forward_into(inputs, out, normalizer)?),
        false => {
            Ok(RotatedLinearAttention::new(linear, call).forward_into(inputs, out, normalizer)?)
        }
    }
}

/// The gradients of q, k, v and of what positions learn.
pub(crate) fn backward(
    linear: LinearAttention,
    call: &Attention,
    inputs: &Inputs,
    [out, normalizer, d_out]: [&[f32]; 3],
) -> Result<Gradients, Error> {
    let mut gradients = Gradients::zeros(call);
    if call.features.is_empty() {
        let [q, k, v] = [gradients.q, gradients.k, gradients.v];
        let mut made = LinearGradients { q, k, v };
        linear.backward_into(inputs, out, normalizer, d_out, &mut made)?;
        return Ok(Gradients { q: made.q, k: made.k, v: made.v, learned: gradients.learned });
    }
    let made =
        RotatedLinearAttention::new(linear, call).backward(inputs, out, normalizer, d_out)?;
    let mut deltas = made.deltas.into_iter();
    // Phases are all that a call without scores learns.
    gradients.learned = call.map((), |_| deltas.next().unwrap_or_default());
    Ok(Gradients { q: made.q, k: made.k, v: made.v, learned: gradients.learned })
}
