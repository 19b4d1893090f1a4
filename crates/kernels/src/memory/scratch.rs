//! Buffers of one thread, grown on demand and reused.

use std::ops::{Deref, DerefMut};

use crate::{attention::Entries, tile::TILE};

/// Everything a task needs besides its inputs and outputs.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Compared queries of a task, `[rows, width]`.
    pub(crate) queries: Buffer,
    /// Gradients of the compared queries.
    pub(crate) d_queries: Buffer,
    /// `scale · (q + v)` of each relative bias, `[biases, rows, head_dim]`.
    pub(crate) relative: Buffer,
    /// Gradients of those.
    pub(crate) d_relative: Buffer,
    /// Per row of a task: running maximum, sum, rescale; in the backward pass `d_out · out`.
    pub(crate) max: Buffer,
    pub(crate) sum: Buffer,
    pub(crate) mean: Buffer,
    pub(crate) rescale: [f32; TILE],
    /// Rows copied together: raw queries of a task, raw keys of a tile.
    pub(crate) copied: Buffer,
    pub(crate) copied_keys: Buffer,
    /// Compared keys of a tile, `[keys, width]`, and transposed, `[width, TILE]`.
    pub(crate) key_rows: Buffer,
    pub(crate) key_cols: Buffer,
    /// Values of a tile, and transposed.
    pub(crate) values: Buffer,
    pub(crate) value_cols: Buffer,
    /// Output gradients of a task.
    pub(crate) d_out: Buffer,
    /// Those rounded to bf16.
    pub(crate) rounded: Buffer,
    /// Gradients of a tile's compared keys and values.
    pub(crate) d_keys: Buffer,
    pub(crate) d_values: Buffer,
    /// Tiles of scores, of their gradients, of soft-cap slopes, and of dropout and focus factors.
    pub(crate) scores: Buffer,
    pub(crate) d_scores: Buffer,
    pub(crate) slopes: Buffer,
    pub(crate) factors: Buffer,
    /// Terms of a relative table for a tile, `[rows, entries]`.
    pub(crate) terms: Buffer,
    /// Entries of a relative table for gathered keys.
    pub(crate) entries: Entries,
    /// Gradients of a head's keys and values that a task of gathered queries sums.
    pub(crate) d_keys_of_head: Buffer,
    pub(crate) d_values_of_head: Buffer,
    /// Outputs of gathered queries, their log-sum-exps and centers.
    pub(crate) out: Buffer,
    pub(crate) lse: Buffer,
    pub(crate) centers: Buffer,
    /// Gradients of raw rows before they go to their places.
    pub(crate) d_raw: Buffer,
    /// One row of features.
    pub(crate) row: Buffer,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            queries: Buffer::default(),
            d_queries: Buffer::default(),
            relative: Buffer::default(),
            d_relative: Buffer::default(),
            max: Buffer::default(),
            sum: Buffer::default(),
            mean: Buffer::default(),
            rescale: [0.0; TILE],
            copied: Buffer::default(),
            copied_keys: Buffer::default(),
            key_rows: Buffer::default(),
            key_cols: Buffer::default(),
            values: Buffer::default(),
            value_cols: Buffer::default(),
            d_out: Buffer::default(),
            rounded: Buffer::default(),
            d_keys: Buffer::default(),
            d_values: Buffer::default(),
            scores: Buffer::default(),
            d_scores: Buffer::default(),
            slopes: Buffer::default(),
            factors: Buffer::default(),
            terms: Buffer::default(),
            entries: Entries::default(),
            d_keys_of_head: Buffer::default(),
            d_values_of_head: Buffer::default(),
            out: Buffer::default(),
            lse: Buffer::default(),
            centers: Buffer::default(),
            d_raw: Buffer::default(),
            row: Buffer::default(),
        }
    }
}

/// Values that start on a cache line: a vector that straddles two lines costs the matrix product 5 % of its speed.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    values: Vec<f32>,
    start: usize,
}

/// Bytes in a cache line, and in the widest vector.
const LINE: usize = 64;

impl Buffer {
    /// The first `len` values. The buffer grows if it must; old contents are then lost.
    pub(crate) fn sized(&mut self, len: usize) -> &mut [f32] {
        let spare = LINE / size_of::<f32>();
        if self.values.len() < len + spare {
            self.values = vec![0.0; len + spare];
            self.start = self.values.as_ptr().align_offset(LINE).min(spare);
        }
        &mut self.values[self.start..self.start + len]
    }

    /// The first `len` values, all zero.
    pub(crate) fn zeroed(&mut self, len: usize) -> &mut [f32] {
        let values = self.sized(len);
        values.fill(0.0);
        values
    }

    /// `values` themselves if they start on a cache line, otherwise a copy that does.
    pub(crate) fn aligned<'s>(&'s mut self, values: &'s [f32]) -> &'s [f32] {
        if values.as_ptr().align_offset(LINE) == 0 {
            return values;
        }
        let copy = self.sized(values.len());
        copy.copy_from_slice(values);
        copy
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_on_a_line_and_keep_their_values_between_equal_sizes() {
        let mut buffer = Buffer::default();
        for len in [1, 100, 7, 5000, 5000] {
            let values = buffer.sized(len);
            assert_eq!((values.len(), values.as_ptr().align_offset(LINE)), (len, 0));
            values.fill(len as f32);
        }
        assert!(buffer.sized(5000).iter().all(|v| *v == 5000.0));
        assert!(buffer.zeroed(20).iter().all(|v| *v == 0.0));
    }

    #[test]
    fn aligned_copies_only_what_is_not() {
        let (mut copy, mut values) = (Buffer::default(), Buffer::default());
        let values = values.sized(40);
        values.iter_mut().enumerate().for_each(|(i, v)| *v = i as f32);
        assert_eq!(copy.aligned(values).as_ptr(), values.as_ptr());
        assert_eq!(copy.aligned(&values[1..]), &values[1..]);
        assert_eq!(copy.aligned(&values[1..]).as_ptr().align_offset(LINE), 0);
    }
}
