//! Rows of a table by number, and the gradient of the table: every row's gradients added up.

use rayon::prelude::*;

use crate::{
    EXACT_ROWS, Error, Pooled, Simd,
    error::{expect_len, expect_lens, expect_nonzero},
    simd::gemm::{Matrix, product},
};

/// Rows handled by one task.
const ROWS: usize = 64;
/// Sums kept apart in a product of two rows.
const LANES: usize = 32;

/// Rows of a table of `width` channels.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'a> {
    /// Channels of a row.
    pub width: usize,
    /// Which rows.
    pub rows: &'a [u32],
}

impl Embedding<'_> {
    /// Copies the rows.
    pub fn forward(&self, table: &[f32], out: &mut [f32]) -> Result<(), Error> {
        self.check(table.len(), out.len())?;
        let width = self.width;
        out.par_chunks_mut(ROWS * width).zip(self.rows.par_chunks(ROWS)).for_each(|(out, rows)| {
            for (out, row) in out.chunks_exact_mut(width).zip(rows) {
                out.copy_from_slice(&table[*row as usize * width..][..width]);
            }
        });
        Ok(())
    }

    /// Adds each row's gradient to that of the table. In order: a row may come often.
    pub fn backward(&self, d_out: &[f32], d_table: &mut [f32]) -> Result<(), Error> {
        self.check(d_table.len(), d_out.len())?;
        for (d_out, row) in d_out.chunks_exact(self.width).zip(self.rows) {
            let sum = &mut d_table[*row as usize * self.width..][..self.width];
            for (sum, d_out) in sum.iter_mut().zip(d_out) {
                *sum += d_out;
            }
        }
        Ok(())
    }

    /// The product of every state, `[rows, width]`, with every row of the table: `[rows, table]`.
    pub fn logits(&self, hidden: &[f32], table: &[f32], out: &mut [f32]) -> Result<(), Error> {
        let (states, rows) = self.check_logits(hidden, table, out.len())?;
        if states <= EXACT_ROWS {
            logits_by_rows(hidden, table, self.width, out);
            return Ok(());
        }
        let table = Matrix::new(table, rows, self.width);
        product(out, false, Matrix::new(hidden, states, self.width), table.transposed());
        Ok(())
    }

    /// The gradients of both, which replace what the slices held.
    pub fn logits_backward(
        &self,
        hidden: &[f32],
        table: &[f32],
        d_out: &[f32],
        d_hidden: &mut [f32],
        d_table: &mut [f32],
    ) -> Result<(), Error> {
        let (states, rows) = self.check_logits(hidden, table, d_out.len())?;
        self.check_logits(d_hidden, d_table, d_out.len())?;
        let d_out = Matrix::new(d_out, states, rows);
        product(d_hidden, false, d_out, Matrix::new(table, rows, self.width));
        product(d_table, false, d_out.transposed(), Matrix::new(hidden, states, self.width));
        Ok(())
    }

    /// The number of states and of rows.
    fn check_logits(
        &self,
        hidden: &[f32],
        table: &[f32],
        out: usize,
    ) -> Result<(usize, usize), Error> {
        expect_nonzero([("width", self.width)])?;
        let (states, rows) = (hidden.len() / self.width, table.len() / self.width);
        expect_lens([
            ("hidden", hidden.len(), states * self.width),
            ("table", table.len(), rows * self.width),
            ("out", out, states * rows),
        ])?;
        Ok((states, rows))
    }

    fn check(&self, table: usize, out: usize) -> Result<(), Error> {
        let Self { width, rows } = *self;
        expect_nonzero([("width", width)])?;
        expect_len("out", out, rows.len() * width)?;
        match rows.iter().find(|row| (**row as usize + 1) * width > table) {
            Some(row) => {
                Err(Error::Range { what: "row", found: row.to_string(), allowed: "the table" })
            }
            None => Ok(()),
        }
    }
}

/// Logits of up to [`EXACT_ROWS`] states: the table is read once, by all threads, and nothing is packed. Each logit is the
/// same however many states there are.
fn logits_by_rows(hidden: &[f32], table: &[f32], width: usize, out: &mut [f32]) {
    let simd = Simd::detect();
    let (states, rows) = (hidden.len() / width, table.len() / width);
    // Some rows' logits of every state after the other.
    let mut made = Pooled::uncleared(out.len());
    let tasks = made.par_chunks_mut(ROWS * states.max(1)).zip(table.par_chunks(ROWS * width));
    tasks.for_each(|(made, table)| {
        let made = made.chunks_exact_mut(table.len() / width);
        for (made, state) in made.zip(hidden.chunks_exact(width)) {
            simd.run(
                #[inline(always)]
                || {
                    for (made, row) in made.iter_mut().zip(table.chunks_exact(width)) {
                        *made = dot(state, row);
                    }
                },
            );
        }
    });
    for (part, made) in made.chunks(ROWS * states.max(1)).enumerate() {
        let count = made.len() / states.max(1);
        for (state, made) in made.chunks_exact(count).enumerate() {
            out[state * rows + part * ROWS..][..count].copy_from_slice(made);
        }
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_and_their_gradients_agree_with_the_definition() {
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            (0..count).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
        };
        for (states, rows, width) in [(1, 3, 5), (4, 70, 33), (9, 7, 40)] {
            let (hidden, table) = (numbers(states * width, 1), numbers(rows * width, 2));
            let d_out = numbers(states * rows, 3);
            let [mut out, mut d_hidden, mut d_table] =
                [&d_out, &hidden, &table].map(|like| vec![f32::NAN; like.len()]);
            let call = Embedding { width, rows: &[] };
            call.logits(&hidden, &table, &mut out).unwrap();
            call.logits_backward(&hidden, &table, &d_out, &mut d_hidden, &mut d_table).unwrap();
            let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-4);
            for (i, out) in out.iter().enumerate() {
                let (state, row) = (i / rows, i % rows);
                let sum = (0..width).map(|c| hidden[state * width + c] * table[row * width + c]);
                close(*out, sum.sum());
            }
            for (i, d) in d_hidden.iter().enumerate() {
                let (state, c) = (i / width, i % width);
                close(*d, (0..rows).map(|r| d_out[state * rows + r] * table[r * width + c]).sum());
            }
            for (i, d) in d_table.iter().enumerate() {
                let (row, c) = (i / width, i % width);
                let sum = (0..states).map(|s| d_out[s * rows + row] * hidden[s * width + c]);
                close(*d, sum.sum());
            }
            assert!(call.logits(&hidden, &table, &mut out[1..]).is_err());
        }
    }

    #[test]
    fn a_state_among_a_few_has_the_logits_it_has_by_itself() {
        let (rows, width) = (3 * ROWS + 5, 37);
        let numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|i| ((i * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
        };
        let (hidden, table) = (numbers(EXACT_ROWS * width), numbers(rows * width));
        let call = Embedding { width, rows: &[] };
        let mut alone = vec![0.0; EXACT_ROWS * rows];
        for (state, out) in hidden.chunks_exact(width).zip(alone.chunks_exact_mut(rows)) {
            call.logits(state, &table, out).unwrap();
        }
        for states in 0..=EXACT_ROWS {
            let mut out = vec![f32::NAN; states * rows];
            call.logits(&hidden[..states * width], &table, &mut out).unwrap();
            assert_eq!(out, alone[..states * rows], "{states} states");
        }
    }

    #[test]
    fn rows_are_copied_and_their_gradients_added_up() {
        let call = Embedding { width: 2, rows: &[2, 0, 2] };
        let mut out = [0.0; 6];
        call.forward(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut out).unwrap();
        assert_eq!(out, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
        let mut d_table = [1.0; 6];
        call.backward(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut d_table).unwrap();
        assert_eq!(d_table, [4.0, 5.0, 1.0, 1.0, 7.0, 9.0]);
        assert!(call.forward(&[0.0; 4], &mut out).is_err());
        assert!(call.forward(&[0.0; 6], &mut out[1..]).is_err());
    }
}
