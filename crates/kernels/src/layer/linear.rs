//! A projection of rows, `out = x · weight + bias`, and its gradients.

use std::ops::Range;

use rayon::prelude::*;

use crate::{
    EXACT_ROWS, Error, Pooled, Precision, Simd,
    error::{expect_len, expect_lens, expect_nonzero},
    simd::{gemm::Matrix, gemv::WeightedRows},
};

/// Rows of one task; fixed, so that sums of gradients do not depend on the number of threads.
const ROWS: usize = 64;
/// Tasks of up to [`EXACT_ROWS`] rows: each reads its part of the weights, and the parts' sums are added in order.
const PARTS: usize = 4;
/// Values of one task.
const CHUNK: usize = 1 << 14;

/// A projection from `from` to `to` channels.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// Channels that go in.
    pub from: usize,
    /// Channels that come out.
    pub to: usize,
    /// `[from, to]`.
    pub weight: &'a [f32],
    /// `[to]`.
    pub bias: Option<&'a [f32]>,
    /// What its products are computed in, forward and backward.
    pub precision: Precision,
}

impl Linear<'_> {
    /// Projects every row of `x`.
    pub fn forward(&self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        Self::forward_all([self], x, [out])
    }

    /// Several projections of the same rows.
    pub fn forward_all<const N: usize>(
        all: [&Self; N],
        x: &[f32],
        mut outs: [&mut [f32]; N],
    ) -> Result<(), Error> {
        let (mut rows, mut is_exact) = (0, true);
        for (linear, out) in all.iter().zip(&outs) {
            rows = linear.check(x, &[("out", out.len())])?;
            is_exact &= linear.precision == Precision::F32;
        }
        if rows <= EXACT_ROWS && is_exact {
            gemv(&all, x, &mut outs);
        } else {
            for (linear, out) in all.iter().zip(&mut outs) {
                let x = Matrix::new(x, rows, linear.from);
                linear.precision.product(out, false, x, linear.matrix());
            }
        }
        for (linear, out) in all.iter().zip(outs) {
            if let Some(bias) = linear.bias {
                add_bias(out, bias);
            }
        }
        Ok(())
    }

    /// The gradient of `x`, which replaces what `d_x` held or, if `adds`, is added to it.
    pub fn backward(&self, d_out: &[f32], d_x: &mut [f32], adds: bool) -> Result<(), Error> {
        let rows = self.check(d_x, &[("d_out", d_out.len())])?;
        let d_out = Matrix::new(d_out, rows, self.to);
        self.precision.product(d_x, adds, d_out, self.matrix().transposed());
        Ok(())
    }

    /// The gradients of weight and bias, which replace what the slices held; `d_bias` is empty where there is none.
    pub fn backward_weights(
        &self,
        x: &[f32],
        d_out: &[f32],
        d_weight: &mut [f32],
        d_bias: &mut [f32],
    ) -> Result<(), Error> {
        let rows = self.check(x, &[("d_out", d_out.len())])?;
        expect_lens([
            ("d_weight", d_weight.len(), self.weight.len()),
            ("d_bias", d_bias.len(), self.bias.map_or(0, <[f32]>::len)),
        ])?;
        let x = Matrix::new(x, rows, self.from).transposed();
        self.precision.product(d_weight, false, x, Matrix::new(d_out, rows, self.to));
        if !d_bias.is_empty() {
            sum_rows(d_out, d_bias);
        }
        Ok(())
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix::new(self.weight, self.from, self.to)
    }

    /// The number of rows; `others` have as many of `to` channels.
    fn check(&self, x: &[f32], others: &[(&'static str, usize)]) -> Result<usize, Error> {
        let Self { from, to, .. } = *self;
        expect_nonzero([("from", from), ("to", to)])?;
        let rows = x.len() / from;
        let bias = self.bias.map(|bias| ("bias", bias.len(), to));
        let lengths = [("x", x.len(), rows * from), ("weight", self.weight.len(), from * to)];
        let others = others.iter().map(|(what, found)| (*what, *found, rows * to));
        expect_lens(lengths.into_iter().chain(bias).chain(others))?;
        Ok(rows)
    }
}

/// Up to [`EXACT_ROWS`] rows: all weights are read once and in order, by all threads, and nothing is packed.
fn gemv(all: &[&Linear], x: &[f32], outs: &mut [&mut [f32]]) {
    /// Some channels of the input through one projection.
    struct Part<'a> {
        linear: &'a Linear<'a>,
        channels: Range<usize>,
        sums: &'a mut [f32],
    }

    let simd = Simd::detect();
    let part = |linear: &Linear| linear.from.div_ceil(PARTS).next_multiple_of(4);
    let parts = |linear: &Linear| linear.from.div_ceil(part(linear));
    let mut sums =
        Pooled::uncleared(all.iter().zip(&*outs).map(|(d, out)| parts(d) * out.len()).sum());
    let mut tasks = Vec::with_capacity(all.len() * PARTS);
    let mut free = &mut *sums;
    for (linear, out) in all.iter().zip(&*outs) {
        for first in (0..linear.from).step_by(part(linear)) {
            let channels = first..linear.from.min(first + part(linear));
            let sums = free.split_off_mut(..out.len()).expect("room for every part");
            tasks.push(Part { linear, channels, sums });
        }
    }
    tasks.into_par_iter().with_max_len(1).for_each(|Part { linear, channels, sums }| {
        let Linear { from, to, weight, .. } = *linear;
        simd.run(WeightedRows { from, to, weight, x, channels, sums });
    });
    let mut made = &*sums;
    for (linear, out) in all.iter().zip(outs) {
        for part in 0..parts(linear) {
            let sums = made.split_off(..out.len()).expect("room for every part");
            if part == 0 {
                out.copy_from_slice(sums);
            } else {
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
            }
        }
    }
}

/// Adds values to as many others.
pub fn add_to(sum: &mut [f32], more: &[f32]) -> Result<(), Error> {
    expect_len("more", more.len(), sum.len())?;
    let simd = Simd::detect();
    sum.par_chunks_mut(CHUNK).zip(more.par_chunks(CHUNK)).for_each(|(sum, more)| {
        simd.run(
            #[inline(always)]
            || {
                for (sum, more) in sum.iter_mut().zip(more) {
                    *sum += more;
                }
            },
        );
    });
    Ok(())
}

/// Adds a bias to every row.
fn add_bias(rows: &mut [f32], bias: &[f32]) {
    let simd = Simd::detect();
    rows.par_chunks_mut(ROWS * bias.len()).for_each(|rows| {
        simd.run(
            #[inline(always)]
            || {
                for row in rows.chunks_exact_mut(bias.len()) {
                    for (value, bias) in row.iter_mut().zip(bias) {
                        *value += bias;
                    }
                }
            },
        );
    });
}

/// The sum of all rows, as long as one.
pub(crate) fn sum_rows(rows: &[f32], sum: &mut [f32]) {
    let simd = Simd::detect();
    let width = sum.len();
    let parts: Vec<Vec<f32>> = rows
        .par_chunks(ROWS * width)
        .map(|rows| {
            let mut part = vec![0.0; width];
            simd.run(
                #[inline(always)]
                || {
                    for row in rows.chunks_exact(width) {
                        for (sum, value) in part.iter_mut().zip(row) {
                            *sum += value;
                        }
                    }
                },
            );
            part
        })
        .collect();
    sum.fill(0.0);
    for part in parts {
        for (sum, part) in sum.iter_mut().zip(part) {
            *sum += part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    fn assert_close(found: &[f32], expected: impl Fn(usize) -> f64) {
        for (i, found) in found.iter().enumerate() {
            // Sums of up to 130 products in f32.
            let expected = expected(i);
            assert!((f64::from(*found) - expected).abs() < 1e-3, "{i}: {found} {expected}");
        }
    }

    #[test]
    fn values_and_gradients_agree_with_the_definition() {
        for (rows, from, to) in
            [(1, 1, 1), (3, 5, 2), (2, 7, 600), (4, 70, 9), (8, 90, 150), (130, 16, 33)]
        {
            let (x, weight, bias) =
                (numbers(rows * from, 1), numbers(from * to, 2), numbers(to, 3));
            let d_out = numbers(rows * to, 4);
            let at = |values: &[f32], i: usize| f64::from(values[i]);
            for bias in [None, Some(bias.as_slice())] {
                let linear = Linear { from, to, weight: &weight, bias, precision: Precision::F32 };
                let mut out = vec![f32::NAN; rows * to];
                linear.forward(&x, &mut out).unwrap();
                assert_close(&out, |i| {
                    let (row, column) = (i / to, i % to);
                    let products =
                        (0..from).map(|c| at(&x, row * from + c) * at(&weight, c * to + column));
                    products.sum::<f64>() + bias.map_or(0.0, |bias| at(bias, column))
                });
                let mut d_x = vec![1.0; x.len()];
                linear.backward(&d_out, &mut d_x, true).unwrap();
                assert_close(&d_x, |i| {
                    let (row, channel) = (i / from, i % from);
                    let products =
                        (0..to).map(|c| at(&d_out, row * to + c) * at(&weight, channel * to + c));
                    1.0 + products.sum::<f64>()
                });
                let mut d_weight = vec![f32::NAN; weight.len()];
                let mut d_bias = vec![f32::NAN; bias.map_or(0, <[f32]>::len)];
                linear.backward_weights(&x, &d_out, &mut d_weight, &mut d_bias).unwrap();
                assert_close(&d_weight, |i| {
                    let (channel, column) = (i / to, i % to);
                    (0..rows)
                        .map(|r| at(&x, r * from + channel) * at(&d_out, r * to + column))
                        .sum()
                });
                assert_close(&d_bias, |column| {
                    (0..rows).map(|r| at(&d_out, r * to + column)).sum()
                });
            }
        }
    }

    #[test]
    fn a_row_among_a_few_is_projected_as_by_itself() {
        for (from, to) in [(3, 5), (70, 70), (67, 333)] {
            let (weight, x) = (numbers(from * to, 1), numbers(EXACT_ROWS * from, 2));
            let linear =
                Linear { from, to, weight: &weight, bias: None, precision: Precision::F32 };
            let mut alone = vec![0.0; EXACT_ROWS * to];
            for (x, out) in x.chunks_exact(from).zip(alone.chunks_exact_mut(to)) {
                linear.forward(x, out).unwrap();
            }
            for rows in 1..=EXACT_ROWS {
                let mut out = vec![0.0; rows * to];
                linear.forward(&x[..rows * from], &mut out).unwrap();
                assert_eq!(out, alone[..rows * to], "{rows} rows, {from} × {to}");
            }
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let linear =
            Linear { from: 2, to: 3, weight: &[0.0; 6], bias: None, precision: Precision::F32 };
        assert!(linear.forward(&[0.0; 3], &mut [0.0; 3]).is_err());
        assert!(linear.forward(&[0.0; 2], &mut [0.0; 2]).is_err());
        assert!(Linear { weight: &[0.0; 5], ..linear }.forward(&[0.0; 2], &mut [0.0; 3]).is_err());
        assert!(
            linear.backward_weights(&[0.0; 2], &[0.0; 3], &mut [0.0; 6], &mut [0.0; 3]).is_err()
        );
    }
}
