//! A sublayer with its norm, its dropout and the stream past it as a single operation on the CPU: `x + drop(f(norm(x)))`,
//! or `norm(x + drop(f(x)))`. What stands between is owned here, kept for the backward pass or formed again.

use std::{
    borrow::Borrow,
    sync::{Mutex, PoisonError},
};

use burn::tensor::Tensor;
use whatwhere_attention::{
    Error,
    bridge::{Operand, Seen, operation},
    projected::{Compared, Projected, linear},
};
use whatwhere_kernels::{
    Pooled,
    layer::{self, Activation, Hidden, Linear, add_to},
};

use crate::{NormPlace, dropout::Dropped, norm::EPSILON};

/// What stands around a sublayer: norm, dropout and the residual stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residual {
    pub(crate) place: NormPlace,
    /// Whether the norm takes the mean away.
    pub(crate) is_centred: bool,
    pub(crate) dropped: Option<Dropped>,
    /// Whether the backward pass forms again what stands between, instead of keeping it.
    pub(crate) recomputes: bool,
}

/// What the backward pass needs.
struct SavedForBackward<K> {
    /// What the norm gives, or what it is given where it stands last.
    normed: Pooled,
    /// Mean and scale of each row.
    moments: Pooled,
    inner: K,
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

/// The order of norm, sublayer, dropout and residual, for tensors as for slices: `add` is `x + drop(out)`. Returns the
/// stream after it, and what the norm gave, or what it was given where it stands last.
pub(crate) fn in_order<X: ?Sized, O: Borrow<X>, E>(
    place: NormPlace,
    x: &X,
    norm: impl FnOnce(&X) -> Result<O, E>,
    sublayer: impl FnOnce(&X) -> Result<O, E>,
    add: impl FnOnce(&X, O) -> Result<O, E>,
) -> Result<(O, O), E> {
    match place {
        NormPlace::Pre => {
            let normed = norm(x)?;
            let out = sublayer(normed.borrow())?;
            Ok((add(x, out)?, normed))
        }
        NormPlace::Post => {
            let out = sublayer(x)?;
            let sum = add(x, out)?;
            Ok((norm(sum.borrow())?, sum))
        }
    }
}

/// The operation on x, the norm's gain and bias, and the sublayer's weights.
pub(crate) fn fused<S: Sublayer, const N: usize>(
    sublayer: S,
    residual: Residual,
    operands: [Operand; N],
    shape: [usize; 3],
) -> Result<Tensor<3>, Error> {
    let (out, saved) = residual.forward(&sublayer, &operands.each_ref().map(Operand::values))?;
    let kept = Mutex::new((!residual.recomputes).then_some(saved));
    Ok(operation(operands, shape, out, move |seen: Seen<N>| {
        const CHECKED: &str = "the forward pass has checked the same call";
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let saved = match kept {
            Some(saved) => saved,
            None => residual.forward(&sublayer, &seen.operands).expect(CHECKED).1,
        };
        let made = residual.backward(&sublayer, &seen.operands, saved, seen.d_out).expect(CHECKED);
        made.try_into().expect("as many gradients as operands")
    }))
}

impl Residual {
    fn forward<S: Sublayer>(
        &self,
        sublayer: &S,
        operands: &[&[f32]],
    ) -> Result<(Pooled, SavedForBackward<S::Saved>), Error> {
        let &[x, gain, bias, ref weights @ ..] = operands else { unreachable!("three and more") };
        let mut moments = Pooled::uncleared(x.len() / gain.len().max(1) * 2);
        let mut saved = None;
        let (out, normed) = in_order::<[f32], Pooled, Error>(
            self.place,
            x,
            |x| {
                let mut normed = Pooled::uncleared(x.len());
                self.norm(gain, bias).forward(x, &mut normed, &mut moments)?;
                Ok(normed)
            },
            |x| {
                let (out, inner) = sublayer.forward(x, weights)?;
                saved = Some(inner);
                Ok(out)
            },
            |x, mut out| {
                self.drop(&mut out);
                add_to(&mut out, x)?;
                Ok(out)
            },
        )?;
        let inner = saved.expect("a sublayer is called once");
        Ok((out, SavedForBackward { normed, moments, inner }))
    }

    fn backward<S: Sublayer>(
        &self,
        sublayer: &S,
        operands: &[&[f32]],
        saved: SavedForBackward<S::Saved>,
        d_out: &[f32],
    ) -> Result<Vec<Pooled>, Error> {
        let &[x, gain, bias, ref weights @ ..] = operands else { unreachable!("three and more") };
        let norm = self.norm(gain, bias);
        let SavedForBackward { normed, moments, inner } = saved;
        let (mut d_gain, mut d_bias) =
            (Pooled::uncleared(gain.len()), Pooled::uncleared(bias.len()));
        let (d_x, d_weights) = match self.place {
            NormPlace::Pre => {
                let dropped = self.dropped.map(|_| self.dropped_copy(d_out));
                let d_made = dropped.as_deref().unwrap_or(d_out);
                let (d_normed, d_weights) = sublayer.backward(&normed, weights, &inner, d_made)?;
                let mut d_x = Pooled::of(d_out);
                norm.backward(x, &moments, &d_normed, &mut d_x, &mut d_gain, &mut d_bias)?;
                (d_x, d_weights)
            }
            NormPlace::Post => {
                let mut d_sum = Pooled::zeros(x.len());
                norm.backward(&normed, &moments, d_out, &mut d_sum, &mut d_gain, &mut d_bias)?;
                let dropped = self.dropped.map(|_| self.dropped_copy(&d_sum));
                let d_made = dropped.as_deref().unwrap_or(&d_sum);
                let (mut d_x, d_weights) = sublayer.backward(x, weights, &inner, d_made)?;
                add_to(&mut d_x, &d_sum)?;
                (d_x, d_weights)
            }
        };
        Ok([d_x, d_gain, d_bias].into_iter().chain(d_weights).collect())
    }

    fn norm<'a>(&self, gain: &'a [f32], bias: &'a [f32]) -> layer::Norm<'a> {
        let bias = (!bias.is_empty()).then_some(bias);
        layer::Norm { is_centred: self.is_centred, epsilon: EPSILON as f32, gain, bias }
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

/// A feed-forward; its weights are those of up, gate and down, each with its bias, empty where there is none.
pub(crate) struct FeedForward {
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) activation: Activation,
}

impl FeedForward {
    fn call<'a>(&self, weights: &[&'a [f32]]) -> layer::FeedForward<'a> {
        let &[up, up_bias, gate, gate_bias, down, down_bias] = weights else {
            unreachable!("three weights and biases")
        };
        let wide = |weight, bias| -> Linear<'a> { linear(weight, bias, self.width) };
        layer::FeedForward {
            up: wide(up, up_bias),
            gate: (!gate.is_empty()).then(|| wide(gate, gate_bias)),
            down: linear(down, down_bias, self.inner),
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
