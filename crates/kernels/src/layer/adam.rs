//! Adam's update of weights, and the length of gradients, over slices.

use rayon::prelude::*;

use crate::{Error, Simd, error::expect_lens};

/// Values of one task; fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 15;
/// Sums kept apart while a chunk is read.
const LANES: usize = 16;

/// One update: `m = β₁ m + (1 − β₁) g`, `s = β₂ s + (1 − β₂) g²`, `w = keep · w − rate · m / (root · √s + ε)`.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// How much of the mean gradient stays.
    pub beta1: f32,
    /// How much of the mean square stays.
    pub beta2: f32,
    /// Added to the root of the mean square.
    pub epsilon: f32,
    /// The learning rate, over what the mean lacks in the first updates.
    pub rate: f32,
    /// Factor on the root, for what the mean square lacks in the first updates.
    pub root: f32,
    /// What weight decay leaves of a weight.
    pub keep: f32,
    /// Factor on the gradient: the share of a token, and what clipping leaves.
    pub factor: f32,
}

impl Adam {
    /// Updates weights and both means.
    pub fn update(
        &self,
        weights: &mut [f32],
        gradient: &[f32],
        means: &mut [f32],
        squares: &mut [f32],
    ) -> Result<(), Error> {
        let expected = weights.len();
        expect_lens([
            ("gradient", gradient.len(), expected),
            ("means", means.len(), expected),
            ("squares", squares.len(), expected),
        ])?;
        let simd = Simd::detect();
        weights
            .par_chunks_mut(CHUNK)
            .zip(gradient.par_chunks(CHUNK))
            .zip(means.par_chunks_mut(CHUNK).zip(squares.par_chunks_mut(CHUNK)))
            .for_each(|((weights, gradient), (means, squares))| {
                simd.run(
                    #[inline(always)]
                    || self.chunk(weights, gradient, means, squares),
                );
            });
        Ok(())
    }

    #[inline(always)]
    fn chunk(&self, weights: &mut [f32], gradient: &[f32], means: &mut [f32], squares: &mut [f32]) {
        let Self { beta1, beta2, epsilon, rate, root, keep, factor } = *self;
        for (((weight, g), mean), square) in
            weights.iter_mut().zip(gradient).zip(means).zip(squares)
        {
            let g = g * factor;
            *mean = beta1 * *mean + (1.0 - beta1) * g;
            *square = beta2 * *square + (1.0 - beta2) * g * g;
            *weight = *weight * keep - rate * *mean / (square.sqrt() * root + epsilon);
        }
    }
}

/// The sum of squares, added up in f64.
pub fn square_sum(values: &[f32]) -> f64 {
    let simd = Simd::detect();
    let parts: Vec<f64> = values
        .par_chunks(CHUNK)
        .map(|chunk| {
            let mut sums = [0.0f64; LANES];
            simd.run(
                #[inline(always)]
                || {
                    let (lines, rest) = chunk.as_chunks::<LANES>();
                    for line in lines {
                        for (sum, value) in sums.iter_mut().zip(line) {
                            *sum += f64::from(*value) * f64::from(*value);
                        }
                    }
                    for (sum, value) in sums.iter_mut().zip(rest) {
                        *sum += f64::from(*value) * f64::from(*value);
                    }
                },
            );
            sums.iter().sum()
        })
        .collect();
    parts.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_the_formula() {
        let adam = Adam {
            beta1: 0.9,
            beta2: 0.5,
            epsilon: 0.1,
            rate: 0.01,
            root: 2.0,
            keep: 0.75,
            factor: 0.5,
        };
        let count = 100_003;
        let numbers = |seed: usize| {
            (0..count).map(|i| ((i * 37 + seed) % 19) as f32 / 5.0).collect::<Vec<_>>()
        };
        let (weights, gradient, means, squares) = (numbers(1), numbers(2), numbers(3), numbers(4));
        let (mut w, mut m, mut s) = (weights.clone(), means.clone(), squares.clone());
        adam.update(&mut w, &gradient, &mut m, &mut s).unwrap();
        for i in 0..count {
            let g = 0.5 * gradient[i];
            let mean = 0.9 * means[i] + 0.1 * g;
            let square = 0.5 * squares[i] + 0.5 * g * g;
            let weight = 0.75 * weights[i] - 0.01 * mean / (2.0 * square.sqrt() + 0.1);
            assert!((m[i] - mean).abs() < 1e-5 && (s[i] - square).abs() < 1e-5);
            assert!((w[i] - weight).abs() < 1e-5);
        }
        assert!(adam.update(&mut w, &gradient[1..], &mut m, &mut s).is_err());
    }

    #[test]
    fn the_sum_of_squares_is_exact_for_small_integers() {
        let values: Vec<f32> = (0..70_001).map(|i| (i % 7) as f32).collect();
        let expected: f64 = values.iter().map(|v| f64::from(*v).powi(2)).sum();
        assert_eq!(square_sum(&values), expected);
    }
}
