//! Small matrix products, `C = A·B` or `C += A·B`, with a register-blocked micro-kernel.
//!
//! A block of C stays in registers while the inner dimension runs; B is read as whole vectors, A one
//! value at a time, so A may be read in either order (`a_row`, `a_step`) and transposes cost nothing.

#![expect(unsafe_code, reason = "the inner loop reads through pointers, checked once at the door")]

use pulp::{MemMask, Simd, WithSimd};

/// `c[i, j] (+)= Σ_p a[i·a_row + p·a_step] · b[p·b_row + j]` for `i < rows`, `j < cols`, `p < inner`.
pub(crate) struct Matmul<'a> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) inner: usize,
    pub(crate) a: &'a [f32],
    pub(crate) a_row: usize,
    pub(crate) a_step: usize,
    pub(crate) b: &'a [f32],
    pub(crate) b_row: usize,
    pub(crate) c: &'a mut [f32],
    pub(crate) c_row: usize,
    /// What becomes of the old values of `c`.
    pub(crate) old: Accumulate<'a>,
}

/// What becomes of the old values of C.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Accumulate<'a> {
    /// They are overwritten.
    Overwrite,
    /// The product is added to them.
    Add,
    /// The product is added to them after each row has been multiplied by its factor.
    ScaleAdd(&'a [f32]),
}

impl Matmul<'_> {
    pub(super) fn check(&self) {
        let Self { rows, cols, inner, .. } = *self;
        if inner > 0 {
            assert!((rows - 1) * self.a_row + (inner - 1) * self.a_step < self.a.len());
            assert!((inner - 1) * self.b_row + cols <= self.b.len());
        }
        assert!((rows - 1) * self.c_row + cols <= self.c.len());
        if let Accumulate::ScaleAdd(factors) = self.old {
            assert!(rows <= factors.len());
        }
    }
}

impl WithSimd for Matmul<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        if self.rows == 0 || self.cols == 0 {
            return;
        }
        self.check();
        // One copy of the inner loops for each case: a choice inside them would cost registers.
        match self.old {
            Accumulate::Overwrite => self.panels::<S, OVERWRITE>(s),
            Accumulate::Add => self.panels::<S, ADD>(s),
            Accumulate::ScaleAdd(_) => self.panels::<S, SCALE_ADD>(s),
        }
    }
}

const OVERWRITE: u8 = 0;
const ADD: u8 = 1;
const SCALE_ADD: u8 = 2;

impl Matmul<'_> {
    #[inline(always)]
    fn panels<S: Simd, const OLD: u8>(&mut self, s: S) {
        let lanes = S::F32_LANES;
        let mut col = 0;
        while col + 2 * lanes <= self.cols {
            self.panel::<S, OLD, 2>(s, col, None);
            col += 2 * lanes;
        }
        if col + lanes <= self.cols {
            self.panel::<S, OLD, 1>(s, col, None);
            col += lanes;
        }
        if col < self.cols {
            let rest = (self.cols - col) as u32;
            let mask = MemMask::new(s.mask_between_m32s(0, rest).mask());
            self.panel::<S, OLD, 1>(s, col, Some(mask));
        }
    }

    /// All rows of `V` vectors of columns; blocks of 12 rows where there are 32 registers, else of 6.
    #[inline(always)]
    fn panel<S: Simd, const OLD: u8, const V: usize>(
        &mut self,
        s: S,
        col: usize,
        mask: Option<MemMask<S::m32s>>,
    ) {
        let mut row = 0;
        let rows = self.rows;
        // SAFETY: `check` has verified the last element of every operand that rows < `rows` and columns
        // < `cols` touch; each call below covers rows from `row` up to its block size, kept below `rows`,
        // and columns from `col` on, all full vectors or masked to `cols`.
        unsafe {
            if S::REGISTER_COUNT >= 32 {
                while row + 12 <= rows {
                    self.block::<S, OLD, 4, 3, V>(s, row, col, mask);
                    row += 12;
                }
            }
            while row + 6 <= rows {
                self.block::<S, OLD, 2, 3, V>(s, row, col, mask);
                row += 6;
            }
            if row + 3 <= rows {
                self.block::<S, OLD, 1, 3, V>(s, row, col, mask);
                row += 3;
            }
            while row < rows {
                self.block::<S, OLD, 1, 1, V>(s, row, col, mask);
                row += 1;
            }
        }
    }

    /// `G·R` rows by `V` vectors. Rows go in groups of three so that their addresses need few registers.
    ///
    /// # Safety
    /// Rows `row..row + G·R` and columns `col..col + V·lanes` (or those in `mask`) must be inside the product.
    #[inline(always)]
    unsafe fn block<S: Simd, const OLD: u8, const G: usize, const R: usize, const V: usize>(
        &mut self,
        s: S,
        row: usize,
        col: usize,
        mask: Option<MemMask<S::m32s>>,
    ) {
        let lanes = S::F32_LANES;
        let mut sums = [[[s.splat_f32s(0.0); V]; R]; G];
        // SAFETY: all addresses are those of elements the caller vouches for.
        unsafe {
            let mut b = self.b.as_ptr().add(col);
            let mut a: [*const f32; G] =
                std::array::from_fn(|g| self.a.as_ptr().add((row + g * R) * self.a_row));
            for _ in 0..self.inner {
                let b_vectors: [S::f32s; V] =
                    std::array::from_fn(|v| load::<S>(s, b.wrapping_add(v * lanes), mask));
                for (group, a) in sums.iter_mut().zip(&mut a) {
                    for (r, vectors) in group.iter_mut().enumerate() {
                        let factor = s.splat_f32s(*a.add(r * self.a_row));
                        for (sum, &b) in vectors.iter_mut().zip(&b_vectors) {
                            *sum = s.mul_add_e_f32s(factor, b, *sum);
                        }
                    }
                    *a = a.wrapping_add(self.a_step);
                }
                b = b.wrapping_add(self.b_row);
            }
            for (g, group) in sums.iter().enumerate() {
                for (r, vectors) in group.iter().enumerate() {
                    for (v, &sum) in vectors.iter().enumerate() {
                        let row = row + g * R + r;
                        let c = self.c.as_mut_ptr().add(row * self.c_row + col + v * lanes);
                        let value = match (OLD, self.old) {
                            (ADD, _) => s.add_f32s(load::<S>(s, c, mask), sum),
                            (SCALE_ADD, Accumulate::ScaleAdd(factors)) => {
                                // `check` has seen a factor for every row.
                                let factor = s.splat_f32s(*factors.get_unchecked(row));
                                s.mul_add_e_f32s(factor, load::<S>(s, c, mask), sum)
                            }
                            _ => sum,
                        };
                        match mask {
                            None => c.cast::<S::f32s>().write_unaligned(value),
                            Some(mask) => s.mask_store_ptr_f32s(mask, c, value),
                        }
                    }
                }
            }
        }
    }
}

/// # Safety
/// A vector at `from`, or its elements in `mask`, must be readable.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, mask: Option<MemMask<S::m32s>>) -> S::f32s {
    // SAFETY: vouched for by the caller.
    unsafe {
        match mask {
            None => from.cast::<S::f32s>().read_unaligned(),
            Some(mask) => s.mask_load_ptr_f32s(mask, from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    #[test]
    fn every_block_size_tail_and_stride_agrees_with_three_loops() {
        let value = |i: usize| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0;
        for set in simd::Simd::available() {
            for rows in (1..=13).chain([24, 29]) {
                for cols in [1, 3, 15, 16, 17, 31, 32, 33, 47, 64, 65] {
                    let factors: Vec<f32> = (0..rows).map(|i| value(i + 5)).collect();
                    for (inner, transposed, old) in [
                        (1, false, Accumulate::Overwrite),
                        (5, true, Accumulate::Add),
                        (7, false, Accumulate::ScaleAdd(&factors)),
                        (0, false, Accumulate::Add),
                    ] {
                        let (a_row, a_step) =
                            if transposed { (1, rows + 2) } else { (inner + 3, 1) };
                        let (b_row, c_row) = (cols + 1, cols + 2);
                        let a: Vec<f32> = (0..(rows + 2) * (inner + 3)).map(value).collect();
                        let b: Vec<f32> = (0..inner * b_row).map(|i| value(i + 77)).collect();
                        let start: Vec<f32> = (0..rows * c_row).map(|i| value(i + 999)).collect();
                        let mut c = start.clone();
                        set.run(Matmul {
                            rows,
                            cols,
                            inner,
                            a: &a,
                            a_row,
                            a_step,
                            b: &b,
                            b_row,
                            c: &mut c,
                            c_row,
                            old,
                        });
                        for i in 0..rows {
                            for j in 0..c_row {
                                let sum: f32 = (0..inner)
                                    .map(|p| {
                                        a[i * a_row + p * a_step]
                                            * b.get(p * b_row + j).copied().unwrap_or(0.0)
                                    })
                                    .sum();
                                let before = start[i * c_row + j];
                                let want = match (j < cols, old) {
                                    (false, _) => before,
                                    (true, Accumulate::Overwrite) => sum,
                                    (true, Accumulate::Add) => before + sum,
                                    (true, Accumulate::ScaleAdd(factors)) => {
                                        before * factors[i] + sum
                                    }
                                };
                                let got = c[i * c_row + j];
                                assert!(
                                    (got - want).abs() < 1e-5,
                                    "{} {rows}×{cols}×{inner}",
                                    set.name()
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
