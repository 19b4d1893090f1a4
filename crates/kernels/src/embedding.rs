//! Rows of a table by number, and the gradient of the table: every row's gradients added up.

use rayon::prelude::*;

use crate::Error;

/// Rows handled by one task.
const ROWS: usize = 64;

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

    fn check(&self, table: usize, out: usize) -> Result<(), Error> {
        let Self { width, rows } = *self;
        if width == 0 {
            return Err(Error::Zero { what: "width" });
        }
        if out != rows.len() * width {
            return Err(Error::Length { what: "out", found: out, expected: rows.len() * width });
        }
        match rows.iter().find(|row| (**row as usize + 1) * width > table) {
            Some(row) => Err(Error::Range {
                what: "row",
                found: row.to_string(),
                allowed: "the table",
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
