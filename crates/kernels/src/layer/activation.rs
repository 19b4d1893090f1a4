//! The activations of a feed-forward, value by value, and their gradients from what went in.

use rayon::prelude::*;

use crate::{Error, Simd};

/// Values of one task.
const CHUNK: usize = 1 << 13;

/// A activation of single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x · Φ(x)` with the normal distribution Φ.
    Gelu,
    /// `x · ½(1 + tanh(√(2/π)(x + 0.044715 x³)))`.
    GeluTanh,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 3] = [Self::Relu, Self::Gelu, Self::GeluTanh];

    /// Activates every value.
    pub fn forward(self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        same(x.len(), &[("out", out.len())])?;
        let simd = Simd::detect();
        out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(out, x)| {
            simd.run(
                #[inline(always)]
                || match self {
                    Self::Relu => map(x, out, |x| x.max(0.0)),
                    Self::Gelu => map(x, out, |x| x * distribution(x)),
                    Self::GeluTanh => map(x, out, |x| x * sigmoid(2.0 * inner(x).0)),
                },
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
                || match self {
                    Self::Relu => map2(x, d_out, d_x, |x, d| if x > 0.0 { d } else { 0.0 }),
                    Self::Gelu => {
                        map2(x, d_out, d_x, |x, d| d * (distribution(x) + x * density(x)))
                    }
                    Self::GeluTanh => map2(x, d_out, d_x, |x, d| {
                        let (inside, slope) = inner(x);
                        let half = sigmoid(2.0 * inside);
                        d * (half + x * 2.0 * half * (1.0 - half) * slope)
                    }),
                },
            );
        });
        Ok(())
    }
}

impl Activation {
    /// The gradient of x in place of `d`, and the activated values in `out`: what the backward pass of a feed-forward needs.
    pub fn both(self, x: &[f32], d: &mut [f32], out: &mut [f32]) -> Result<(), Error> {
        same(x.len(), &[("d", d.len()), ("out", out.len())])?;
        let simd = Simd::detect();
        let chunks =
            d.par_chunks_mut(CHUNK).zip(out.par_chunks_mut(CHUNK)).zip(x.par_chunks(CHUNK));
        chunks.for_each(|((d, out), x)| {
            simd.run(
                #[inline(always)]
                || match self {
                    Self::Relu => map_both(x, d, out, |x| (x.max(0.0), f32::from(x > 0.0))),
                    Self::Gelu => map_both(x, d, out, |x| {
                        let share = distribution(x);
                        (x * share, share + x * density(x))
                    }),
                    Self::GeluTanh => map_both(x, d, out, |x| {
                        let (inside, slope) = inner(x);
                        let half = sigmoid(2.0 * inside);
                        (x * half, half + x * 2.0 * half * (1.0 - half) * slope)
                    }),
                },
            );
        });
        Ok(())
    }
}

/// `silu(gate) · up`, with `silu(x) = x / (1 + e^−x)`.
#[derive(Clone, Copy, Debug)]
pub struct SwiGlu;

impl SwiGlu {
    /// The product.
    pub fn forward(self, gate: &[f32], up: &[f32], out: &mut [f32]) -> Result<(), Error> {
        same(gate.len(), &[("up", up.len()), ("out", out.len())])?;
        let simd = Simd::detect();
        let chunks =
            out.par_chunks_mut(CHUNK).zip(gate.par_chunks(CHUNK).zip(up.par_chunks(CHUNK)));
        chunks.for_each(|(out, (gate, up))| {
            simd.run(
                #[inline(always)]
                || map2(gate, up, out, |gate, up| gate * sigmoid(gate) * up),
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
                    for i in 0..gate.len() {
                        let share = sigmoid(gate[i]);
                        d_up[i] = d_out[i] * gate[i] * share;
                        d_gate[i] = d_out[i] * up[i] * share * (1.0 + gate[i] * (1.0 - share));
                    }
                },
            );
        });
        Ok(())
    }
}

impl SwiGlu {
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
                || {
                    for i in 0..gate.len() {
                        let share = sigmoid(gate[i]);
                        let silu = gate[i] * share;
                        d_gate[i] = d[i] * up[i] * share * (1.0 + gate[i] * (1.0 - share));
                        d[i] *= silu;
                        out[i] = silu * up[i];
                    }
                },
            );
        });
        Ok(())
    }
}

fn same(length: usize, others: &[(&'static str, usize)]) -> Result<(), Error> {
    match others.iter().find(|(_, found)| *found != length) {
        Some((what, found)) => Err(Error::Length { what, found: *found, expected: length }),
        None => Ok(()),
    }
}

#[inline(always)]
fn map(x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f(*x);
    }
}

#[inline(always)]
fn map2(x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = f(*x, *y);
    }
}

/// `out = value(x)`, `d *= slope(x)`, for an `f` that gives both.
#[inline(always)]
fn map_both(x: &[f32], d: &mut [f32], out: &mut [f32], f: impl Fn(f32) -> (f32, f32)) {
    for ((d, out), x) in d.iter_mut().zip(out).zip(x) {
        let (value, slope) = f(*x);
        *out = value;
        *d *= slope;
    }
}

/// `e^x` by a polynomial that the compiler can vectorise, relative error below 3e-7 in [−87, 88]; beyond, the bound's.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E;
    // Adding 1.5·2²³ rounds to an integer and leaves it in the low bits.
    let rounded = x + 12_582_912.0;
    let fraction = x - (rounded - 12_582_912.0);
    let power = 0.001_327_646_7f32;
    let power = power * fraction + 0.009_675_542;
    let power = power * fraction + 0.055_507_135;
    let power = power * fraction + 0.240_221_2;
    let power = power * fraction + 0.693_146_97;
    let power = power * fraction + 1.000_000_1;
    f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23))
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
        }
    }

    #[test]
    fn bends_and_their_slopes_agree_with_the_definition() {
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
    fn the_gate_and_its_slopes_agree_with_the_definition() {
        let gate: Vec<f32> = (0..2001).map(|i| (i as f32 - 1000.0) / 60.0).collect();
        let up: Vec<f32> = (0..2001).map(|i| (i % 13) as f32 / 5.0 - 1.0).collect();
        let exact = |gate: f64, up: f64| gate / (1.0 + (-gate).exp()) * up;
        let [mut out, mut d_gate, mut d_up] = [0; 3].map(|_| vec![f32::NAN; gate.len()]);
        SwiGlu.forward(&gate, &up, &mut out).unwrap();
        SwiGlu.backward(&gate, &up, &vec![1.0; 2001], &mut d_gate, &mut d_up).unwrap();
        let [mut again, mut d_again] = [0; 2].map(|_| vec![f32::NAN; gate.len()]);
        let mut d = vec![1.0; gate.len()];
        SwiGlu.both(&gate, &up, &mut d, &mut d_again, &mut again).unwrap();
        assert!((&d, &d_again, &again) == (&d_up, &d_gate, &out));
        for i in 0..gate.len() {
            let (g, u) = (f64::from(gate[i]), f64::from(up[i]));
            assert!((f64::from(out[i]) - exact(g, u)).abs() < 5e-6);
            let slope = (exact(g + 1e-5, u) - exact(g - 1e-5, u)) / 2e-5;
            assert!((f64::from(d_gate[i]) - slope).abs() < 5e-6);
            assert!((f64::from(d_up[i]) - exact(g, 1.0)).abs() < 5e-6);
        }
    }

    #[test]
    fn lengths_that_differ_are_refused() {
        assert!(Activation::Relu.forward(&[0.0; 3], &mut [0.0; 2]).is_err());
        assert!(SwiGlu.forward(&[0.0; 3], &[0.0; 2], &mut [0.0; 3]).is_err());
    }
}
