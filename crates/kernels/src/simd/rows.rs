//! Row-wise work on a tile of scores: the steps of softmax and of its gradient.
//!
//! A tile is stored with [`TILE`] columns per row. Operations act on a region of it whose first column and
//! width are multiples of [`PAD`]; columns without a key hold −∞ as scores and 0 everywhere else.

use std::{f32::consts::LOG2_E, ops::Range};

use pulp::{Simd, WithSimd};

use super::math;
use crate::{
    dropout::RowMask,
    tile::{PAD, TILE},
};

/// A rectangle of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) rows: Range<usize>,
    pub(crate) cols: Range<usize>,
}

impl Region {
    /// Where a row's part lies in the tile.
    #[inline(always)]
    pub(crate) fn of(&self, row: usize) -> Range<usize> {
        debug_assert!(self.cols.end <= TILE && self.cols.len().is_multiple_of(PAD));
        row * TILE + self.cols.start..row * TILE + self.cols.end
    }
}

/// One step of online softmax: scores become `exp(score − max)` with the new running maximum,
/// `sum` follows, and `fade` says by how much earlier sums and outputs shrink.
pub(crate) struct Softmax<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    /// One per row of the tile, like `sum` and `fade`.
    pub(crate) max: &'a mut [f32],
    pub(crate) sum: &'a mut [f32],
    pub(crate) fade: &'a mut [f32; TILE],
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        // In three sweeps over the rows rather than one, so that no row waits for the reduction of another (LOG.md).
        let Self { region, scores, max, sum, fade } = self;
        let log2_e = s.splat_f32s(LOG2_E);
        let mut tops = [0.0; TILE];
        for row in region.rows.clone() {
            let mut top = s.splat_f32s(f32::NEG_INFINITY);
            for &score in S::as_simd_f32s(&scores[region.of(row)]).0 {
                top = s.max_f32s(score, top);
            }
            tops[row] = s.reduce_max_f32s(top);
        }
        for row in region.rows.clone() {
            let before = max[row];
            let top = before.max(tops[row]);
            max[row] = top;
            // A row that has seen nothing keeps the base 0, so that exp(−∞) is 0 and NaN stays NaN.
            let base = if top == f32::NEG_INFINITY { 0.0 } else { top };
            fade[row] = before - base;
            tops[row] = base;
        }
        let (fades, rest) = S::as_mut_simd_f32s(&mut fade[region.rows.clone()]);
        for fade in fades {
            *fade = math::exp(s, *fade);
        }
        for fade in rest {
            *fade = fade.exp();
        }
        for row in region.rows.clone() {
            let offset = s.splat_f32s(-tops[row] * LOG2_E);
            let mut total = s.splat_f32s(0.0);
            for score in S::as_mut_simd_f32s(&mut scores[region.of(row)]).0 {
                let weight = math::exp2(s, s.mul_add_e_f32s(*score, log2_e, offset));
                *score = weight;
                total = s.add_f32s(total, weight);
            }
            sum[row] = sum[row] * fade[row] + s.reduce_sum_f32s(total);
        }
    }
}

/// The weights again from their logarithmic sum, `exp(score − log_sum)`; a row that sees nothing gets zeros.
pub(crate) struct Weights<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) log_sum: &'a [f32],
}

impl WithSimd for Weights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let (scores, _) = S::as_mut_simd_f32s(&mut self.scores[self.region.of(row)]);
            let weight = weight_of(s, self.log_sum[row]);
            for score in scores {
                *score = weight(*score);
            }
        }
    }
}

/// `score → exp(score − log_sum)`; a row that sees nothing has the sum −∞ and every weight 0.
#[inline(always)]
fn weight_of<S: Simd>(s: S, log_sum: f32) -> impl Fn(S::f32s) -> S::f32s {
    let base = if log_sum == f32::NEG_INFINITY { f32::INFINITY } else { log_sum };
    let offset = s.splat_f32s(-base * LOG2_E);
    move |score| math::exp2(s, s.mul_add_e_f32s(score, s.splat_f32s(LOG2_E), offset))
}

/// Softmax backward: with the weight `w = exp(score − log_sum)` and its factor `m`, scores become `w·m` and
/// `d_weights` becomes `d_score = w·(d_weight·m − mean)`, where `mean = d_out · out` of the row.
pub(crate) struct SoftmaxBackward<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) d_weights: &'a mut [f32],
    /// Factors of dropout and focus, if any.
    pub(crate) factors: Option<&'a [f32]>,
    /// One per row of the tile, like `mean`.
    pub(crate) log_sum: &'a [f32],
    pub(crate) mean: &'a [f32],
}

impl WithSimd for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let at = self.region.of(row);
            let (scores, _) = S::as_mut_simd_f32s(&mut self.scores[at.clone()]);
            let (d_weights, _) = S::as_mut_simd_f32s(&mut self.d_weights[at.clone()]);
            let weight_of = weight_of(s, self.log_sum[row]);
            let mean = s.splat_f32s(self.mean[row]);
            match self.factors {
                None => {
                    for (score, d) in scores.iter_mut().zip(d_weights) {
                        let weight = weight_of(*score);
                        *score = weight;
                        *d = s.mul_f32s(weight, s.sub_f32s(*d, mean));
                    }
                }
                Some(factors) => {
                    let (factors, _) = S::as_simd_f32s(&factors[at]);
                    for ((score, d), &factor) in scores.iter_mut().zip(d_weights).zip(factors) {
                        let weight = weight_of(*score);
                        *score = s.mul_f32s(weight, factor);
                        let d_kept = s.mul_f32s(*d, factor);
                        *d = s.mul_f32s(weight, s.sub_f32s(d_kept, mean));
                    }
                }
            }
        }
    }
}

/// The gradient of Luong's Gaussian with respect to its center, from `d_weights` before [`SoftmaxBackward`]:
/// `d_center += Σ_key w·m·d_weight · (key − center) / deviation²`.
pub(crate) struct CentersBackward<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a [f32],
    pub(crate) d_weights: &'a [f32],
    pub(crate) factors: &'a [f32],
    /// One per row of the tile, like `centers` and `d_centers`.
    pub(crate) log_sum: &'a [f32],
    pub(crate) centers: &'a [f32],
    pub(crate) deviation: f32,
    /// Place of the tile's first key.
    pub(crate) first_key: usize,
    pub(crate) d_centers: &'a mut [f32],
}

impl WithSimd for CentersBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let at = self.region.of(row);
            let mut weights = [0.0; TILE];
            let weights = &mut weights[..at.len()];
            weights.copy_from_slice(&self.scores[at.clone()]);
            let weight_of = weight_of(s, self.log_sum[row]);
            for weight in S::as_mut_simd_f32s(weights).0 {
                *weight = weight_of(*weight);
            }
            let first = (self.first_key + self.region.cols.start) as f32 - self.centers[row];
            let mut sum = 0.0;
            let rest = self.d_weights[at.clone()].iter().zip(&self.factors[at]);
            for (i, (weight, (d, factor))) in weights.iter().zip(rest).enumerate() {
                sum += weight * factor * d * (first + i as f32);
            }
            self.d_centers[row] += sum / (self.deviation * self.deviation);
        }
    }
}

/// `score = cap · tanh(score / cap)`, and its slope `1 − tanh²` where the backward pass asks for it.
pub(crate) struct SoftCap<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) slopes: Option<&'a mut [f32]>,
    pub(crate) cap: f32,
}

impl WithSimd for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let (cap, inverse) = (s.splat_f32s(self.cap), s.splat_f32s(1.0 / self.cap));
        let one = s.splat_f32s(1.0);
        for row in self.region.rows.clone() {
            let at = self.region.of(row);
            let (scores, _) = S::as_mut_simd_f32s(&mut self.scores[at.clone()]);
            if let Some(slopes) = &mut self.slopes {
                let (slopes, _) = S::as_mut_simd_f32s(&mut slopes[at]);
                for (score, slope) in scores.iter().zip(slopes) {
                    let tanh = math::tanh(s, s.mul_f32s(*score, inverse));
                    *slope = s.sub_f32s(one, s.mul_f32s(tanh, tanh));
                }
            }
            for score in scores {
                *score = s.mul_f32s(cap, math::tanh(s, s.mul_f32s(*score, inverse)));
            }
        }
    }
}

/// Multiplies a region by another tile.
pub(crate) struct Multiply<'a> {
    pub(crate) region: Region,
    pub(crate) values: &'a mut [f32],
    pub(crate) factors: &'a [f32],
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.region.rows.clone() {
            let at = self.region.of(row);
            for (value, factor) in self.values[at.clone()].iter_mut().zip(&self.factors[at]) {
                *value *= factor;
            }
        }
    }
}

/// Multiplies the factors of one row by those of dropout: `factors[i]` belongs to the key at place `first_key + i`.
pub(crate) struct DropoutRow<'a> {
    pub(crate) mask: RowMask,
    pub(crate) first_key: u32,
    pub(crate) factors: &'a mut [f32],
}

impl WithSimd for DropoutRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (i, factor) in self.factors.iter_mut().enumerate() {
            *factor *= self.mask.factor(self.first_key.wrapping_add(i as u32));
        }
    }
}

/// `factors[i] = exp(−(first_key + i − center)² / (2 deviation²))`.
pub(crate) struct FocusRow<'a> {
    pub(crate) center: f32,
    pub(crate) deviation: f32,
    pub(crate) first_key: usize,
    pub(crate) factors: &'a mut [f32],
}

impl WithSimd for FocusRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for (i, factor) in self.factors.iter_mut().enumerate() {
            let far = ((self.first_key + i) as f32 - self.center) / self.deviation;
            *factor = -0.5 * far * far;
        }
        let (vectors, rest) = S::as_mut_simd_f32s(self.factors);
        for exponent in vectors {
            *exponent = math::exp(s, *exponent);
        }
        for exponent in rest {
            *exponent = exponent.exp();
        }
    }
}

/// `values[row] *= factors[row]` for rows of any width.
pub(crate) struct ScaleRows<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) width: usize,
    pub(crate) factors: &'a [f32],
}

impl WithSimd for ScaleRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, &factor) in self.values.chunks_exact_mut(self.width).zip(self.factors) {
            if factor != 1.0 {
                for value in row {
                    *value *= factor;
                }
            }
        }
    }
}

/// `mean[row] = a[row] · b[row]` for rows of any width.
pub(crate) struct DotRows<'a> {
    pub(crate) a: &'a [f32],
    pub(crate) b: &'a [f32],
    pub(crate) width: usize,
    pub(crate) dots: &'a mut [f32],
}

impl WithSimd for DotRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let rows = self.a.chunks_exact(self.width).zip(self.b.chunks_exact(self.width));
        for ((a, b), out) in rows.zip(self.dots) {
            *out = dot(s, a, b);
        }
    }
}

/// The dot product of two slices of equal length.
#[inline(always)]
pub(crate) fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let mut sum = s.splat_f32s(0.0);
    for (&a, &b) in a.iter().zip(b) {
        sum = s.mul_add_e_f32s(a, b, sum);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    s.reduce_sum_f32s(sum) + rest
}

/// `to[col · TILE + row] = from[row · width + col]`, with zeros in the columns up to the next multiple of [`PAD`].
pub(crate) struct Transpose<'a> {
    pub(crate) from: &'a [f32],
    pub(crate) width: usize,
    pub(crate) to: &'a mut [f32],
}

impl WithSimd for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// Blocks of 4 × 4 become shuffles; larger ones and single values were slower (LOG.md).
        const BLOCK: usize = 4;
        let (width, rows) = (self.width, self.from.len() / self.width);
        let padded = rows.next_multiple_of(PAD);
        let (whole_rows, whole_cols) = (rows - rows % BLOCK, width - width % BLOCK);
        for row in (0..whole_rows).step_by(BLOCK) {
            for col in (0..whole_cols).step_by(BLOCK) {
                let mut block = [[0.0; BLOCK]; BLOCK];
                for i in 0..BLOCK {
                    let from = &self.from[(row + i) * width + col..][..BLOCK];
                    for (line, value) in block.iter_mut().zip(from) {
                        line[i] = *value;
                    }
                }
                for (j, block) in block.iter().enumerate() {
                    self.to[(col + j) * TILE + row..][..BLOCK].copy_from_slice(block);
                }
            }
        }
        for row in 0..rows {
            for col in if row < whole_rows { whole_cols } else { 0 }..width {
                self.to[col * TILE + row] = self.from[row * width + col];
            }
        }
        if padded > rows {
            for to in self.to.chunks_exact_mut(TILE).take(width) {
                to[rows..padded].fill(0.0);
            }
        }
    }
}

/// Scores of few queries against keys that are not transposed; columns without a key get 0.
pub(crate) struct DotTile<'a> {
    pub(crate) region: Region,
    /// `[rows, width]`.
    pub(crate) queries: &'a [f32],
    /// `[keys, width]`.
    pub(crate) keys: &'a [f32],
    pub(crate) width: usize,
    pub(crate) scores: &'a mut [f32],
}

impl WithSimd for DotTile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let query = &self.queries[row * self.width..][..self.width];
            let scores = &mut self.scores[self.region.of(row)];
            scores.fill(0.0);
            let keys = self.keys.chunks_exact(self.width).skip(self.region.cols.start);
            for (score, key) in scores.iter_mut().zip(keys) {
                *score = dot(s, query, key);
            }
        }
    }
}
