//! Row-wise work on tiles and matrices: factors, dot products, transposes.
//!
//! A tile is stored with [`TILE`] columns per row. Operations act on a region of it whose first column and
//! width are multiples of [`PAD`]; columns without a key hold −∞ as scores and 0 everywhere else.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::math;
use crate::{
    attention::RowMask,
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

/// Multiplies the factors of one row by those of dropout: `factors[i]` belongs to the key at `position(i)`.
pub(crate) struct DropoutRow<'a, P> {
    pub(crate) mask: RowMask,
    pub(crate) position: P,
    pub(crate) factors: &'a mut [f32],
}

impl<P: Fn(usize) -> u32> WithSimd for DropoutRow<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (i, factor) in self.factors.iter_mut().enumerate() {
            *factor *= self.mask.factor((self.position)(i));
        }
    }
}

/// `factors[i] = exp(−(position(i) − center)² / (2 deviation²))`.
pub(crate) struct FocusRow<'a, P> {
    pub(crate) center: f32,
    pub(crate) deviation: f32,
    pub(crate) position: P,
    pub(crate) factors: &'a mut [f32],
}

impl<P: Fn(usize) -> usize> WithSimd for FocusRow<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for (i, factor) in self.factors.iter_mut().enumerate() {
            let far = ((self.position)(i) as f32 - self.center) / self.deviation;
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

/// Hides the columns that a row does not see: those whose bit is 0.
pub(crate) struct HideColumns<'a> {
    pub(crate) region: Region,
    pub(crate) scores: &'a mut [f32],
    pub(crate) shown: &'a [u128; TILE],
}

impl WithSimd for HideColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.region.rows.clone() {
            let shown = self.shown[row] >> self.region.cols.start;
            let (blocks, _) = self.scores[self.region.of(row)].as_chunks_mut::<PAD>();
            for (i, scores) in blocks.iter_mut().enumerate() {
                let bits = (shown >> (i * PAD)) as u16;
                if bits != u16::MAX {
                    for (column, score) in scores.iter_mut().enumerate() {
                        *score = if bits >> column & 1 == 1 { *score } else { f32::NEG_INFINITY };
                    }
                }
            }
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

/// `dots[row] = a[row] · b[row]` for rows of any width.
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
