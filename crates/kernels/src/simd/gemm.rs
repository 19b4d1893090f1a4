//! Products of whole matrices, by the `gemm` crate, or on AMX tiles where there are any.

#![expect(unsafe_code, reason = "the product takes pointers")]

use std::ops::Range;

use gemm::{Parallelism, gemm};
use rayon::prelude::*;

/// Parts of a product whose second matrix is transposed, each a task of its own: the crate's own division among threads
/// is a fifth slower there. Their number is fixed, so that results do not depend on that of threads.
const PARTS: usize = 8;
/// Columns of a part are a multiple of these, the width of the crate's innermost block.
const WIDTH: usize = 32;
/// Products with fewer multiplications are not worth dividing.
const SMALL: usize = 1 << 20;
/// Rows of a part of a product whose first matrix is transposed and that has [`TALL`] rows, as the gradient of a
/// vocabulary has: the crate is a quarter slower on the whole.
const HEIGHT: usize = 768;
const TALL: usize = 8192;

/// A matrix in a slice, row-major or transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    pub(super) values: &'a [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Whether the slice holds the transposed matrix, row-major.
    pub(super) transposed: bool,
}

impl<'a> Matrix<'a> {
    /// `[rows, columns]`, row-major.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "as many values as the matrix has");
        Self { values, rows, columns, transposed: false }
    }

    /// The same values as `[columns, rows]`.
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    fn strides(&self) -> (isize, isize) {
        let (rows, columns) = (self.rows as isize, self.columns as isize);
        if self.transposed { (1, rows) } else { (columns, 1) }
    }
}

/// `out = a · b`, or `out += a · b`; `[a.rows, b.columns]`, row-major.
pub(crate) fn product(out: &mut [f32], adds: bool, a: Matrix, b: Matrix) {
    let (rows, columns, inner) = (a.rows, b.columns, a.columns);
    assert_eq!(inner, b.rows, "inner sizes agree");
    assert_eq!(out.len(), rows * columns, "the result has room");
    if rows == 0 || columns == 0 {
        return;
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if super::amx::pays(rows, columns, inner) {
        // SAFETY: tiles are available, `out` has room for the product, checked above, and is borrowed exclusively.
        unsafe { super::amx::product(Out::new(out), adds, a, b) };
        return;
    }
    by_vectors(out, adds, a, b);
}

/// [`product`] by the `gemm` crate; sizes are checked and not 0.
pub(super) fn by_vectors(out: &mut [f32], adds: bool, a: Matrix, b: Matrix) {
    let (rows, columns, inner) = (a.rows, b.columns, a.columns);
    let out = Out::new(out);
    if b.transposed && !a.transposed && rows * columns * inner >= SMALL {
        let width = columns.div_ceil(PARTS).next_multiple_of(WIDTH);
        parts(columns, width, |part| {
            // SAFETY: as below, and no two parts have a column in common.
            unsafe { multiply(out, adds, (a, 0..rows), (b, part), Parallelism::None) };
        });
    } else if a.transposed && rows >= TALL {
        parts(rows, HEIGHT, |part| {
            // SAFETY: as below, and no two parts have a row in common.
            unsafe { multiply(out, adds, (a, part), (b, 0..columns), Parallelism::None) };
        });
    } else {
        // SAFETY: `out` has room for the product, checked above, and is borrowed exclusively.
        unsafe { multiply(out, adds, (a, 0..rows), (b, 0..columns), Parallelism::Rayon(0)) };
    }
}

/// Runs parts of so many, each a task of its own.
fn parts(all: usize, size: usize, run: impl Fn(Range<usize>) + Sync) {
    let parts = (0..all).into_par_iter().step_by(size).with_max_len(1);
    parts.for_each(|first| run(first..all.min(first + size)));
}

/// The first value of a result.
#[derive(Clone, Copy)]
pub(super) struct Out(*mut f32);

impl Out {
    pub(super) fn new(out: &mut [f32]) -> Self {
        Self(out.as_mut_ptr())
    }

    /// # Safety
    /// The offset lies within the result.
    pub(super) unsafe fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: as the caller promises.
        unsafe { self.0.add(offset) }
    }
}

// SAFETY: tasks write to parts that have nothing in common, see `product`.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

/// Some rows and columns of a product.
///
/// # Safety
/// `out` begins a row-major result of `[a.rows, b.columns]` values; nobody else touches these rows and columns of it
/// meanwhile, and they lie within it.
unsafe fn multiply(
    out: Out,
    adds: bool,
    (a, rows): (Matrix, Range<usize>),
    (b, columns): (Matrix, Range<usize>),
    threads: Parallelism,
) {
    let ((a_row, a_column), (b_row, b_column)) = (a.strides(), b.strides());
    // SAFETY: the slices hold `a.rows · inner` and `inner · b.columns` values, checked in `Matrix::new`, `out` as the
    // caller promises, and strides and offsets of rows and columns stay inside them.
    unsafe {
        gemm(
            rows.len(),
            columns.len(),
            a.columns,
            out.at(rows.start * b.columns + columns.start),
            1,
            b.columns as isize,
            adds,
            a.values.as_ptr().offset(rows.start as isize * a_row),
            a_column,
            a_row,
            b.values.as_ptr().offset(columns.start as isize * b_column),
            b_column,
            b_row,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            threads,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 % 19) as f32 - 9.0) / 5.0).collect()
    }

    #[test]
    fn products_of_every_orientation_agree_with_the_definition() {
        for (rows, inner, columns) in [(13, 7, 21), (129, 100, 150), (9000, 3, 5)] {
            agrees(rows, inner, columns);
        }
    }

    fn agrees(rows: usize, inner: usize, columns: usize) {
        let (a, b) = (numbers(rows * inner), numbers(inner * columns));
        let turn = |values: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect()
        };
        let expected: Vec<f32> = (0..rows * columns)
            .map(|i| {
                (0..inner).map(|j| a[i / columns * inner + j] * b[j * columns + i % columns]).sum()
            })
            .collect();
        let (a_turned, b_turned) = (turn(&a, rows, inner), turn(&b, inner, columns));
        for a in [Matrix::new(&a, rows, inner), Matrix::new(&a_turned, inner, rows).transposed()] {
            for b in [
                Matrix::new(&b, inner, columns),
                Matrix::new(&b_turned, columns, inner).transposed(),
            ] {
                let mut out = vec![1.0; rows * columns];
                product(&mut out, true, a, b);
                for (out, expected) in out.iter().zip(&expected) {
                    assert!((out - 1.0 - expected).abs() < 1e-3);
                }
                product(&mut out, false, a, b);
                for (out, expected) in out.iter().zip(&expected) {
                    assert!((out - expected).abs() < 1e-3);
                }
            }
        }
    }
}
