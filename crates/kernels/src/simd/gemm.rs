//! Products of whole matrices, by the `gemm` crate over all threads.

#![expect(unsafe_code, reason = "the product takes pointers")]

use gemm::{Parallelism, gemm};

/// A matrix in a slice, row-major or transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// Whether the slice holds the transposed matrix, row-major.
    transposed: bool,
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
    let ((a_row, a_column), (b_row, b_column)) = (a.strides(), b.strides());
    // SAFETY: the slices hold `rows · inner`, `inner · columns` and `rows · columns` values, checked above and in
    // `Matrix::new`, and the strides stay inside them; `out` is borrowed exclusively.
    unsafe {
        gemm(
            rows,
            columns,
            inner,
            out.as_mut_ptr(),
            1,
            columns as isize,
            adds,
            a.values.as_ptr(),
            a_column,
            a_row,
            b.values.as_ptr(),
            b_column,
            b_row,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            Parallelism::Rayon(0),
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
        let (rows, inner, columns) = (13, 7, 21);
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
                    assert!((out - 1.0 - expected).abs() < 1e-4);
                }
                product(&mut out, false, a, b);
                for (out, expected) in out.iter().zip(&expected) {
                    assert!((out - expected).abs() < 1e-4);
                }
            }
        }
    }
}
