//! Mixing whose state forgets and overwrites, token by token: what retention, gated linear attention and the delta rule share.
//! The formula is that of [`whatwhere_kernels::linear_attention::Recurrence`]; each of them says its gates.

use burn::tensor::{Tensor, TensorData};
use whatwhere_kernels::{
    Pooled,
    attention::{Inputs, Shape},
    linear_attention::Recurrence,
};
use whatwhere_settings::Refuses;

use crate::{
    Error, Path,
    bridge::{Operand, operation, untracked},
    composed::repeat_heads,
    mixing::{Mix, State},
    rotation,
};

/// Added to the mean square of a head's output under its root, and to the square of a vector's length.
const EPSILON: f32 = 1e-6;

/// What a mixing makes of the tokens that keys are made of, besides keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates {
    /// Logarithms of what remains of the state, `[batch, kv_heads, keys, 1 or head_dim]`.
    pub(crate) decay: Option<Tensor<4>>,
    /// How much of what a key held is overwritten, `[batch, kv_heads, keys, 1]`.
    pub(crate) beta: Option<Tensor<4>>,
}

impl Gates {
    fn map(&self, f: impl Fn(Tensor<4>) -> Tensor<4>) -> Self {
        let [decay, beta] = [&self.decay, &self.beta].map(|gate| gate.clone().map(&f));
        Self { decay, beta }
    }
}

/// Gates of each head from a projection `[batch, keys, kv_heads · width]`.
pub(crate) fn split(projected: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, keys, channels] = projected.dims();
    projected.reshape([batch, keys, heads, channels / heads]).swap_dims(1, 2)
}

/// Vectors of length 1.
fn unit(x: Tensor<4>) -> Tensor<4> {
    let square = x.clone().powi_scalar(2).sum_dim(3);
    x / (square + EPSILON).sqrt()
}

/// Each head's output over the root of its mean square, if it is to be.
pub(crate) fn normed(out: Tensor<4>, norms: bool) -> Tensor<4> {
    if !norms || out.dims()[2] == 0 {
        return out;
    }
    let square = out.clone().powi_scalar(2).mean_dim(3);
    out / (square + EPSILON).sqrt()
}

/// What a call computes from: queries, keys, values and gates, turned by positions and without what is padding.
struct Formed {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    gates: Gates,
}

/// `out [batch, heads, queries, head_dim]` from the empty state; earlier keys than queries are taken in first.
pub(crate) fn attend(
    mix: Mix,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
) -> Result<Tensor<4>, Error> {
    let ([batch, heads, queries, _], keys) = (q.dims(), k.dims()[2]);
    if queries == 0 || keys == 0 {
        return Ok(Tensor::zeros([batch, heads, queries, v.dims()[3]], &q.device()));
    }
    let fused = mix.path != Path::Composed;
    let Formed { mut q, k, v, gates } = form(mix, q, k, v, fused)?;
    let earlier = keys - queries;
    if earlier > 0 {
        let zeros = Tensor::zeros([batch, heads, earlier, q.dims()[3]], &q.device());
        q = Tensor::cat(vec![zeros, q], 2);
    }
    let made = match fused {
        true => on_kernels(&q, &k, &v, &gates)?,
        false => None,
    };
    let out = match made {
        Some(out) => out,
        None if mix.path == Path::Fused => {
            let reason = format!("needs the CPU backend, found {:?}", q.device());
            return Err(Error::setting("path", "fused", reason));
        }
        None => token_by_token(None, q, k, v, &gates).0,
    };
    Ok(out.narrow(2, earlier, queries))
}

/// The next tokens against the state of those before, which takes them up.
pub(crate) fn step(
    mix: Mix,
    state: &mut Option<State>,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
) -> Result<Tensor<4>, Error> {
    let [batch, heads, queries, _] = q.dims();
    if queries == 0 {
        return Ok(Tensor::zeros([batch, heads, 0, v.dims()[3]], &q.device()));
    }
    let fused = mix.path != Path::Composed;
    // Tokens that are decoded are there.
    let Formed { q, k, v, gates } = form(Mix { key_lengths: None, ..mix }, q, k, v, fused)?;
    let sums = state.take().map(|state| state.sums);
    let made = match fused && !q.is_autodiff() {
        true => next_on_kernels(sums.clone(), &q, &k, &v, &gates)?,
        false => None,
    };
    let (out, sums) = made.unwrap_or_else(|| token_by_token(sums, q, k, v, &gates));
    *state = Some(State { sums, total: None });
    Ok(out)
}

fn form(mix: Mix, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, fused: bool) -> Result<Formed, Error> {
    let Mix { call, key_lengths, gates, .. } = mix;
    let [batch, _, keys, _] = k.dims();
    let mut formed = Formed { q, k, v, gates: gates.clone() };
    if !call.features.is_empty() {
        // Phases and shares of the heads are of query heads, so each turns keys of its own.
        let heads = formed.q.dims()[1];
        let Formed { q, k, v, gates } = formed;
        let (k, v) = (repeat_heads(k, heads), repeat_heads(v, heads));
        let gates = gates.map(|gate| repeat_heads(gate, heads));
        let [q, k] = match fused {
            true => rotation::on_kernels(call, &q, &k)?,
            false => None,
        }
        .unwrap_or_else(|| rotation::composed(&rotation::alone(call), &q, &k));
        formed = Formed { q, k, v, gates };
    }
    if formed.gates.beta.is_some() {
        // What overwrites must not be longer than 1, or the state grows without bound; positions can make it longer.
        (formed.q, formed.k) = (unit(formed.q), unit(formed.k));
    }
    if let Some(ends) = key_lengths {
        let counts = ends.iter().map(|end| end.saturating_sub(call.first_key));
        let is_there = counts.flat_map(|count| (0..keys).map(move |key| f32::from(key < count)));
        let is_there = TensorData::new(is_there.collect::<Vec<f32>>(), [batch, 1, keys, 1]);
        let device = formed.k.device();
        formed.k = formed.k * Tensor::<4>::from_data(is_there, &device);
    }
    Ok(formed)
}

fn shape_of(q: &Tensor<4>, k: &Tensor<4>, v: &Tensor<4>) -> Shape {
    let ([batch, heads, queries, head_dim], [_, kv_heads, keys, _]) = (q.dims(), k.dims());
    Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim: v.dims()[3] }
}

/// The factor of the output, that of a head's own channels whatever positions add to them.
fn scale(v: usize) -> f32 {
    1.0 / (v as f32).sqrt()
}

fn kernel<'a>(shape: Shape, decay: &'a [f32], beta: &'a [f32]) -> Recurrence<'a> {
    let there = |gate: &'a [f32]| Some(gate).filter(|gate| !gate.is_empty());
    let (decay, beta) = (there(decay), there(beta));
    Recurrence { decay, beta, scale: scale(shape.value_dim), ..Recurrence::new(shape) }
}

/// The operands of a call, empty in place of gates that it does not have; nothing on another backend.
fn operands(q: &Tensor<4>, k: &Tensor<4>, v: &Tensor<4>, gates: &Gates) -> Option<[Operand; 5]> {
    let device = q.device();
    let gate = |gate: &Option<Tensor<4>>| match gate {
        Some(gate) => Operand::new(gate.clone()),
        None => Operand::nothing(&device),
    };
    let [q, k, v] = [q, k, v].map(|x| Operand::new(x.clone()));
    Some([q?, k?, v?, gate(&gates.decay)?, gate(&gates.beta)?])
}

fn on_kernels(
    q: &Tensor<4>,
    k: &Tensor<4>,
    v: &Tensor<4>,
    gates: &Gates,
) -> Result<Option<Tensor<4>>, Error> {
    let shape = shape_of(q, k, v);
    let Some(operands) = operands(q, k, v, gates) else { return Ok(None) };
    let [q, k, v, decay, beta] = operands.each_ref().map(Operand::values);
    let call = kernel(shape, decay, beta);
    let start = vec![0.0; call.state_len()];
    let out = call.forward(&mut start.clone(), &Inputs { q, k, v })?;
    let sizes = [shape.batch, shape.heads, shape.queries, shape.value_dim];
    Ok(Some(operation(operands, sizes, Pooled::from(out), move |seen| {
        let [q, k, v, decay, beta] = seen.operands;
        let made = kernel(shape, decay, beta)
            .backward(&start, &Inputs { q, k, v }, seen.d_out)
            .expect("the forward pass has checked the same call");
        [made.q, made.k, made.v, made.decay, made.beta].map(Pooled::from)
    })))
}

/// Outputs, and the state after these tokens.
fn next_on_kernels(
    state: Option<Tensor<4>>,
    q: &Tensor<4>,
    k: &Tensor<4>,
    v: &Tensor<4>,
    gates: &Gates,
) -> Result<Option<(Tensor<4>, Tensor<4>)>, Error> {
    let shape = shape_of(q, k, v);
    let Some(operands) = operands(q, k, v, gates) else { return Ok(None) };
    let [q, k, v, decay, beta] = operands.each_ref().map(Operand::values);
    let call = kernel(shape, decay, beta);
    let mut state = match state {
        None => Pooled::zeros(call.state_len()),
        Some(state) => match Operand::new(state) {
            Some(state) => Pooled::of(state.values()),
            None => return Ok(None),
        },
    };
    let out = call.forward(&mut state, &Inputs { q, k, v })?;
    let Shape { batch, heads, kv_heads, queries, head_dim, value_dim, .. } = shape;
    let out = untracked(Pooled::from(out), [batch, heads, queries, value_dim]);
    Ok(Some((out, untracked(state, [batch, kv_heads, head_dim, value_dim]))))
}

/// The same of tensor operations: outputs, and the state after these tokens.
fn token_by_token(
    state: Option<Tensor<4>>,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    gates: &Gates,
) -> (Tensor<4>, Tensor<4>) {
    let ([batch, heads, tokens, dim], kv_heads, width) = (q.dims(), k.dims()[1], v.dims()[3]);
    let zeros = || Tensor::zeros([batch, kv_heads, dim, width], &q.device());
    let mut state = state.unwrap_or_else(zeros);
    let mut outs = Vec::with_capacity(tokens);
    for token in 0..tokens {
        let at = |x: &Tensor<4>| x.clone().narrow(2, token, 1);
        if let Some(decay) = &gates.decay {
            state = state * at(decay).exp().transpose(); // [batch, kv_heads, 1 or head_dim, 1]
        }
        let (k, mut u) = (at(&k), at(&v));
        if let Some(beta) = &gates.beta {
            u = (u - k.clone().matmul(state.clone())) * at(beta);
        }
        state = state + k.transpose().matmul(u);
        let q = at(&q).reshape([batch, kv_heads, heads / kv_heads, dim]);
        outs.push(q.matmul(state.clone()).reshape([batch, heads, 1, width]));
    }
    (Tensor::cat(outs, 2) * scale(width), state)
}
