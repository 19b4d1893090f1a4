//! The forward pass: `out = softmax(scores) · v`, one chunk of queries of one head at a time.
//!
//! Key tiles run outermost, so each is prepared once per chunk; the running maximum and sum of every row make
//! the softmax of the tiles seen so far (online softmax). Memory is O(length): no scores outlive their tile.

use std::ops::Range;

use crate::{
    Error,
    attention::{
        Attention, Inputs, Output,
        biases::Terms,
        gathered::{self, Layers},
        head::{Head, Keys, Rows},
        indices::Indices,
        plan::Plan,
        touched,
    },
    error::expect_len,
    memory::scratch::Scratch,
    parallel,
    simd::{
        bands::FoldBand,
        matmul::{Accumulate, Matmul},
        rows::{Multiply, Region, ScaleRows},
        softmax::Softmax,
    },
    tile::{Outline, TILE, query_chunks, tiles},
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
        let layers = Layers::of(self);
        layers.plan(self, inputs).forward(&layers, out, lse);
    }
}

impl Plan<'_> {
    /// What lies together, then what is gathered.
    pub(crate) fn forward(&self, layers: &Layers, out: &mut [f32], lse: &mut [f32]) {
        if layers.neighbors().is_some() {
            parallel::run(chunks(self.attention, out, lse), |chunk, scratch| {
                forward_chunk(&self.head(chunk.batch, chunk.head), chunk, scratch);
            });
        } else {
            out.fill(0.0);
            lse.fill(f32::NEG_INFINITY);
        }
        for layer in &layers.gathered {
            gathered::forward(self, layer, out, lse);
        }
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
    let value_dim = attention.shape.value_dim;
    let Scratch { queries, relative, copied, key_rows, key_cols, values, .. } = scratch;
    let Chunk { rows, out, lse, .. } = chunk;
    let queries = head.queries(Indices::Run(rows.clone()), copied, queries, relative);
    let mut work = Work {
        scores: scratch.scores.sized(TILE * TILE),
        factors: scratch.factors.sized(TILE * TILE),
        rescale: &mut scratch.rescale,
        terms: Terms { terms: &mut scratch.terms, entries: &mut scratch.entries },
    };
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
            let sums = Sums {
                max: &mut max[first..],
                sum: &mut sum[first..],
                out: &mut out[first * value_dim..],
            };
            add_tile(head, queries.from(first), &keys, values, &outline, sums, &mut work);
        }
    }
    finish(head, max, sum, out, lse);
}

/// What a tile works with besides its queries and keys.
pub(super) struct Work<'s> {
    pub(super) scores: &'s mut [f32],
    pub(super) factors: &'s mut [f32],
    pub(super) rescale: &'s mut [f32; TILE],
    pub(super) terms: Terms<'s>,
}

/// The softmax so far of a tile's rows and those after them.
pub(super) struct Sums<'o> {
    pub(super) max: &'o mut [f32],
    pub(super) sum: &'o mut [f32],
    pub(super) out: &'o mut [f32],
}

/// One step of online softmax: a tile of queries against a tile of keys.
pub(super) fn add_tile(
    head: &Head,
    queries: Rows,
    keys: &Keys,
    values: &[f32],
    outline: &Outline,
    sums: Sums,
    work: &mut Work,
) {
    let simd = head.attention().simd;
    let Work { scores, factors, rescale, terms } = work;
    let Sums { max, sum, out } = sums;
    head.scores(queries, keys, outline, scores, None, terms);
    for region in outline.regions() {
        simd.run(Softmax { region: region.clone(), scores, max, sum, rescale });
        if head.factors(queries, keys, &region, factors) {
            simd.run(Multiply { region: region.clone(), values: scores, factors });
        }
        mix(head, scores, values, &region, rescale, out);
        mix_relative(head, scores, queries, keys, &region, out, terms);
    }
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
    queries: Rows,
    keys: &Keys,
    region: &Region,
    out: &mut [f32],
    work: &mut Terms,
) {
    let Some(table) = &head.plan.relative_values else { return };
    let queries = queries.indices();
    if let Indices::List(list) = keys.indices {
        return head.mix_gathered_relative(&queries, list, weights, region, out, work.entries);
    }
    let (query, key, terms) = (queries.at(0), keys.indices.at(0), &mut *work.terms);
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
pub(super) fn finish(head: &Head, max: &[f32], sum: &mut [f32], out: &mut [f32], lse: &mut [f32]) {
    for ((lse, max), sum) in lse.iter_mut().zip(max).zip(sum.iter_mut()) {
        *lse = max + sum.ln();
        *sum = if *sum == 0.0 { 0.0 } else { 1.0 / *sum };
    }
    let attention = head.attention();
    let width = attention.shape.value_dim;
    attention.simd.run(ScaleRows { values: out, width, factors: sum });
}
