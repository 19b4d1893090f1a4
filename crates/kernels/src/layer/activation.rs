//! The activations of a feed-forward, value by value, and their gradients from what went in.

use rayon::prelude::*;

use crate::{Error, Simd, error::expect_lens, simd::math::exp_scalar as exp};

/// Values of one task.
const CHUNK: usize = 1 << 13;

/// An activation of single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)` with the normal distribution Φ.
    Gelu,
    /// `x · ½(1 + tanh(√(2/π)(x + 0.044715 x³)))`.
    GeluTanh,
    /// `x / (1 + e^−x)`.
    Silu,
}

/// Calls a function with the curve of an activation as its type, so that every loop is compiled for one curve.
macro_rules! by_curve {
    ($activation:expr, $function:ident ( $($argument:expr),* )) => {
        match $activation {
            Activation::Relu => $function::<Relu>($($argument),*),
            Activation::Gelu => $function::<Gelu>($($argument),*),
            Activation::GeluTanh => $function::<GeluTanh>($($argument),*),
            Activation::Silu => $function::<Silu>($($argument),*),
        }
    };
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::GeluTanh, Self::Silu];

    /// Activates every value.
    pub fn forward(self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        same(x.len(), &[("out", out.len())])?;
        let simd = Simd::detect();
        out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(out, x)| {
            simd.run(
                #[inline(always)]
                || by_curve!(self, values(x, out)),
            );
        });
        Ok(())
    }

    /// The gradient of x.
    pub fn backward(self, x: &[f32], d_out: &[f32], d_x: &mut [f32]) -> Result<(), Error> {
        same(x.len(), &[("d_out", d_out.len()), ("d_x", d_x.len())])?;
        let simd = Simd::detect();
        let chunks =
            d_x.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK).zip(d_out.par_chunks(CHUNK)));
        chunks.for_each(|(d_x, (x, d_out))| {
            simd.run(
                #[inline(always)]
                || by_curve!(self, slopes(x, d_out, d_x)),
            );
        });
        Ok(())
    }

    /// The gradient of x in place of `d`, and the activated values in `out`: what the backward pass of a feed-forward needs.
    pub fn both(self, x: &[f32], d: &mut [f32], out: &mut [f32]) -> Result<(), Error> {
        same(x.len(), &[("d", d.len()), ("out", out.len())])?;
        let simd = Simd::detect();
        let chunks =
            d.par_chunks_mut(CHUNK).zip(out.par_chunks_mut(CHUNK)).zip(x.par_chunks(CHUNK));
        chunks.for_each(|((d, out), x)| {
            simd.run(
                #[inline(always)]
                || by_curve!(self, values_and_slopes(x, d, out)),
            );
        });
        Ok(())
    }
}

/// `activation(gate) · up`; with [`Activation::Silu`] it is SwiGLU.
#[derive(Clone, Copy, Debug)]
pub struct Gated(pub Activation);

impl Gated {
    /// The product.
    pub fn forward(self, gate: &[f32], up: &[f32], out: &mut [f32]) -> Result<(), Error> {
        same(gate.len(), &[("up", up.len()), ("out", out.len())])?;
        let simd = Simd::detect();
        let chunks =
            out.par_chunks_mut(CHUNK).zip(gate.par_chunks(CHUNK).zip(up.par_chunks(CHUNK)));
        chunks.for_each(|(out, (gate, up))| {
            simd.run(
                #[inline(always)]
                || by_curve!(self.0, gated(gate, up, out)),
            );
        });
        Ok(())
    }

    /// The gradients of both.
    pub fn backward(
        self,
        gate: &[f32],
        up: &[f32],
        d_out: &[f32],
        d_gate: &mut [f32],
        d_up: &mut [f32],
    ) -> Result<(), Error> {
        let lengths = [
            ("up", up.len()),
            ("d_out", d_out.len()),
            ("d_gate", d_gate.len()),
            ("d_up", d_up.len()),
        ];
        same(gate.len(), &lengths)?;
        let simd = Simd::detect();
        let made = d_gate.par_chunks_mut(CHUNK).zip(d_up.par_chunks_mut(CHUNK));
        let read = gate.par_chunks(CHUNK).zip(up.par_chunks(CHUNK)).zip(d_out.par_chunks(CHUNK));
        made.zip(read).for_each(|((d_gate, d_up), ((gate, up), d_out))| {
            simd.run(
                #[inline(always)]
                || {
                    d_up.copy_from_slice(d_out);
                    by_curve!(self.0, gated_slopes(gate, up, d_up, d_gate));
                },
            );
        });
        Ok(())
    }

    /// The gradients of both, that of `up` in place of `d`, and the product in `out`.
    pub fn both(
        self,
        gate: &[f32],
        up: &[f32],
        d: &mut [f32],
        d_gate: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let lengths =
            [("up", up.len()), ("d", d.len()), ("d_gate", d_gate.len()), ("out", out.len())];
        same(gate.len(), &lengths)?;
        let simd = Simd::detect();
        let made = d.par_chunks_mut(CHUNK).zip(d_gate.par_chunks_mut(CHUNK));
        let made = made.zip(out.par_chunks_mut(CHUNK));
        let read = gate.par_chunks(CHUNK).zip(up.par_chunks(CHUNK));
        made.zip(read).for_each(|(((d, d_gate), out), (gate, up))| {
            simd.run(
                #[inline(always)]
                || by_curve!(self.0, gated_values_and_slopes(gate, up, d, d_gate, out)),
            );
        });
        Ok(())
    }
}

fn same(length: usize, others: &[(&'static str, usize)]) -> Result<(), Error> {
    expect_lens(others.iter().map(|(what, found)| (*what, *found, length)))
}

/// A function of single values, and its slope.
trait Curve {
    fn value(x: f32) -> f32;

    /// The value, and the slope there.
    fn both(x: f32) -> (f32, f32);
}

struct Relu;
struct Gelu;
struct GeluTanh;
struct Silu;

impl Curve for Relu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x.max(0.0)
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        (x.max(0.0), f32::from(x > 0.0))
    }
}

impl Curve for Gelu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * distribution(x)
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        let share = distribution(x);
        (x * share, share + x * density(x))
    }
}

impl Curve for GeluTanh {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * sigmoid(2.0 * inner(x).0)
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        let (inside, slope) = inner(x);
        let half = sigmoid(2.0 * inside);
        (x * half, half + x * 2.0 * half * (1.0 - half) * slope)
    }
}

impl Curve for Silu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * sigmoid(x)
    }

    #[inline(always)]
    fn both(x: f32) -> (f32, f32) {
        let share = sigmoid(x);
        (x * share, share * (1.0 + x * (1.0 - share)))
    }
}

#[inline(always)]
fn values<C: Curve>(x: &[f32], out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = C::value(*x);
    }
}

#[inline(always)]
fn slopes<C: Curve>(x: &[f32], d_out: &[f32], d_x: &mut [f32]) {
    for ((d_x, x), d_out) in d_x.iter_mut().zip(x).zip(d_out) {
        *d_x = d_out * C::both(*x).1;
    }
}

/// `out = value(x)`, `d *= slope(x)`.
#[inline(always)]
fn values_and_slopes<C: Curve>(x: &[f32], d: &mut [f32], out: &mut [f32]) {
    for ((d, out), x) in d.iter_mut().zip(out).zip(x) {
        let (value, slope) = C::both(*x);
        *out = value;
        *d *= slope;
    }
}

#[inline(always)]
fn gated<C: Curve>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = C::value(*gate) * up;
    }
}

/// The gradient of `up` in place of `d`, that of the gate beside it.
#[inline(always)]
fn gated_slopes<C: Curve>(gate: &[f32], up: &[f32], d: &mut [f32], d_gate: &mut [f32]) {
    for (((d, d_gate), gate), up) in d.iter_mut().zip(d_gate).zip(gate).zip(up) {
        let (value, slope) = C::both(*gate);
        *d_gate = *d * up * slope;
        *d *= value;
    }
}

#[inline(always)]
fn gated_values_and_slopes<C: Curve>(
    gate: &[f32],
    up: &[f32],
    d: &mut [f32],
    d_gate: &mut [f32],
    out: &mut [f32],
) {
    let made = d.iter_mut().zip(d_gate).zip(out);
    for (((d, d_gate), out), (gate, up)) in made.zip(gate.iter().zip(up)) {
        let (value, slope) = C::both(*gate);
        *d_gate = *d * up * slope;
        *d *= value;
        *out = value * up;
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `e^(−x²/2) / √(2π)`.
#[inline(always)]
fn density(x: f32) -> f32 {
    0.398_942_3 * exp(-0.5 * x * x)
}

/// The normal distribution, absolute error below 4e-7: the rational form 7.1.26 of Abramowitz and Stegun for the error
/// function.
#[inline(always)]
fn distribution(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let sum = 1.061_405_4f32;
    let sum = sum * t - 1.453_152;
    let sum = sum * t + 1.421_413_7;
    let sum = sum * t - 0.284_496_74;
    let sum = sum * t + 0.254_829_6;
    let tail = 0.5 * sum * t * exp(-z * z);
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// What stands inside the tanh, and its slope.
#[inline(always)]
fn inner(x: f32) -> (f32, f32) {
    const ROOT: f32 = 0.797_884_6;
    let square = x * x;
    (ROOT * x * (1.0 + 0.044_715 * square), ROOT * (1.0 + 0.134_145 * square))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The normal distribution in f64, by its Taylor series.
    fn exact_distribution(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / 2.0 * (2 * n - 1) as f64 / (n as f64 * (2 * n + 1) as f64);
            sum += term;
        }
        0.5 + sum / (2.0 * std::f64::consts::PI).sqrt()
    }

    fn exact(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Relu => x.max(0.0),
            Activation::Gelu => x * exact_distribution(x),
            Activation::GeluTanh => {
                let inside = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + inside.tanh())
            }
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    #[test]
    fn activations_and_their_slopes_agree_with_the_definition() {
        // No value where ReLU has its corner; up to ±4, beyond which the series in f64 has no digits left for a slope.
        let x: Vec<f32> = (0..20_001).map(|i| (i as f32 - 10_000.3) / 2500.0).collect();
        for activation in Activation::ALL {
            let mut out = vec![f32::NAN; x.len()];
            activation.forward(&x, &mut out).unwrap();
            let mut d_x = vec![f32::NAN; x.len()];
            activation.backward(&x, &vec![2.0; x.len()], &mut d_x).unwrap();
            let (mut both, mut again) = (vec![2.0; x.len()], vec![f32::NAN; x.len()]);
            activation.both(&x, &mut both, &mut again).unwrap();
            let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close(&both, &d_x) && close(&again, &out), "{activation:?}");
            for ((x, out), d_x) in x.iter().zip(&out).zip(&d_x) {
                let x = f64::from(*x);
                assert!(
                    (f64::from(*out) - exact(activation, x)).abs() < 4e-6,
                    "{activation:?} {x}: {out}"
                );
                let slope = (exact(activation, x + 1e-5) - exact(activation, x - 1e-5)) / 1e-5;
                assert!(
                    (f64::from(*d_x) - slope).abs() < 1e-5,
                    "{activation:?} {x}: {d_x} {slope}"
                );
            }
        }
    }

    #[test]
    fn every_gate_and_its_slopes_agree_with_the_definition() {
        // As above, no value where ReLU has its corner, and up to ±4.
        let gate: Vec<f32> = (0..2001).map(|i| (i as f32 - 1000.3) / 250.0).collect();
        let up: Vec<f32> = (0..2001).map(|i| (i % 13) as f32 / 5.0 - 1.0).collect();
        for activation in Activation::ALL {
            let of = Gated(activation);
            let [mut out, mut d_gate, mut d_up] = [0; 3].map(|_| vec![f32::NAN; gate.len()]);
            of.forward(&gate, &up, &mut out).unwrap();
            of.backward(&gate, &up, &vec![1.0; 2001], &mut d_gate, &mut d_up).unwrap();
            let [mut again, mut d_again] = [0; 2].map(|_| vec![f32::NAN; gate.len()]);
            let mut d = vec![1.0; gate.len()];
            of.both(&gate, &up, &mut d, &mut d_again, &mut again).unwrap();
            assert!((&d, &d_again, &again) == (&d_up, &d_gate, &out), "{activation:?}");
            for i in 0..gate.len() {
                let (g, u) = (f64::from(gate[i]), f64::from(up[i]));
                assert!((f64::from(out[i]) - exact(activation, g) * u).abs() < 8e-6);
                let slope = (exact(activation, g + 1e-5) - exact(activation, g - 1e-5)) / 2e-5;
                assert!((f64::from(d_gate[i]) - slope * u).abs() < 1e-5, "{activation:?} {g}");
                assert!((f64::from(d_up[i]) - exact(activation, g)).abs() < 5e-6);
            }
        }
    }

    #[test]
    fn lengths_that_differ_are_refused() {
        assert!(Activation::Relu.forward(&[0.0; 3], &mut [0.0; 2]).is_err());
        assert!(Gated(Activation::Silu).forward(&[0.0; 3], &[0.0; 2], &mut [0.0; 3]).is_err());
    }
}
