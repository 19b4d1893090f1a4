//! Small-batch GEMV, a few rows times a matrix: the matrix is read once and nearly in order, and nothing is packed.

use std::ops::Range;

use pulp::{Simd, WithSimd};

/// Rows of the matrix that are read side by side; memory gives more where several places of it are read in turns.
const DEPTH: usize = 16;
/// Vectors of columns whose sums stay in registers meanwhile.
const VECTORS: usize = 4;

/// `sums[row] = Σ_c x[row, c] · weight[c]` over some channels. The sum of a row does not depend on how many there are.
pub(crate) struct WeightedRows<'a> {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// `[from, to]`.
    pub(crate) weight: &'a [f32],
    /// `[rows, from]`.
    pub(crate) x: &'a [f32],
    pub(crate) channels: Range<usize>,
    /// `[rows, to]`.
    pub(crate) sums: &'a mut [f32],
}

impl WithSimd for WeightedRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        self.sums.fill(0.0);
        let wide = VECTORS * S::F32_LANES;
        let (strips, vectors) = (self.to / wide * wide, self.to / S::F32_LANES * S::F32_LANES);
        for first in self.channels.clone().step_by(DEPTH) {
            let some = first..self.channels.end.min(first + DEPTH);
            for column in (0..strips).step_by(wide) {
                self.strip::<S, VECTORS>(s, &some, column);
            }
            for column in (strips..vectors).step_by(S::F32_LANES) {
                self.strip::<S, 1>(s, &some, column);
            }
            self.rest(&some, vectors);
        }
    }
}

impl WeightedRows<'_> {
    /// Some channels of `V` vectors of columns.
    #[inline(always)]
    fn strip<S: Simd, const V: usize>(&mut self, s: S, some: &Range<usize>, column: usize) {
        let rows = self.x.len() / self.from;
        let mut row = 0;
        while row < rows {
            row += match rows - row {
                1 => self.add::<S, 1, V>(s, row, some, column),
                2 => self.add::<S, 2, V>(s, row, some, column),
                3 => self.add::<S, 3, V>(s, row, some, column),
                _ => self.add::<S, 4, V>(s, row, some, column),
            };
        }
    }

    /// [`Self::strip`] of `R` rows; returns their number.
    #[inline(always)]
    fn add<S: Simd, const R: usize, const V: usize>(
        &mut self,
        s: S,
        row: usize,
        some: &Range<usize>,
        column: usize,
    ) -> usize {
        let (from, to, width) = (self.from, self.to, V * S::F32_LANES);
        let mut x = [&[][..]; R];
        let mut sums = [[s.splat_f32s(0.0); V]; R];
        for r in 0..R {
            x[r] = &self.x[(row + r) * from..][some.clone()];
            let kept = S::as_simd_f32s(&self.sums[(row + r) * to + column..][..width]).0;
            sums[r].copy_from_slice(kept);
        }
        for (i, channel) in some.clone().enumerate() {
            let weights = S::as_simd_f32s(&self.weight[channel * to + column..][..width]).0;
            for r in 0..R {
                let factor = s.splat_f32s(x[r][i]);
                for v in 0..V {
                    sums[r][v] = s.mul_add_e_f32s(factor, weights[v], sums[r][v]);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let kept = &mut self.sums[(row + r) * to + column..][..width];
            S::as_mut_simd_f32s(kept).0.copy_from_slice(sums);
        }
        R
    }

    /// Some channels of the columns that fill no vector.
    #[inline(always)]
    fn rest(&mut self, some: &Range<usize>, column: usize) {
        let rows = self.x.chunks_exact(self.from).zip(self.sums.chunks_exact_mut(self.to));
        for (x, sums) in rows {
            for channel in some.clone() {
                let weights = &self.weight[channel * self.to..][column..self.to];
                for (sum, weight) in sums[column..].iter_mut().zip(weights) {
                    *sum += x[channel] * weight;
                }
            }
        }
    }
}
