//! Where the rows of a tile stand in their head: side by side, or gathered.

use std::ops::Range;

use crate::memory::scratch::Buffer;

/// Indices of queries or keys in their head.
#[derive(Clone, Debug)]
pub(crate) enum Indices<'a> {
    /// Neighbors.
    Run(Range<usize>),
    /// Any.
    List(&'a [u32]),
}

impl<'a> Indices<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }

    /// The index of a row.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize) -> usize {
        match self {
            Self::Run(range) => range.start + row,
            Self::List(list) => list[row] as usize,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + use<'_, 'a> {
        (0..self.len()).map(|row| self.at(row))
    }

    /// Their rows of a matrix: where they lie, or copied together.
    pub(crate) fn rows<'s>(
        &self,
        matrix: &'s [f32],
        width: usize,
        copy: &'s mut Buffer,
    ) -> &'s [f32] {
        match self {
            Self::Run(range) => &matrix[range.start * width..range.end * width],
            Self::List(list) => {
                let copy = copy.sized(list.len() * width);
                for (rows, indices) in runs(list) {
                    let from = &matrix[indices.start * width..indices.end * width];
                    copy[rows.start * width..rows.end * width].copy_from_slice(from);
                }
                copy
            }
        }
    }

    /// Adds rows to their place in a matrix.
    pub(crate) fn add_rows(&self, rows: &[f32], width: usize, matrix: &mut [f32]) {
        let mut add = |from: Range<usize>, indices: Range<usize>| {
            let to = &mut matrix[indices.start * width..indices.end * width];
            let rows = &rows[from.start * width..from.end * width];
            to.iter_mut().zip(rows).for_each(|(sum, value)| *sum += value);
        };
        match self {
            Self::Run(range) => add(0..range.len(), range.clone()),
            Self::List(list) => runs(list).for_each(|(rows, indices)| add(rows, indices)),
        }
    }
}

/// The runs of neighbors in a list: which of its entries, and which rows they are.
fn runs(list: &[u32]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let mut start = 0;
    list.chunk_by(|a, b| b.wrapping_sub(*a) == 1).map(move |run| {
        let (rows, first) = (start..start + run.len(), run[0] as usize);
        start = rows.end;
        (rows, first..first + run.len())
    })
}

impl Buffer {
    /// Values at some indices, copied together.
    pub(crate) fn values(&mut self, indices: &[u32], of: &[f32]) -> &mut [f32] {
        let copy = self.sized(indices.len());
        copy.iter_mut().zip(indices).for_each(|(to, index)| *to = of[*index as usize]);
        copy
    }
}
