//! Norms of rows: `y = gain · (x − m) · r + bias` with `r = 1/√(mean (x − m)² + ε)`; `m` is the row's mean, or 0.
//!
//! With `x̂ = (x − m) r` and `g = gain · d_y`: `d_x = r (g − x̂ · mean(g x̂) − [mean g if centered])`.

use rayon::prelude::*;

use crate::{
    Error, Simd,
    error::{expect_lens, expect_nonzero},
};

/// Rows of one task; fixed, so that sums of gradients do not depend on the number of threads.
const ROWS: usize = 64;

/// Sums saved apart while a row is read: as many as the widest vectors hold.
const LANES: usize = 16;

/// A norm over rows of `gain.len()` values.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// Whether the mean is subtracted first.
    pub is_centered: bool,
    /// Added under the root.
    pub epsilon: f32,
    /// Factor on each channel.
    pub gain: &'a [f32],
    /// Added to each channel.
    pub bias: Option<&'a [f32]>,
}

impl Norm<'_> {
    /// Normalises every row of `x` into `out`, and keeps mean and scale of each row in `saved`, two values per row.
    pub fn forward(&self, x: &[f32], out: &mut [f32], saved: &mut [f32]) -> Result<(), Error> {
        let width = self.check(x, &[("out", out.len())], saved)?;
        let simd = Simd::detect();
        let rows = out.par_chunks_mut(ROWS * width).zip(saved.par_chunks_mut(ROWS * 2));
        rows.zip(x.par_chunks(ROWS * width)).for_each(|((out, saved), x)| {
            simd.run(
                #[inline(always)]
                || {
                    let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
                    for ((x, out), saved) in rows.zip(saved.chunks_exact_mut(2)) {
                        let (mean, scale) = self.moments(x);
                        (saved[0], saved[1]) = (mean, scale);
                        for ((out, x), gain) in out.iter_mut().zip(x).zip(self.gain) {
                            *out = (x - mean) * scale * gain;
                        }
                        for (out, bias) in out.iter_mut().zip(self.bias.into_iter().flatten()) {
                            *out += bias;
                        }
                    }
                },
            );
        });
        Ok(())
    }

    /// The gradients of x, gain and bias. That of x is added to what `d_x` holds, the others replace what their slices
    /// held; `d_bias` is empty where there is no bias.
    pub fn backward(
        &self,
        x: &[f32],
        saved: &[f32],
        d_out: &[f32],
        d_x: &mut [f32],
        d_gain: &mut [f32],
        d_bias: &mut [f32],
    ) -> Result<(), Error> {
        let width = self.check(x, &[("d_out", d_out.len()), ("d_x", d_x.len())], saved)?;
        expect_lens([
            ("d_gain", d_gain.len(), width),
            ("d_bias", d_bias.len(), self.bias.map_or(0, <[f32]>::len)),
        ])?;
        let simd = Simd::detect();
        let sums: Vec<(Vec<f32>, Vec<f32>)> = d_x
            .par_chunks_mut(ROWS * width)
            .zip(x.par_chunks(ROWS * width).zip(d_out.par_chunks(ROWS * width)))
            .zip(saved.par_chunks(ROWS * 2))
            .map(|((d_x, (x, d_out)), saved)| {
                let mut d_gain = vec![0.0; width];
                let mut d_bias = vec![0.0; self.bias.map_or(0, <[f32]>::len)];
                simd.run(
                    #[inline(always)]
                    || {
                        let rows = x.chunks_exact(width).zip(d_out.chunks_exact(width));
                        let rows = rows.zip(d_x.chunks_exact_mut(width));
                        for (((x, d_out), d_x), saved) in rows.zip(saved.chunks_exact(2)) {
                            self.row_backward(x, saved, d_out, d_x, &mut d_gain, &mut d_bias);
                        }
                    },
                );
                (d_gain, d_bias)
            })
            .collect();
        d_gain.fill(0.0);
        d_bias.fill(0.0);
        for (gain, bias) in sums {
            for (sum, part) in d_gain.iter_mut().zip(gain) {
                *sum += part;
            }
            for (sum, part) in d_bias.iter_mut().zip(bias) {
                *sum += part;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn row_backward(
        &self,
        x: &[f32],
        saved: &[f32],
        d_out: &[f32],
        d_x: &mut [f32],
        d_gain: &mut [f32],
        d_bias: &mut [f32],
    ) {
        let (mean, scale) = (saved[0], saved[1]);
        let share = 1.0 / x.len() as f32;
        let along =
            share * sum([d_out, self.gain, x], |[d, gain, x]| d * gain * (x - mean) * scale);
        let level = match self.is_centered {
            true => share * sum([d_out, self.gain], |[d, gain]| d * gain),
            false => 0.0,
        };
        let read = x.iter().zip(d_out).zip(self.gain);
        for (((x, d), gain), (d_x, d_gain)) in read.zip(d_x.iter_mut().zip(d_gain)) {
            let normal = (x - mean) * scale;
            *d_x += scale * (d * gain - normal * along - level);
            *d_gain += d * normal;
        }
        for (sum, d_out) in d_bias.iter_mut().zip(d_out) {
            *sum += d_out;
        }
    }

    #[inline(always)]
    fn moments(&self, x: &[f32]) -> (f32, f32) {
        let share = 1.0 / x.len() as f32;
        let mean = if self.is_centered { share * sum([x], |[x]| x) } else { 0.0 };
        let square = share * sum([x], |[x]| (x - mean) * (x - mean));
        (mean, 1.0 / (square + self.epsilon).sqrt())
    }

    fn check(
        &self,
        x: &[f32],
        alike: &[(&'static str, usize)],
        saved: &[f32],
    ) -> Result<usize, Error> {
        let width = self.gain.len();
        expect_nonzero([("gain", width)])?;
        let rows = x.len() / width;
        let bias = self.bias.map(|bias| ("bias", bias.len(), width));
        let lengths = [("x", x.len(), rows * width), ("saved", saved.len(), rows * 2)];
        let alike = alike.iter().map(|(what, found)| (*what, *found, x.len()));
        expect_lens(lengths.into_iter().chain(bias).chain(alike))?;
        Ok(width)
    }
}

/// A sum over slices of one length, in a fixed order that the compiler can keep in vectors.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the line is one of each slice")]
fn sum<const N: usize>(slices: [&[f32]; N], value: impl Fn([f32; N]) -> f32) -> f32 {
    let parts = slices.map(<[f32]>::as_chunks::<LANES>);
    let mut lanes = [0.0; LANES];
    // Slices of known length: without checks in the loop, it becomes vectors.
    let lines = parts[0].0.len();
    let whole = parts.map(|(whole, _)| &whole[..lines]);
    for line in 0..lines {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += value(std::array::from_fn(|slice| whole[slice][line][lane]));
        }
    }
    let rest = parts.map(|(_, rest)| rest);
    for (lane, sum) in lanes.iter_mut().enumerate().take(rest[0].len()) {
        *sum += value(std::array::from_fn(|slice| rest[slice][lane]));
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    /// `Σ d_out · norm(x)` by the definition, in f64.
    fn dot(norm: &Norm, x: &[f64], gain: &[f64], bias: &[f64], d_out: &[f32]) -> f64 {
        let width = gain.len();
        let rows = x.chunks(width).zip(d_out.chunks(width));
        let each = rows.map(|(x, d_out)| {
            let mean = if norm.is_centered { x.iter().sum::<f64>() / width as f64 } else { 0.0 };
            let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            let scale = 1.0 / (square + f64::from(norm.epsilon)).sqrt();
            let value = |i: usize| (x[i] - mean) * scale * gain[i] + bias.get(i).unwrap_or(&0.0);
            (0..width).map(|i| value(i) * f64::from(d_out[i])).sum::<f64>()
        });
        each.sum()
    }

    #[test]
    fn values_and_gradients_agree_with_the_definition() {
        for (rows, width) in [(1, 1), (3, 5), (70, 16), (130, 33)] {
            for is_centered in [false, true] {
                for has_bias in [false, true] {
                    let (x, d_out) = (numbers(rows * width, 1), numbers(rows * width, 9));
                    let (gain, bias) = (numbers(width, 3), numbers(width, 4));
                    let bias = if has_bias { bias } else { Vec::new() };
                    let norm = Norm {
                        is_centered,
                        epsilon: 1e-2,
                        gain: &gain,
                        bias: has_bias.then_some(&bias),
                    };
                    against_the_definition(&norm, &x, &d_out);
                }
            }
        }
    }

    fn against_the_definition(norm: &Norm, x: &[f32], d_out: &[f32]) {
        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let width = norm.gain.len();
        let bias = norm.bias.unwrap_or(&[]);
        let mut out = vec![f32::NAN; x.len()];
        let mut saved = vec![f32::NAN; 2 * x.len() / width];
        norm.forward(x, &mut out, &mut saved).unwrap();
        let [mut d_gain, mut d_bias] = [width, bias.len()].map(|length| vec![f32::NAN; length]);
        let mut d_x = vec![1.0; x.len()];
        norm.backward(x, &saved, d_out, &mut d_x, &mut d_gain, &mut d_bias).unwrap();
        d_x.iter_mut().for_each(|d_x| *d_x -= 1.0);
        let slots = [wide(x), wide(norm.gain), wide(bias)];
        let value = |slots: &[Vec<f64>; 3]| dot(norm, &slots[0], &slots[1], &slots[2], d_out);
        let found: f64 = out.iter().zip(d_out).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        assert!((found - value(&slots)).abs() < 1e-3, "{norm:?}");
        for (slot, gradient) in [d_x, d_gain, d_bias].iter().enumerate() {
            for (at, found) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut slots = slots.clone();
                    slots[slot][at] += by;
                    value(&slots)
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                // Sums over up to 130 rows in f32.
                assert!(
                    (slope - f64::from(*found)).abs() < 2e-3 + 1e-4 * slope.abs(),
                    "{slot} {at}: {slope} {found}"
                );
            }
        }
    }
}
