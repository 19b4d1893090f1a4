//! Between `[batch, length, heads · dim]`, as projections make it, and `[batch, heads, length, dim]`, as attention reads it.

use rayon::prelude::*;

use crate::{
    Error,
    error::{expect_lens, expect_nonzero},
};

/// Sizes of both layouts.
#[derive(Clone, Copy, Debug)]
pub struct HeadLayout {
    /// Sequences.
    pub batch: usize,
    /// Positions of a sequence.
    pub length: usize,
    /// Heads.
    pub heads: usize,
    /// Channels of a head.
    pub dim: usize,
}

impl HeadLayout {
    /// From rows of all heads to heads of all rows.
    pub fn split(&self, rows: &[f32], out: &mut [f32]) -> Result<(), Error> {
        self.check(rows.len(), out.len())?;
        let Self { length, heads, dim, .. } = *self;
        out.par_chunks_mut((length * dim).max(1)).enumerate().for_each(|(head, out)| {
            let rows = &rows[head / heads * length * heads * dim..];
            let first = head % heads * dim;
            for (out, row) in out.chunks_exact_mut(dim).zip(rows.chunks_exact(heads * dim)) {
                out.copy_from_slice(&row[first..first + dim]);
            }
        });
        Ok(())
    }

    /// The inverse of [`Self::split`].
    pub fn join(&self, heads_first: &[f32], out: &mut [f32]) -> Result<(), Error> {
        self.check(heads_first.len(), out.len())?;
        let Self { length, heads, dim, .. } = *self;
        out.par_chunks_mut((heads * dim).max(1)).enumerate().for_each(|(row, out)| {
            let (batch, position) = (row / length, row % length);
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let from = ((batch * heads + head) * length + position) * dim;
                out.copy_from_slice(&heads_first[from..from + dim]);
            }
        });
        Ok(())
    }

    fn check(&self, from: usize, to: usize) -> Result<(), Error> {
        let expected = self.batch * self.length * self.heads * self.dim;
        expect_lens([("rows", from, expected), ("out", to, expected)])?;
        expect_nonzero([("dim", self.dim)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_undoes_splitting() {
        let layout = HeadLayout { batch: 2, length: 3, heads: 4, dim: 5 };
        let rows: Vec<f32> = (0..120).map(|i| i as f32).collect();
        let (mut split, mut joined) = (vec![0.0; 120], vec![0.0; 120]);
        layout.split(&rows, &mut split).unwrap();
        // Sequence 1, head 2, position 1, channel 3.
        assert_eq!(split[((4 + 2) * 3 + 1) * 5 + 3], rows[(3 + 1) * 20 + 2 * 5 + 3]);
        layout.join(&split, &mut joined).unwrap();
        assert_eq!(joined, rows);
        assert!(layout.split(&rows[1..], &mut split).is_err());
    }
}
