//! Linear mixing: what it refuses, and its gradients.

use whatwhere_kernels::{
    attention::{Inputs, Shape},
    linear_attention::{LinearAttention, LinearGradients},
};

use crate::{
    Error,
    call::{Call, Moment},
    settings::{Pattern, Position, Score},
};

/// The call, or the reason why a choice has no meaning without scores.
pub(crate) fn build<'a>(
    call: &Call,
    shape: Shape,
    moment: &'a Moment,
    masked: bool,
) -> Result<LinearAttention<'a>, Error> {
    let settings = &call.settings;
    let refuse = |other: &str, reason| Err(Error::combination("linear", other, reason));
    if !matches!(&settings.score, Score::ScaledDot(score) if score.scale.is_none()) {
        let reason =
            "without scores there is none to choose; leave it at scaled_dot, without a scale";
        return refuse(settings.score.name(), reason);
    }
    let causal = match &settings.pattern {
        Pattern::Full(_) => false,
        Pattern::Causal(causal) if causal.offset == 0 => true,
        other => {
            let reason = "its state sums all keys, or all up to the query; use full or causal";
            return refuse(other.name(), reason);
        }
    };
    if let Some(position) =
        settings.position.iter().find(|position| !matches!(position, Position::NoPosition(_)))
    {
        let reason =
            "without scores there is nothing to add to or to turn; use an encoding of embeddings";
        return refuse(position.name(), reason);
    }
    if settings.soft_cap.is_some() {
        return refuse("soft_cap", "without scores there is nothing to cap");
    }
    if moment.dropout.is_some() {
        return refuse("dropout_p", "without weights there is nothing to drop");
    }
    if masked || moment.bias.is_some() {
        return refuse("attn_mask", "without scores there is nothing to hide or to add to");
    }
    if moment.first_query != moment.first_key {
        return refuse("first_query", "earlier tokens would belong in its state");
    }
    let mut linear = LinearAttention::new(shape, causal);
    linear.key_lengths = moment.key_lengths.as_deref();
    Ok(linear)
}

/// The gradients of q, k and v; nothing else learns.
#[expect(clippy::type_complexity, reason = "the same as softmax returns")]
pub(crate) fn backward(
    linear: &LinearAttention,
    inputs: &Inputs,
    out: &[f32],
    normaliser: &[f32],
    d_out: &[f32],
) -> Result<([Vec<f32>; 3], Vec<Option<Vec<f32>>>), Error> {
    let mut gradients = LinearGradients {
        q: vec![0.0; inputs.q.len()],
        k: vec![0.0; inputs.k.len()],
        v: vec![0.0; inputs.v.len()],
    };
    linear.backward_into(inputs, out, normaliser, d_out, &mut gradients)?;
    Ok(([gradients.q, gradients.k, gradients.v], Vec::new()))
}
