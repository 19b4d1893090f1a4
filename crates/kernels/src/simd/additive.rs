//! The additive score `Σ_c weight_c · tanh(q_c + k_c)` on a tile, never building queries × keys × channels.
//!
//! With `r = 1 / (e^{2(q+k)} + 1)`: `tanh = 1 − 2r` and its slope is `4r(1 − r)`. As long as no value is large,
//! `e^{2(q+k)}` is the product of two exponentials formed once per query and once per key, which leaves one
//! division per channel and pair; otherwise the exponential is taken of the sum.

use std::f32::consts::LOG2_E;

use pulp::{Simd, WithSimd};

use super::{math, rows::Region};
use crate::tile::TILE;

/// Values up to this size are handled as products: e^{4·20} stays below the largest f32.
const PRODUCT_LIMIT: f32 = 20.0;

/// How queries and keys of a tile are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As `e^{2x}`.
    Product,
    /// As `2x · log₂e`.
    Sum,
}

impl Form {
    /// The form that is safe for every one of these values, NaN included.
    pub(crate) fn of(values: &[f32]) -> Self {
        let small = values.iter().fold(true, |small, x| small & (x.abs() <= PRODUCT_LIMIT));
        if small { Form::Product } else { Form::Sum }
    }

    /// The form two sides can meet in.
    pub(crate) fn meet(self, other: Self) -> Self {
        if self == Form::Product && other == Form::Product { Form::Product } else { Form::Sum }
    }
}

/// Brings values into a form.
pub(crate) struct Prepare<'a> {
    pub(crate) form: Form,
    pub(crate) values: &'a mut [f32],
}

impl WithSimd for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let scale = 2.0 * LOG2_E;
        for value in self.values.iter_mut() {
            *value *= scale;
        }
        if self.form == Form::Product {
            let (vectors, rest) = S::as_mut_simd_f32s(self.values);
            for exponent in vectors {
                *exponent = math::exp2(s, *exponent);
            }
            for exponent in rest {
                *exponent = exponent.exp2();
            }
        }
    }
}

/// `e^{2(q+k)} + 1` from the prepared sides.
#[inline(always)]
fn denominator<S: Simd>(s: S, form: Form, q: S::f32s, k: S::f32s) -> S::f32s {
    let one = s.splat_f32s(1.0);
    match form {
        Form::Product => s.mul_add_e_f32s(q, k, one),
        // 2^100 + 1 already makes tanh ±1; the order of operands lets NaN through on x86.
        Form::Sum => {
            let sum = s.add_f32s(q, k);
            let high = s.splat_f32s(100.0);
            let bounded = s.select_f32s(s.greater_than_f32s(sum, high), high, sum);
            s.add_f32s(math::exp2(s, bounded), one)
        }
    }
}

/// Scores of a region from prepared queries `[rows, dim]` and transposed prepared keys `[dim, TILE]`.
pub(crate) struct Additive<'a> {
    pub(crate) region: Region,
    pub(crate) form: Form,
    pub(crate) queries: &'a [f32],
    pub(crate) keys: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) scores: &'a mut [f32],
}

impl WithSimd for Additive<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        match self.form {
            Form::Product => self.score(s, Form::Product),
            Form::Sum => self.score(s, Form::Sum),
        }
    }
}

impl Additive<'_> {
    #[inline(always)]
    fn score<S: Simd>(self, s: S, form: Form) {
        /// Vectors of keys handled together, to overlap divisions.
        const TOGETHER: usize = 2;
        let (lanes, dim) = (S::F32_LANES, self.weight.len());
        let total = s.splat_f32s(self.weight.iter().sum::<f32>());
        for row in self.region.rows.clone() {
            let queries = &self.queries[row * dim..][..dim];
            let mut col = self.region.cols.start;
            while col < self.region.cols.end {
                let together = TOGETHER.min((self.region.cols.end - col) / lanes);
                let mut sums = [s.splat_f32s(0.0); TOGETHER];
                for (c, (&q, &weight)) in queries.iter().zip(self.weight).enumerate() {
                    let (q, weight) = (s.splat_f32s(q), s.splat_f32s(weight));
                    let keys = &self.keys[c * TILE + col..][..together * lanes];
                    for (sum, &k) in sums.iter_mut().zip(S::as_simd_f32s(keys).0) {
                        *sum = s.add_f32s(*sum, s.div_f32s(weight, denominator(s, form, q, k)));
                    }
                }
                let scores = &mut self.scores[row * TILE + col..][..together * lanes];
                for (score, sum) in S::as_mut_simd_f32s(scores).0.iter_mut().zip(sums) {
                    *score = s.mul_add_e_f32s(sum, s.splat_f32s(-2.0), total);
                }
                col += together * lanes;
            }
        }
    }
}

/// Gradients of a region's scores, added to `d_queries [rows, dim]`, `d_keys [dim, TILE]` and `d_weight [dim]`.
pub(crate) struct AdditiveBackward<'a> {
    pub(crate) region: Region,
    pub(crate) form: Form,
    pub(crate) queries: &'a [f32],
    pub(crate) keys: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) d_scores: &'a [f32],
    pub(crate) d_queries: &'a mut [f32],
    pub(crate) d_keys: &'a mut [f32],
    pub(crate) d_weight: &'a mut [f32],
}

impl WithSimd for AdditiveBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        match self.form {
            Form::Product => self.spread(s, Form::Product),
            Form::Sum => self.spread(s, Form::Sum),
        }
    }
}

impl AdditiveBackward<'_> {
    #[inline(always)]
    fn spread<S: Simd>(self, s: S, form: Form) {
        let dim = self.weight.len();
        let one = s.splat_f32s(1.0);
        for (c, &weight) in self.weight.iter().enumerate() {
            let cols = self.region.cols.clone();
            let (keys, _) = S::as_simd_f32s(&self.keys[c * TILE..][cols.clone()]);
            let (d_keys, _) = S::as_mut_simd_f32s(&mut self.d_keys[c * TILE..][cols]);
            let factor = s.splat_f32s(4.0 * weight);
            let mut d_weight = s.splat_f32s(0.0);
            for row in self.region.rows.clone() {
                let q = s.splat_f32s(self.queries[row * dim + c]);
                let (d_scores, _) = S::as_simd_f32s(&self.d_scores[self.region.of(row)]);
                let mut d_query = s.splat_f32s(0.0);
                for ((&k, d_key), &d) in keys.iter().zip(d_keys.iter_mut()).zip(d_scores) {
                    let r = s.div_f32s(one, denominator(s, form, q, k));
                    let half = s.mul_f32s(d, r);
                    let slope = s.negate_mul_add_e_f32s(half, r, half); // d·r·(1 − r)
                    *d_key = s.mul_add_e_f32s(factor, slope, *d_key);
                    d_query = s.add_f32s(d_query, slope);
                    d_weight = s.add_f32s(d_weight, s.sub_f32s(d, s.add_f32s(half, half)));
                }
                self.d_queries[row * dim + c] += 4.0 * weight * s.reduce_sum_f32s(d_query);
            }
            self.d_weight[c] += s.reduce_sum_f32s(d_weight);
        }
    }
}
