//! Row-wise work on the causal tiles of linear attention.

use pulp::{Simd, WithSimd};

use super::rows::{Region, dot};

/// Keeps the lower triangle of a region, each row's columns up to its own index, and adds `shifts[row]` to them.
pub(crate) struct Lower<'a> {
    pub(crate) region: Region,
    pub(crate) tile: &'a mut [f32],
    /// One per row of the tile.
    pub(crate) shifts: Option<&'a [f32]>,
}

impl WithSimd for Lower<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.region.rows.clone() {
            let values = &mut self.tile[self.region.of(row)];
            let kept = (row + 1).saturating_sub(self.region.cols.start).min(values.len());
            let (kept, hidden) = values.split_at_mut(kept);
            hidden.fill(0.0);
            if let Some(shifts) = self.shifts {
                kept.iter_mut().for_each(|value| *value += shifts[row]);
            }
        }
    }
}

/// `sums[row] += Σ tile[row]` over a region.
pub(crate) struct SumRows<'a> {
    pub(crate) region: Region,
    pub(crate) tile: &'a [f32],
    pub(crate) sums: &'a mut [f32],
}

impl WithSimd for SumRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let (values, _) = S::as_simd_f32s(&self.tile[self.region.of(row)]);
            let sum = values.iter().fold(s.splat_f32s(0.0), |sum, &value| s.add_f32s(sum, value));
            self.sums[row] += s.reduce_sum_f32s(sum);
        }
    }
}

/// `dots[row] = rows[row] · vector`.
pub(crate) struct DotVector<'a> {
    pub(crate) rows: &'a [f32],
    pub(crate) vector: &'a [f32],
    pub(crate) dots: &'a mut [f32],
}

impl WithSimd for DotVector<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for (row, out) in self.rows.chunks_exact(self.vector.len()).zip(self.dots) {
            *out = dot(s, row, self.vector);
        }
    }
}
