//! The operations between attentions as single operations on the CPU, with their own backward. Each returns nothing on
//! another backend, and its caller composes it of the framework's operations instead.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use burn::{module::Param, nn::Linear, tensor::Tensor};
use rayon::prelude::*;
use whatwhere_attention::bridge::{Operand, gather_into_gradient, operation, untracked};
use whatwhere_kernels::{
    Pooled, Precision,
    layer::{
        Activation, CrossEntropy, Embedding, Gated, LossSum, OutputGradients, OutputWeights,
        QuantizedLinear,
    },
};

use crate::{dropout::Dropped, norm::NormFormula};

const CHECKED: &str = "the forward pass has checked the same call";

/// A norm of every row.
pub(crate) fn norm(
    x: Tensor<3>,
    gain: Tensor<1>,
    bias: Option<Tensor<1>>,
    formula: NormFormula,
) -> Option<Tensor<3>> {
    let shape = x.dims();
    let (x, gain) = (Operand::new(x)?, Operand::new(gain)?);
    let bias = match bias {
        None => None,
        Some(bias) => Some(Operand::new(bias)?),
    };
    let (count, rows) = (x.values().len(), shape[0] * shape[1]);
    let (mut out, mut kept) = (Pooled::uncleared(count), Pooled::uncleared(rows * 2));
    let bias_values = bias.as_ref().map_or(&[][..], Operand::values);
    let call = formula.of(gain.values(), bias_values);
    call.forward(x.values(), &mut out, &mut kept).ok()?;
    let backward = move |x: &[f32], gain: &[f32], bias: &[f32], d_out: &[f32]| {
        let call = formula.of(gain, bias);
        let (mut d_x, mut d_gain) = (Pooled::zeros(x.len()), Pooled::uncleared(gain.len()));
        let mut d_bias = Pooled::uncleared(bias.len());
        call.backward(x, &kept, d_out, &mut d_x, &mut d_gain, &mut d_bias).expect(CHECKED);
        (d_x, d_gain, d_bias)
    };
    Some(match bias {
        None => operation([x, gain], shape, out, move |seen| {
            let [x, gain] = seen.operands;
            let (d_x, d_gain, _) = backward(x, gain, &[], seen.d_out);
            [d_x, d_gain]
        }),
        Some(bias) => operation([x, gain, bias], shape, out, move |seen| {
            let [x, gain, bias] = seen.operands;
            let (d_x, d_gain, d_bias) = backward(x, gain, bias, seen.d_out);
            [d_x, d_gain, d_bias]
        }),
    })
}

/// The activation of a feed-forward, with its gate if it has one.
pub(crate) fn activate(
    activation: Activation,
    up: Tensor<3>,
    gate: Option<Tensor<3>>,
) -> Option<Tensor<3>> {
    let shape = up.dims();
    let up = Operand::new(up)?;
    let mut out = Pooled::uncleared(up.values().len());
    if let Some(gate) = gate {
        let gate = Operand::new(gate)?;
        Gated(activation).forward(gate.values(), up.values(), &mut out).ok()?;
        return Some(operation([gate, up], shape, out, move |seen| {
            let [gate, up] = seen.operands;
            let (mut d_gate, mut d_up) = (Pooled::uncleared(up.len()), Pooled::uncleared(up.len()));
            let gated = Gated(activation);
            gated.backward(gate, up, seen.d_out, &mut d_gate, &mut d_up).expect(CHECKED);
            [d_gate, d_up]
        }));
    }
    activation.forward(up.values(), &mut out).ok()?;
    Some(operation([up], shape, out, move |seen| {
        let mut d_x = Pooled::uncleared(seen.d_out.len());
        activation.backward(seen.operands[0], seen.d_out, &mut d_x).expect(CHECKED);
        [d_x]
    }))
}

/// Logits of every row of a table, `[batch, length, vocabulary]`.
pub(crate) fn logits(hidden: Tensor<3>, table: Tensor<2>) -> Option<Tensor<3>> {
    let ([batch, length, width], [vocabulary, _]) = (hidden.dims(), table.dims());
    let (hidden, table) = (Operand::new(hidden)?, Operand::new(table)?);
    let mut out = Pooled::uncleared(batch * length * vocabulary);
    let call = Embedding { width, rows: &[] };
    call.logits(hidden.values(), table.values(), &mut out).ok()?;
    Some(operation([hidden, table], [batch, length, vocabulary], out, move |seen| {
        let [hidden, table] = seen.operands;
        let (mut d_hidden, mut d_table) =
            (Pooled::uncleared(hidden.len()), Pooled::uncleared(table.len()));
        Embedding { width, rows: &[] }
            .logits_backward(hidden, table, seen.d_out, &mut d_hidden, &mut d_table)
            .expect(CHECKED);
        [d_hidden, d_table]
    }))
}

/// Rows of a table, `[batch, length, width]`.
pub(crate) fn embedding(
    table: Tensor<2>,
    rows: Vec<u32>,
    [batch, length]: [usize; 2],
) -> Option<Tensor<3>> {
    let [_, width] = table.dims();
    let table = Operand::new(table)?;
    let mut out = Pooled::uncleared(rows.len() * width);
    Embedding { width, rows: &rows }.forward(table.values(), &mut out).ok()?;
    Some(gather_into_gradient(table, [batch, length, width], out, move |d_out, d_table| {
        let call = Embedding { width, rows: &rows };
        call.backward(d_out, d_table).expect(CHECKED);
    }))
}

/// Rows of a table in int8, `[batch, length, width]`.
///
/// # Panics
/// If there is no such row.
pub(crate) fn quantized_embedding(
    table: &QuantizedLinear,
    rows: &[u32],
    [batch, length]: [usize; 2],
) -> Tensor<3> {
    let width = table.from();
    let mut out = Pooled::uncleared(rows.len() * width);
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
        table.write_column(*row as usize, out);
    }
    untracked(out, [batch, length, width])
}

/// `x + drop(y)`.
pub(crate) fn add_dropped(x: Tensor<3>, y: Tensor<3>, dropped: Dropped) -> Option<Tensor<3>> {
    let shape = x.dims();
    let (x, y) = (Operand::new(x)?, Operand::new(y)?);
    let mut out = Pooled::of(x.values());
    dropped.add(&mut out, y.values());
    Some(operation([x, y], shape, out, move |seen| {
        let mut d_y = Pooled::of(seen.d_out);
        dropped.apply(&mut d_y);
        [Pooled::of(seen.d_out), d_y]
    }))
}

/// What a row of hidden states should predict.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    /// One for each row.
    pub tokens: &'a [u32],
    /// Factor on each row's loss; 1 if absent.
    pub weights: Option<&'a [f32]>,
    /// Probability spread evenly over all tokens.
    pub smoothing: f32,
}

/// What makes logits of hidden states.
pub(crate) struct Output {
    /// `[vocabulary, width]` if it is an embedding, or `[width, vocabulary]`.
    pub(crate) weight: Tensor<2>,
    pub(crate) is_embedding: bool,
    pub(crate) bias: Option<Tensor<1>>,
    pub(crate) soft_cap: Option<f32>,
}

impl Output {
    /// A linear layer from states to classes.
    pub(crate) fn of_linear(linear: &Linear) -> Self {
        Self {
            weight: linear.weight.val(),
            is_embedding: false,
            bias: linear.bias.as_ref().map(Param::val),
            soft_cap: None,
        }
    }
}

/// The mean of some positions of each row, `[batch, width]` of `[batch, length, width]`.
pub(crate) fn pool(states: Tensor<3>, spans: Vec<Range<usize>>) -> Option<Tensor<2>> {
    let [batch, length, width] = states.dims();
    let states = Operand::new(states)?;
    let mut out = Pooled::zeros(batch * width);
    for (row, (out, span)) in out.chunks_exact_mut(width).zip(&spans).enumerate() {
        let share = 1.0 / span.len() as f32;
        let first = row * length;
        let values = &states.values()[(first + span.start) * width..(first + span.end) * width];
        for state in values.chunks_exact(width) {
            out.iter_mut().zip(state).for_each(|(out, state)| *out += state);
        }
        out.iter_mut().for_each(|out| *out *= share);
    }
    Some(operation([states], [batch, width], out, move |seen| {
        let mut d_states = Pooled::zeros(batch * length * width);
        for (row, (d_out, span)) in seen.d_out.chunks_exact(width).zip(&spans).enumerate() {
            let share = 1.0 / span.len() as f32;
            let first = row * length;
            let places = (first + span.start) * width..(first + span.end) * width;
            for d_state in d_states[places].chunks_exact_mut(width) {
                d_state.iter_mut().zip(d_out).for_each(|(d, d_out)| *d = share * d_out);
            }
        }
        [d_states]
    }))
}

/// The loss of `[rows, width]` hidden states as a tensor of one value, and the figures behind it. Nothing on another
/// backend.
pub(crate) fn cross_entropy(
    hidden: Tensor<2>,
    output: Output,
    targets: Targets,
    precision: Precision,
) -> Option<(Tensor<1>, LossSum)> {
    let Output { weight, is_embedding, bias, soft_cap } = output;
    let ([_, width], sizes) = (hidden.dims(), weight.dims());
    let vocabulary = if is_embedding { sizes[0] } else { sizes[1] };
    let learns = hidden.is_autodiff();
    let bias = match bias {
        None => Operand::nothing(&hidden.device())?,
        Some(bias) => Operand::new(bias)?,
    };
    let operands = [Operand::new(hidden)?, Operand::new(weight)?, bias];
    let Targets { tokens: targets, weights, smoothing } = targets;
    let call = CrossEntropy {
        width,
        vocabulary,
        is_embedding,
        targets,
        weights,
        smoothing,
        soft_cap,
        precision,
    };
    let [hidden, weight, bias] = operands.each_ref().map(Operand::values);
    let output = OutputWeights { weight, bias };
    let [mut d_hidden, mut d_weight, mut d_bias] = [hidden, weight, bias]
        .map(|values| Pooled::uncleared(if learns { values.len() } else { 0 }));
    let sum = if learns {
        let gradients =
            OutputGradients { hidden: &mut d_hidden, weight: &mut d_weight, bias: &mut d_bias };
        call.forward_backward(hidden, output, gradients).ok()?
    } else {
        call.forward(hidden, output).ok()?
    };
    let out = vec![sum.nats as f32].into();
    let made = Mutex::new(Some([d_hidden, d_weight, d_bias]));
    let loss = operation(operands, [1], out, move |seen| {
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut made = made.expect("a graph is walked back once");
        let factor = seen.d_out[0];
        if factor != 1.0 {
            for values in &mut made {
                values.par_iter_mut().for_each(|value| *value *= factor);
            }
        }
        made
    });
    Some((loss, sum))
}
