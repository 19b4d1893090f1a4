//! One query head against a chunk of its keys.

use std::ops::Range;

use super::{Backward, mean_of_rows, step::Step};
use crate::{
    attention::{
        head::Head,
        indices::Indices,
        learned::LearnedHead,
        pattern::Coverage,
        prepare::{PrepareBackward, Side},
    },
    memory::scratch::{Buffer, Scratch},
    simd::rows::Transpose,
    tile::{TILE, tiles},
};

/// One query head against a chunk of its keys.
pub(super) struct Pass<'a> {
    pub(super) all: &'a Backward<'a>,
    pub(super) head: Head<'a>,
    pub(super) learned: &'a mut LearnedHead,
    pub(super) keys: Range<usize>,
}

impl Pass<'_> {
    /// Adds to the keys' and values' gradients, and leaves those of the compared queries in `scratch`.
    /// Returns the queries that see any of the keys.
    pub(super) fn run(
        &mut self,
        d_k: &mut [f32],
        d_v: &mut [f32],
        scratch: &mut Scratch,
    ) -> Option<Range<usize>> {
        let rows = self.seen_by()?;
        let attention = self.all.plan.attention;
        let (simd, shape) = (attention.simd, attention.shape);
        let (dim, value_dim, width) = (shape.head_dim, shape.value_dim, self.head.width());

        let (mut prepared, mut relative) =
            (std::mem::take(&mut scratch.queries), std::mem::take(&mut scratch.relative));
        let (indices, copied) = (Indices::Run(rows.clone()), &mut scratch.copied);
        let queries = self.head.queries(indices, copied, &mut prepared, &mut relative);
        let out_rows = shape.out_head(self.head.batch, self.head.head).start;
        let of_rows = out_rows + rows.start * value_dim..out_rows + rows.end * value_dim;
        let mut d_out = std::mem::take(&mut scratch.d_out);
        let d_out_rows = d_out.aligned(&self.all.d_out[of_rows.clone()]);
        let mean = scratch.mean.sized(rows.len());
        let out = &self.all.out[of_rows];
        mean_of_rows(attention, d_out_rows, out, &mut scratch.rounded, mean);
        scratch.d_queries.zeroed(rows.len() * width);
        scratch.d_relative.zeroed(self.all.plan.relative_keys.len() * rows.len() * dim);

        let (mut key_rows, mut key_cols, mut value_cols) = (
            std::mem::take(&mut scratch.key_rows),
            std::mem::take(&mut scratch.key_cols),
            std::mem::take(&mut scratch.value_cols),
        );
        for range in tiles(self.keys.clone()) {
            let keys = self.head.keys(range.clone(), &queries, &mut key_rows, &mut key_cols);
            let values = &self.head.v[range.start * value_dim..range.end * value_dim];
            let value_cols = value_cols.sized(value_dim * TILE);
            simd.run(Transpose { from: values, width: value_dim, to: value_cols });
            scratch.d_keys.zeroed(TILE * width);
            scratch.d_values.zeroed(TILE * value_dim);
            for (tile_rows, outline) in self.head.visible_above(rows.clone(), range.clone()) {
                let first = tile_rows.start - rows.start;
                let row = shape.row_head(self.head.batch, self.head.head).start + tile_rows.start;
                let step = Step {
                    queries: queries.from(first),
                    keys: &keys,
                    value_cols,
                    d_out: &d_out_rows[first * value_dim..],
                    lse: &self.all.lse[row..],
                    centers: attention.focus.map_or(&[], |focus| &focus.centers[row..]),
                    outline,
                };
                step.run(&self.head, &self.keys, self.learned, scratch);
            }
            let own = range.start - self.keys.start..range.end - self.keys.start;
            let d_v = &mut d_v[own.start * value_dim..own.end * value_dim];
            d_v.iter_mut().zip(scratch.d_values.iter()).for_each(|(sum, d)| *sum += d);
            let raw = &self.head.k[range.start * dim..range.end * dim];
            let (indices, d_k) = (Indices::Run(range), &mut d_k[own.start * dim..own.end * dim]);
            let Scratch { d_keys, row, .. } = &mut *scratch;
            keys_backward(&self.head, self.learned, indices, raw, d_keys, d_k, row);
        }
        (scratch.queries, scratch.relative, scratch.d_out) = (prepared, relative, d_out);
        (scratch.key_rows, scratch.key_cols, scratch.value_cols) = (key_rows, key_cols, value_cols);
        Some(rows)
    }

    /// The queries, in whole tiles, between the first and the last that see any of the chunk's keys.
    fn seen_by(&self) -> Option<Range<usize>> {
        let attention = self.all.plan.attention;
        let mut seen = tiles(0..attention.shape.queries).filter(|rows| {
            let tile = self.head.tile(rows.clone(), self.keys.clone());
            self.head.plan.pattern.coverage(&tile) != Coverage::Empty
        });
        let first = seen.next()?;
        let last = seen.next_back().unwrap_or(first.clone());
        Some(first.start..last.end)
    }

    /// From gradients of the compared queries, and of the relative ones, to those of the raw queries.
    pub(super) fn queries_backward(
        &mut self,
        rows: Range<usize>,
        d_q: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let dim = self.all.plan.attention.shape.head_dim;
        let d_q = &mut d_q[rows.start * dim..rows.end * dim];
        let raw = &self.head.q[rows.start * dim..rows.end * dim];
        let indices = Indices::Run(rows);
        let Scratch { d_queries, d_relative, row, .. } = scratch;
        queries_backward(&self.head, self.learned, indices, raw, d_queries, d_relative, d_q, row);
    }
}

/// From gradients of compared queries, and of the relative ones, to those of the raw queries, which are added to.
#[expect(clippy::too_many_arguments, reason = "the rows of a task, before and after")]
pub(crate) fn queries_backward(
    head: &Head,
    learned: &mut LearnedHead,
    indices: Indices,
    raw: &[f32],
    d_queries: &mut [f32],
    d_relative: &[f32],
    d_q: &mut [f32],
    row: &mut Buffer,
) {
    let attention = head.attention();
    let (dim, width, count) = (attention.shape.head_dim, head.width(), indices.len());
    attention.simd.run(PrepareBackward {
        preparation: &head.preparation,
        side: Side::Query,
        indices,
        raw,
        d_prepared: &mut d_queries[..count * width],
        d_raw: d_q,
        d_bias: &mut learned.query_bias,
        d_deltas: &mut learned.deltas,
        row: row.sized(width),
    });
    let parts = d_relative.chunks_exact((count * dim).max(1)).zip(&head.plan.relative_keys);
    for ((d, keys), learned) in parts.zip(&mut learned.relative) {
        for (d, d_q) in d.chunks_exact(dim).zip(d_q.chunks_exact_mut(dim)) {
            d_q.iter_mut().zip(d).for_each(|(sum, d)| *sum += keys.scale * d);
            learned.query_bias.iter_mut().zip(d).for_each(|(sum, d)| *sum += keys.scale * d);
        }
    }
}

/// From gradients of a tile's compared keys to those of its raw keys, which are added to.
pub(crate) fn keys_backward(
    head: &Head,
    learned: &mut LearnedHead,
    indices: Indices,
    raw: &[f32],
    d_keys: &mut [f32],
    d_k: &mut [f32],
    row: &mut Buffer,
) {
    let attention = head.attention();
    let (dim, width) = (attention.shape.head_dim, head.width());
    if head.pairwise().is_some() {
        // Such a score leaves them transposed.
        for (key, d_k) in d_k.chunks_exact_mut(dim).enumerate() {
            d_k.iter_mut().enumerate().for_each(|(c, d)| *d += d_keys[c * TILE + key]);
        }
        return;
    }
    attention.simd.run(PrepareBackward {
        preparation: &head.preparation,
        side: Side::Key,
        d_prepared: &mut d_keys[..indices.len() * width],
        indices,
        raw,
        d_raw: d_k,
        d_bias: &mut [],
        d_deltas: &mut learned.deltas,
        row: row.sized(width),
    });
}
