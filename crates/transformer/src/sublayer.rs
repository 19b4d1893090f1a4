//! A sublayer with its norms, its dropout and the residual stream past it as a single operation on the CPU:
//! `after(stream + drop(output(f(before(x)))))`, where most norms are absent and `x` is the residual stream unless sublayers
//! stand side by side. What stands between is owned here, kept for the backward pass or formed again.

use std::{
    borrow::Borrow,
    sync::{Mutex, PoisonError},
};

use burn::tensor::Tensor;
use whatwhere_attention::{
    Error,
    bridge::{Operand, Saved, operation},
    projected::{Compared, Projected, linear},
};
use whatwhere_kernels::{
    Pooled, Precision,
    layer::{self, Activation, Hidden, Linear, add_to},
};

use crate::{dropout::Dropped, norm::NormFormula};

/// The norms of a sublayer where they stand; most are absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Norms<T> {
    /// Of what goes in.
    pub(crate) before: Option<T>,
    /// Of what comes out, before it joins the residual stream.
    pub(crate) output: Option<T>,
    /// Of the residual stream after it, in place of the one before.
    pub(crate) after: Option<T>,
}

/// What stands around a sublayer: norms, dropout and the residual stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residual {
    /// Which norms there are.
    pub(crate) norms: Norms<()>,
    pub(crate) formula: NormFormula,
    pub(crate) dropped: Option<Dropped>,
    /// Whether the backward pass forms again what stands between, instead of keeping it.
    pub(crate) recomputes: bool,
}

/// Operands before a sublayer's weights: the stream, empty where `x` is the stream, `x`, gain and bias of the norm before or
/// after, and of the output's norm.
pub(crate) const AROUND: usize = 6;

/// What the backward pass needs.
struct SavedForBackward<K> {
    between: Between<Pooled>,
    /// Mean and scale of each row, of the norm before or after and of the output's.
    moments: [Pooled; 2],
    inner: K,
}

/// What norms stand next to, as far as the backward pass needs it.
pub(crate) struct Between<O> {
    /// What the norm before gives.
    normed: Option<O>,
    /// What the output's norm is given.
    made: Option<O>,
    /// What the norm after is given.
    sum: Option<O>,
}

/// A part of a block between norm and residual stream: `[rows, width]` in, as much out.
pub(crate) trait Sublayer: Send + Sync + 'static {
    /// What the backward pass needs besides the input.
    type Saved: Send + Sync;

    /// The output.
    fn forward(&self, x: &[f32], weights: &[&[f32]]) -> Result<(Pooled, Self::Saved), Error>;

    /// Gradients of the input and of each weight.
    fn backward(
        &self,
        x: &[f32],
        weights: &[&[f32]],
        saved: &Self::Saved,
        d_out: &[f32],
    ) -> Result<(Pooled, Vec<Pooled>), Error>;
}

/// The order of norms, sublayer, dropout and residual, for tensors as for slices: `add` is `stream + drop(out)`. Returns the
/// stream after it, and what stands between.
pub(crate) fn in_order<X: ?Sized, O: Borrow<X>, T, E>(
    norms: Norms<T>,
    [stream, x]: [&X; 2],
    mut norm: impl FnMut(T, &X) -> Result<O, E>,
    sublayer: impl FnOnce(&X) -> Result<O, E>,
    add: impl FnOnce(&X, O) -> Result<O, E>,
) -> Result<(O, Between<O>), E> {
    let normed = norms.before.map(|before| norm(before, x)).transpose()?;
    let made = sublayer(normed.as_ref().map_or(x, Borrow::borrow))?;
    let (given, made) = match norms.output {
        None => (made, None),
        Some(output) => (norm(output, made.borrow())?, Some(made)),
    };
    let sum = add(stream, given)?;
    let (out, sum) = match norms.after {
        None => (sum, None),
        Some(after) => (norm(after, sum.borrow())?, Some(sum)),
    };
    Ok((out, Between { normed, made, sum }))
}

/// The operation on what stands [`AROUND`] a sublayer, and its weights.
pub(crate) fn fused<S: Sublayer, const N: usize>(
    sublayer: S,
    residual: Residual,
    operands: [Operand; N],
    shape: [usize; 3],
) -> Result<Tensor<3>, Error> {
    let (out, saved) = residual.forward(&sublayer, &operands.each_ref().map(Operand::values))?;
    let kept = Mutex::new((!residual.recomputes).then_some(saved));
    Ok(operation(operands, shape, out, move |call: Saved<N>| {
        const CHECKED: &str = "the forward pass has checked the same call";
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let saved = match kept {
            Some(saved) => saved,
            None => residual.forward(&sublayer, &call.operands).expect(CHECKED).1,
        };
        let made = residual.backward(&sublayer, &call.operands, saved, call.d_out).expect(CHECKED);
        made.try_into().expect("as many gradients as operands")
    }))
}

impl Residual {
    fn forward<S: Sublayer>(
        &self,
        sublayer: &S,
        operands: &[&[f32]],
    ) -> Result<(Pooled, SavedForBackward<S::Saved>), Error> {
        let (around, weights) = Around::new(operands);
        let mut moments = around.gains().map(|gain| match gain.len() {
            0 => Pooled::default(),
            width => Pooled::uncleared(around.x.len() / width * 2),
        });
        let [outer, inner] = &mut moments;
        let mut outer = Some(outer);
        let mut saved = None;
        let (norm, output_norm) = self.norms(&around);
        let mut first = || (norm, outer.take().expect("a norm stands before or after"));
        let norms = Norms {
            before: self.norms.before.map(|()| first()),
            output: self.norms.output.map(|()| (output_norm, inner)),
            after: self.norms.after.map(|()| first()),
        };
        let (out, between) = in_order::<[f32], Pooled, _, Error>(
            norms,
            [around.stream(), around.x],
            |(norm, moments), x| {
                let mut normed = Pooled::uncleared(x.len());
                norm.forward(x, &mut normed, moments)?;
                Ok(normed)
            },
            |x| {
                let (out, inner) = sublayer.forward(x, weights)?;
                saved = Some(inner);
                Ok(out)
            },
            |stream, mut out| {
                self.drop(&mut out);
                add_to(&mut out, stream)?;
                Ok(out)
            },
        )?;
        let inner = saved.expect("a sublayer is called once");
        Ok((out, SavedForBackward { between, moments, inner }))
    }

    fn backward<S: Sublayer>(
        &self,
        sublayer: &S,
        operands: &[&[f32]],
        saved: SavedForBackward<S::Saved>,
        d_out: &[f32],
    ) -> Result<Vec<Pooled>, Error> {
        let (around, weights) = Around::new(operands);
        let (norm, output_norm) = self.norms(&around);
        let SavedForBackward { between, moments: [outer, of_output], inner } = saved;
        let empty = |like: &[f32]| Pooled::uncleared(like.len());
        let (mut d_gain, mut d_bias) = (empty(around.gain), empty(around.bias));
        let (mut d_output_gain, mut d_output_bias) =
            (empty(around.output_gain), empty(around.output_bias));
        let d_after = match &between.sum {
            None => None,
            Some(sum) => {
                let mut d_sum = Pooled::zeros(sum.len());
                norm.backward(sum, &outer, d_out, &mut d_sum, &mut d_gain, &mut d_bias)?;
                Some(d_sum)
            }
        };
        let d_sum = d_after.as_deref().unwrap_or(d_out);
        let dropped = self.dropped.map(|_| self.dropped_copy(d_sum));
        let d_given = dropped.as_deref().unwrap_or(d_sum);
        let d_output = match &between.made {
            None => None,
            Some(made) => {
                let mut d_made = Pooled::zeros(made.len());
                let (gain, bias) = (&mut d_output_gain, &mut d_output_bias);
                output_norm.backward(made, &of_output, d_given, &mut d_made, gain, bias)?;
                Some(d_made)
            }
        };
        let d_made = d_output.as_deref().unwrap_or(d_given);
        let input = between.normed.as_deref().unwrap_or(around.x);
        let (d_input, d_weights) = sublayer.backward(input, weights, &inner, d_made)?;
        // Where x is the stream, what goes past the sublayer reaches it, too.
        let past = around.stream.is_empty().then_some(d_sum);
        let d_x = match &between.normed {
            None => {
                let mut d_x = d_input;
                past.map_or(Ok(()), |past| add_to(&mut d_x, past))?;
                d_x
            }
            Some(_) => {
                let mut d_x = past.map_or_else(|| Pooled::zeros(around.x.len()), Pooled::of);
                norm.backward(around.x, &outer, &d_input, &mut d_x, &mut d_gain, &mut d_bias)?;
                d_x
            }
        };
        let d_stream = if past.is_some() { Pooled::default() } else { Pooled::of(d_sum) };
        let made = [d_stream, d_x, d_gain, d_bias, d_output_gain, d_output_bias];
        Ok(made.into_iter().chain(d_weights).collect())
    }

    /// The norm before or after, and that of the output.
    fn norms<'a>(&self, around: &Around<'a>) -> (layer::Norm<'a>, layer::Norm<'a>) {
        let of = |gain, bias| self.formula.of(gain, bias);
        (of(around.gain, around.bias), of(around.output_gain, around.output_bias))
    }

    fn drop(&self, values: &mut [f32]) {
        if let Some(dropped) = self.dropped {
            dropped.apply(values);
        }
    }

    fn dropped_copy(&self, values: &[f32]) -> Pooled {
        let mut copy = Pooled::of(values);
        self.drop(&mut copy);
        copy
    }
}

/// The operands [`AROUND`] a sublayer.
#[derive(Clone, Copy)]
struct Around<'a> {
    stream: &'a [f32],
    x: &'a [f32],
    gain: &'a [f32],
    bias: &'a [f32],
    output_gain: &'a [f32],
    output_bias: &'a [f32],
}

impl<'a> Around<'a> {
    /// They, and the weights behind them.
    fn new<'o>(operands: &'o [&'a [f32]]) -> (Self, &'o [&'a [f32]]) {
        let &[stream, x, gain, bias, output_gain, output_bias, ref weights @ ..] = operands else {
            unreachable!("as many as stand around a sublayer, and more")
        };
        (Self { stream, x, gain, bias, output_gain, output_bias }, weights)
    }

    fn stream(&self) -> &'a [f32] {
        if self.stream.is_empty() { self.x } else { self.stream }
    }

    fn gains(&self) -> [&'a [f32]; 2] {
        [self.gain, self.output_gain]
    }
}

/// A feed-forward; its weights are those of up, gate and down, each with its bias, empty where there is none.
pub(crate) struct FeedForward {
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) activation: Activation,
    pub(crate) precision: Precision,
}

impl FeedForward {
    fn call<'a>(&self, weights: &[&'a [f32]]) -> layer::FeedForward<'a> {
        let &[up, up_bias, gate, gate_bias, down, down_bias] = weights else {
            unreachable!("three weights and biases")
        };
        let wide =
            |weight, bias| -> Linear<'a> { linear(weight, bias, self.width, self.precision) };
        layer::FeedForward {
            up: wide(up, up_bias),
            gate: (!gate.is_empty()).then(|| wide(gate, gate_bias)),
            down: linear(down, down_bias, self.inner, self.precision),
            activation: self.activation,
        }
    }
}

impl Sublayer for FeedForward {
    type Saved = Hidden;

    fn forward(&self, x: &[f32], weights: &[&[f32]]) -> Result<(Pooled, Hidden), Error> {
        Ok(self.call(weights).forward(x)?)
    }

    fn backward(
        &self,
        x: &[f32],
        weights: &[&[f32]],
        saved: &Hidden,
        d_out: &[f32],
    ) -> Result<(Pooled, Vec<Pooled>), Error> {
        let made = self.call(weights).backward(x, saved, d_out)?;
        Ok((made.x, made.up.into_iter().chain(made.gate).chain(made.down).collect()))
    }
}

impl Sublayer for Projected {
    type Saved = Compared;

    fn forward(&self, x: &[f32], weights: &[&[f32]]) -> Result<(Pooled, Compared), Error> {
        Projected::forward(self, x, weights)
    }

    fn backward(
        &self,
        x: &[f32],
        weights: &[&[f32]],
        saved: &Compared,
        d_out: &[f32],
    ) -> Result<(Pooled, Vec<Pooled>), Error> {
        Projected::backward(self, x, weights, saved, d_out)
    }
}
