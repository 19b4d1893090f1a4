//! The forward pass: `out = softmax(scores) · v`, one chunk of queries of one head at a time.
//!
//! Key tiles run outermost, so each is prepared once per chunk; the running maximum and sum of every row make
//! the softmax of the tiles seen so far (online softmax). Memory is O(length): no scores outlive their tile.

use std::ops::Range;

use crate::{
    Error,
    attention::{Attention, Inputs, Output, head::Head, plan::Plan, touched},
    error::expect_len,
    memory::scratch::{Buffer, Scratch},
    parallel,
    simd::{
        bands::FoldBand,
        matmul::{Accumulate, Matmul},
        rows::{Multiply, Region, ScaleRows},
        softmax::Softmax,
    },
    tile::{TILE, query_chunks, tiles},
};

impl Attention<'_> {
    /// Computes the output and each row's log-sum-exp.
    pub fn forward(&self, inputs: &Inputs) -> Result<Output, Error> {
        self.check_forward(inputs)?;
        let mut output =
            Output { out: touched(self.shape.out_len()), lse: touched(self.shape.rows()) };
        self.compute(inputs, &mut output.out, &mut output.lse);
        Ok(output)
    }

    /// [`Self::forward`] into buffers of the caller.
    pub fn forward_into(
        &self,
        inputs: &Inputs,
        out: &mut [f32],
        lse: &mut [f32],
    ) -> Result<(), Error> {
        self.check_forward(inputs)?;
        expect_len("out", out.len(), self.shape.out_len())?;
        expect_len("lse", lse.len(), self.shape.rows())?;
        self.compute(inputs, out, lse);
        Ok(())
    }

    /// The pass of a call that was checked.
    fn compute(&self, inputs: &Inputs, out: &mut [f32], lse: &mut [f32]) {
        let plan = Plan::new(self, *inputs);
        parallel::run(chunks(self, out, lse), |chunk, scratch| {
            forward_chunk(&plan.head(chunk.batch, chunk.head), chunk, scratch);
        });
    }
}

/// Some queries of one head, and where their results go.
struct Chunk<'o> {
    batch: usize,
    head: usize,
    rows: Range<usize>,
    out: &'o mut [f32],
    lse: &'o mut [f32],
}

/// All chunks of a call, those at the end of a sequence first: under causal patterns they cost most.
fn chunks<'o>(
    attention: &Attention,
    mut out: &'o mut [f32],
    mut lse: &'o mut [f32],
) -> Vec<Chunk<'o>> {
    let shape = &attention.shape;
    if shape.queries == 0 {
        return Vec::new();
    }
    let ranges = query_chunks(shape.queries, shape.batch * shape.heads);
    let mut chunks = Vec::with_capacity(shape.batch * shape.heads * ranges.len());
    for index in 0..shape.batch * shape.heads {
        for rows in &ranges {
            chunks.push(Chunk {
                batch: index / shape.heads,
                head: index % shape.heads,
                rows: rows.clone(),
                out: out.split_off_mut(..rows.len() * shape.value_dim).unwrap_or_default(),
                lse: lse.split_off_mut(..rows.len()).unwrap_or_default(),
            });
        }
    }
    chunks.sort_by_key(|chunk| std::cmp::Reverse(chunk.rows.start));
    chunks
}

fn forward_chunk(head: &Head, chunk: Chunk, scratch: &mut Scratch) {
    let attention = head.attention();
    let (simd, value_dim) = (attention.simd, attention.shape.value_dim);
    let Scratch { queries, relative, key_rows, key_cols, values, scores, factors, terms, .. } =
        scratch;
    let Chunk { rows, out, lse, .. } = chunk;
    let queries = head.queries(rows.clone(), queries, relative);
    let scores = scores.sized(TILE * TILE);
    let factors = factors.sized(TILE * TILE);
    let max = scratch.max.sized(rows.len());
    let sum = scratch.sum.zeroed(rows.len());
    max.fill(f32::NEG_INFINITY);
    out.fill(0.0);

    for key_range in tiles(0..attention.shape.keys) {
        let mut visible = head.visible_above(rows.clone(), key_range.clone()).peekable();
        if visible.peek().is_none() {
            continue;
        }
        let keys = head.keys(key_range.clone(), &queries, key_rows, key_cols);
        let values =
            values.aligned(&head.v[key_range.start * value_dim..key_range.end * value_dim]);
        for (tile_rows, outline) in visible {
            let first = tile_rows.start - rows.start;
            head.scores(queries.from(first), &keys, &outline, scores, None, terms);
            for region in outline.regions() {
                let (max, sum) = (&mut max[first..], &mut sum[first..]);
                let rescale = &mut scratch.rescale;
                simd.run(Softmax { region: region.clone(), scores, max, sum, rescale });
                if head.factors(tile_rows.start, key_range.start, &region, factors) {
                    simd.run(Multiply { region: region.clone(), values: scores, factors });
                }
                let out = &mut out[first * value_dim..];
                mix(head, scores, values, &region, &scratch.rescale, out);
                mix_relative(head, scores, tile_rows.start, key_range.start, &region, out, terms);
            }
        }
    }
    finish(head, max, sum, out, lse);
}

/// `out = rescale · out + weights · values` for the rows of a region; `out` starts at the tile's first row.
fn mix(
    head: &Head,
    weights: &[f32],
    values: &[f32],
    region: &Region,
    rescale: &[f32; TILE],
    out: &mut [f32],
) {
    let attention = head.attention();
    let value_dim = attention.shape.value_dim;
    let Region { rows, cols } = region.clone();
    attention.product(Matmul {
        rows: rows.len(),
        cols: value_dim,
        inner: cols.end.min(values.len() / value_dim) - cols.start,
        a: &weights[region.of(rows.start).start..],
        a_row: TILE,
        a_step: 1,
        b: &values[cols.start * value_dim..],
        b_row: value_dim,
        c: &mut out[rows.start * value_dim..],
        c_row: value_dim,
        old: Accumulate::ScaleAdd(&rescale[rows]),
    });
}

/// Adds the relative values: weights summed by clipped distance, times the table.
fn mix_relative(
    head: &Head,
    weights: &[f32],
    query: usize,
    key: usize,
    region: &Region,
    out: &mut [f32],
    terms: &mut Buffer,
) {
    let Some(table) = &head.plan.relative_values else { return };
    let attention = head.attention();
    let value_dim = attention.shape.value_dim;
    let band = head.band(query, key, region, &table.vectors);
    let entries = band.entries();
    let terms = terms.sized(TILE * entries.len());
    attention.simd.run(FoldBand { band, region: region.clone(), d_scores: weights, terms });
    attention.simd.run(Matmul {
        rows: region.rows.len(),
        cols: value_dim,
        inner: entries.len(),
        a: &terms[region.rows.start * entries.len()..],
        a_row: entries.len(),
        a_step: 1,
        b: &table.by_distance(head.head)[entries.start * value_dim..],
        b_row: value_dim,
        c: &mut out[region.rows.start * value_dim..],
        c_row: value_dim,
        old: Accumulate::Add,
    });
}

/// Divides by the sums. A row that saw nothing has the sum 0, the output 0 and the log-sum-exp −∞.
fn finish(head: &Head, max: &[f32], sum: &mut [f32], out: &mut [f32], lse: &mut [f32]) {
    for ((lse, max), sum) in lse.iter_mut().zip(max).zip(sum.iter_mut()) {
        *lse = max + sum.ln();
        *sum = if *sum == 0.0 { 0.0 } else { 1.0 / *sum };
    }
    let attention = head.attention();
    let width = attention.shape.value_dim;
    attention.simd.run(ScaleRows { values: out, width, factors: sum });
}
