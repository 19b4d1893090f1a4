//! The steps of softmax on a tile of scores, and of its gradient. Regions are those of `rows.rs`: columns without a key
//! hold −∞.

use std::f32::consts::LOG2_E;

use pulp::{Simd, WithSimd};

use super::{math, rows::Region};
use crate::tile::TILE;

/// One step of online softmax: scores become `exp(score − max)` with the new running maximum,
/// `sum` follows, and `rescale` says by how much earlier sums and outputs shrink.
pub(crate) struct Softmax<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    /// One per row of the tile, like `sum` and `rescale`.
    pub(crate) max: &'a mut [f32],
    pub(crate) sum: &'a mut [f32],
    pub(crate) rescale: &'a mut [f32; TILE],
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        // In three sweeps over the rows rather than one, so that no row waits for the reduction of another (LOG.md).
        let Self { region, scores, max, sum, rescale } = self;
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
            rescale[row] = before - base;
            tops[row] = base;
        }
        let (rescales, rest) = S::as_mut_simd_f32s(&mut rescale[region.rows.clone()]);
        for rescale in rescales {
            *rescale = math::exp(s, *rescale);
        }
        for rescale in rest {
            // As in a whole vector: a row must not depend on how many stand beside it.
            *rescale = s.reduce_max_f32s(math::exp(s, s.splat_f32s(*rescale)));
        }
        for row in region.rows.clone() {
            let offset = s.splat_f32s(-tops[row] * LOG2_E);
            let mut total = s.splat_f32s(0.0);
            for score in S::as_mut_simd_f32s(&mut scores[region.of(row)]).0 {
                let weight = math::weight(s, s.mul_add_e_f32s(*score, log2_e, offset));
                *score = weight;
                total = s.add_f32s(total, weight);
            }
            sum[row] = sum[row] * rescale[row] + s.reduce_sum_f32s(total);
        }
    }
}

/// The weights again from their log-sum-exp, `exp(score − lse)`; a row that sees nothing gets zeros.
pub(crate) struct Weights<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) lse: &'a [f32],
}

impl WithSimd for Weights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let (scores, _) = S::as_mut_simd_f32s(&mut self.scores[self.region.of(row)]);
            let weight = weight_of(s, self.lse[row]);
            for score in scores {
                *score = weight(*score);
            }
        }
    }
}

/// `score → exp(score − lse)`; a row that sees nothing has the sum −∞ and every weight 0.
#[inline(always)]
fn weight_of<S: Simd>(s: S, lse: f32) -> impl Fn(S::f32s) -> S::f32s {
    let base = if lse == f32::NEG_INFINITY { f32::INFINITY } else { lse };
    let offset = s.splat_f32s(-base * LOG2_E);
    move |score| math::weight(s, s.mul_add_e_f32s(score, s.splat_f32s(LOG2_E), offset))
}

/// Softmax backward: with the weight `w = exp(score − lse)` and its factor `m`, scores become `w·m` and
/// `d_weights` becomes `d_score = w·(d_weight·m − mean)`, where `mean = d_out · out` of the row.
pub(crate) struct SoftmaxBackward<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) d_weights: &'a mut [f32],
    /// Factors of dropout and focus, if any.
    pub(crate) factors: Option<&'a [f32]>,
    /// One per row of the tile, like `mean`.
    pub(crate) lse: &'a [f32],
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
            let weight_of = weight_of(s, self.lse[row]);
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
pub(crate) struct CentersBackward<'a, P> {
    pub(crate) region: Region,
    pub(crate) scores: &'a [f32],
    pub(crate) d_weights: &'a [f32],
    pub(crate) factors: &'a [f32],
    /// One per row of the tile, like `centers` and `d_centers`.
    pub(crate) lse: &'a [f32],
    pub(crate) centers: &'a [f32],
    pub(crate) deviation: f32,
    /// Position of the key of a column of the region.
    pub(crate) position: P,
    pub(crate) d_centers: &'a mut [f32],
}

impl<P: Fn(usize) -> usize> WithSimd for CentersBackward<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let at = self.region.of(row);
            let mut weights = [0.0; TILE];
            let weights = &mut weights[..at.len()];
            weights.copy_from_slice(&self.scores[at.clone()]);
            let weight_of = weight_of(s, self.lse[row]);
            for weight in S::as_mut_simd_f32s(weights).0 {
                *weight = weight_of(*weight);
            }
            let center = self.centers[row];
            let mut sum = 0.0;
            let rest = self.d_weights[at.clone()].iter().zip(&self.factors[at]);
            for (i, (weight, (d, factor))) in weights.iter().zip(rest).enumerate() {
                sum += weight * factor * d * ((self.position)(i) as f32 - center);
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
