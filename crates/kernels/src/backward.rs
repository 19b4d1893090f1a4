//! The backward pass: gradients of everything that can learn, one chunk of keys of one key head at a time.
//!
//! Scores are formed again as in the forward pass, tile by tile, and with the weights `w = exp(score − log_sum)`:
//! `d_v = wᵀ d_out`, `d_w = d_out vᵀ`, `d_score = w (d_w − d_out·out)`, `d_q = d_score k`, `d_k = d_scoreᵀ q`.
//! A task owns its keys' gradients; the queries of a head are shared between its chunks, each of which sums its part
//! of `d_q` apart and adds it when its turn has come.

use std::ops::Range;

use crate::{
    Attended, Attention, Bias, Error, Gradients, Inputs, Score,
    error::expect_len,
    learned::{Learned, LearnedHead, Totals},
    parallel::{self, InTurn},
    pattern::Coverage,
    plan::{Head, Keys, Plan, Rows, band_terms},
    prepare::{PrepareBackward, Side},
    scratch::Scratch,
    simd::{
        additive::AdditiveBackward,
        bands::{AddBand, FoldBand, FoldDiagonals},
        matmul::{Matmul, Old},
        rows::{CentersBackward, DotRows, Multiply, Region, SoftmaxBackward, Transpose},
    },
    tile::{Outline, TILE, chunks_per_head, key_chunks, tiles},
};

/// Chunks per head when a learned dense bias has its heads worked on one after the other.
const DENSE_CHUNKS: usize = 8;

impl Attention<'_> {
    /// Computes the gradients of a scalar whose gradient with respect to `made.out` is `d_out`.
    /// `made` is what [`Self::forward`] returned for the same inputs.
    pub fn backward(
        &self,
        inputs: &Inputs,
        made: &Attended,
        d_out: &[f32],
    ) -> Result<Gradients, Error> {
        self.check_inputs(inputs)?;
        let mut gradients = Gradients::zeros(self);
        self.backward_into(inputs, &made.out, &made.log_sum, d_out, &mut gradients)?;
        Ok(gradients)
    }

    /// [`Self::backward`] into gradients of the caller, which are overwritten.
    pub fn backward_into(
        &self,
        inputs: &Inputs,
        out: &[f32],
        log_sum: &[f32],
        d_out: &[f32],
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        self.check_inputs(inputs)?;
        expect_len("out", out.len(), self.shape.out_len())?;
        expect_len("log_sum", log_sum.len(), self.shape.rows())?;
        expect_len("d_out", d_out.len(), self.shape.out_len())?;
        expect_len("gradients of q", gradients.q.len(), self.shape.q_len())?;
        expect_len("gradients of k", gradients.k.len(), self.shape.k_len())?;
        expect_len("gradients of v", gradients.v.len(), self.shape.v_len())?;
        if self.shape.queries == 0 || self.shape.keys == 0 {
            *gradients = Gradients::zeros(self);
            return Ok(());
        }
        let plan = Plan::new(self, *inputs);
        Backward { plan: &plan, out, log_sum, d_out }.run(gradients);
        Ok(())
    }
}

struct Backward<'a> {
    plan: &'a Plan<'a>,
    out: &'a [f32],
    log_sum: &'a [f32],
    d_out: &'a [f32],
}

/// Some keys of one key head, and where the gradients go.
struct Chunk<'s, 'o> {
    batch: usize,
    kv_head: usize,
    keys: Range<usize>,
    /// When the chunk may add to `d_q`: after those before it.
    turn: usize,
    /// `[queries, head_dim]` of each head of the group; none if there are no queries.
    d_q: &'s [InTurn<'o>],
    /// `[keys, head_dim]`.
    d_k: &'o mut [f32],
    /// `[keys, value_dim]`.
    d_v: &'o mut [f32],
    learned: &'s mut Learned,
}

impl Backward<'_> {
    fn run(&self, gradients: &mut Gradients) {
        let attention = self.plan.attention;
        let shape = &attention.shape;
        let heads = shape.batch * shape.kv_heads;
        let dense = attention.biases.iter().any(|b| matches!(b, Bias::Dense { learned: true, .. }));
        let ranges = self.key_ranges(if dense { DENSE_CHUNKS } else { chunks_per_head(heads) });
        let per_head = (shape.queries * shape.head_dim).max(1);
        let shared: Vec<InTurn> = gradients.q.chunks_exact_mut(per_head).map(InTurn::new).collect();
        let mut d_k = split(&mut gradients.k, heads, &ranges, shape.head_dim);
        let mut d_v = split(&mut gradients.v, heads, &ranges, shape.value_dim);
        let mut totals = Totals::new(self.plan);
        // Blocks of a dense bias's gradient are added up head by head, to hold no more than one head's at a time.
        let per_wave = if dense { 1 } else { heads };
        for wave in (0..heads).step_by(per_wave) {
            let indices = wave..(wave + per_wave).min(heads);
            let mut learned: Vec<Learned> = Vec::new();
            learned.resize_with(indices.len() * ranges.len(), Learned::default);
            let mut slots = learned.iter_mut();
            let mut chunks = Vec::with_capacity(slots.len());
            // Chunk by chunk rather than head by head, so that nobody waits long for a turn.
            for (turn, keys) in ranges.iter().enumerate() {
                for (index, learned) in indices.clone().zip(&mut slots) {
                    chunks.push(Chunk {
                        batch: index / shape.kv_heads,
                        kv_head: index % shape.kv_heads,
                        turn,
                        keys: keys.clone(),
                        d_q: shared.chunks_exact(shape.group()).nth(index).unwrap_or_default(),
                        d_k: std::mem::take(&mut d_k[index * ranges.len() + turn]),
                        d_v: std::mem::take(&mut d_v[index * ranges.len() + turn]),
                        learned,
                    });
                }
            }
            parallel::run(chunks, |chunk, scratch| self.chunk(chunk, scratch));
            for learned in &learned {
                totals.add(learned);
            }
        }
        drop(shared);
        totals.finish(gradients);
    }

    /// Cuts the keys of a head into chunks of about equal cost.
    fn key_ranges(&self, chunks: usize) -> Vec<Range<usize>> {
        let shape = &self.plan.attention.shape;
        let head = self.plan.head(0, 0);
        let cost: Vec<usize> = tiles(0..shape.keys)
            .map(|keys| {
                let seen = |rows: &Range<usize>| {
                    let tile = head.tile(rows.clone(), keys.clone());
                    self.plan.attention.pattern.coverage(&tile) != Coverage::Empty
                };
                1 + tiles(0..shape.queries).filter(seen).count()
            })
            .collect();
        key_chunks(shape.keys, &cost, chunks)
    }
}

/// Cuts a tensor over `heads` heads of keys into the parts of each head's chunks.
fn split<'o>(
    mut whole: &'o mut [f32],
    heads: usize,
    ranges: &[Range<usize>],
    width: usize,
) -> Vec<&'o mut [f32]> {
    let ranges = std::iter::repeat_n(ranges, heads).flatten();
    ranges.map(|range| whole.split_off_mut(..range.len() * width).unwrap_or_default()).collect()
}

impl Backward<'_> {
    fn chunk(&self, chunk: Chunk, scratch: &mut Scratch) {
        let shape = self.plan.attention.shape;
        let Chunk { batch, kv_head, keys, turn, d_q, d_k, d_v, learned } = chunk;
        d_k.fill(0.0);
        d_v.fill(0.0);
        let _guard = InTurn::guard(d_q);
        for (member, d_q) in d_q.iter().enumerate() {
            let head = self.plan.head(batch, kv_head * shape.group() + member);
            let learned = learned.head(&head, &keys);
            let mut pass = Pass { all: self, head, learned, keys: keys.clone() };
            let rows = pass.run(d_k, d_v, scratch);
            d_q.at(turn, |d_q| {
                if turn == 0 {
                    d_q.fill(0.0);
                }
                if let Some(rows) = rows {
                    pass.queries_backward(rows, d_q, scratch);
                }
            });
        }
    }
}

/// One query head against a chunk of its keys.
struct Pass<'a> {
    all: &'a Backward<'a>,
    head: Head<'a>,
    learned: &'a mut LearnedHead,
    keys: Range<usize>,
}

/// One tile of queries against one tile of keys.
struct Step<'s> {
    queries: Rows<'s>,
    keys: &'s Keys<'s>,
    value_cols: &'s [f32],
    /// Output gradients from the tile's first row on.
    d_out: &'s [f32],
    outline: Outline,
}

impl Pass<'_> {
    /// Adds to the keys' and values' gradients, and leaves those of the compared queries in `scratch`.
    /// Returns the queries that see any of the keys.
    fn run(
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
        let queries = self.head.queries(rows.clone(), &mut prepared, &mut relative);
        let out_rows = shape.out_head(self.head.batch, self.head.head).start;
        let of_rows = out_rows + rows.start * value_dim..out_rows + rows.end * value_dim;
        let mut d_out = std::mem::take(&mut scratch.d_out);
        let d_out_rows = d_out.aligned(&self.all.d_out[of_rows.clone()]);
        simd.run(DotRows {
            a: d_out_rows,
            b: &self.all.out[of_rows],
            width: value_dim,
            dots: scratch.mean.sized(rows.len()),
        });
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
                let step = Step {
                    queries: queries.from(first),
                    keys: &keys,
                    value_cols,
                    d_out: &d_out_rows[first * value_dim..],
                    outline,
                };
                step.run(&self.head, self.all, &self.keys, self.learned, scratch);
            }
            let own = range.start - self.keys.start..range.end - self.keys.start;
            let d_v = &mut d_v[own.start * value_dim..own.end * value_dim];
            d_v.iter_mut().zip(scratch.d_values.iter()).for_each(|(sum, d)| *sum += d);
            self.keys_backward(&range, &mut d_k[own.start * dim..own.end * dim], scratch);
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
            attention.pattern.coverage(&tile) != Coverage::Empty
        });
        let first = seen.next()?;
        let last = seen.next_back().unwrap_or(first.clone());
        Some(first.start..last.end)
    }

    /// From gradients of a tile's compared keys to those of its raw keys.
    fn keys_backward(&mut self, range: &Range<usize>, d_k: &mut [f32], scratch: &mut Scratch) {
        let attention = self.all.plan.attention;
        let (dim, width) = (attention.shape.head_dim, self.head.width());
        let d_keys = &mut scratch.d_keys;
        if let Score::Additive { .. } = attention.score {
            // The additive score leaves them transposed.
            for (key, d_k) in d_k.chunks_exact_mut(dim).enumerate() {
                d_k.iter_mut().enumerate().for_each(|(c, d)| *d += d_keys[c * TILE + key]);
            }
            return;
        }
        attention.simd.run(PrepareBackward {
            preparation: &self.head.preparation,
            side: Side::Key,
            first_place: attention.first_key + range.start,
            raw: &self.head.k[range.start * dim..range.end * dim],
            d_prepared: &mut d_keys[..range.len() * width],
            d_raw: d_k,
            d_bias: &mut [],
            d_deltas: &mut self.learned.deltas,
            row: scratch.row.sized(width),
        });
    }

    /// From gradients of the compared queries, and of the relative ones, to those of the raw queries.
    fn queries_backward(&mut self, rows: Range<usize>, d_q: &mut [f32], scratch: &mut Scratch) {
        let attention = self.all.plan.attention;
        let (dim, width) = (attention.shape.head_dim, self.head.width());
        let d_q = &mut d_q[rows.start * dim..rows.end * dim];
        attention.simd.run(PrepareBackward {
            preparation: &self.head.preparation,
            side: Side::Query,
            first_place: attention.first_query + rows.start,
            raw: &self.head.q[rows.start * dim..rows.end * dim],
            d_prepared: &mut scratch.d_queries[..rows.len() * width],
            d_raw: d_q,
            d_bias: &mut self.learned.query_bias,
            d_deltas: &mut self.learned.deltas,
            row: scratch.row.sized(width),
        });
        let per_bias = (rows.len() * dim).max(1);
        let parts = scratch.d_relative.chunks_exact(per_bias).zip(&self.all.plan.relative_keys);
        for ((d, keys), learned) in parts.zip(&mut self.learned.relative) {
            for (d, d_q) in d.chunks_exact(dim).zip(d_q.chunks_exact_mut(dim)) {
                d_q.iter_mut().zip(d).for_each(|(sum, d)| *sum += keys.scale * d);
                learned.query_bias.iter_mut().zip(d).for_each(|(sum, d)| *sum += keys.scale * d);
            }
        }
    }
}

impl Step<'_> {
    fn run(
        &self,
        head: &Head,
        all: &Backward,
        chunk_keys: &Range<usize>,
        learned: &mut LearnedHead,
        scratch: &mut Scratch,
    ) {
        let attention = all.plan.attention;
        let (simd, shape) = (attention.simd, attention.shape);
        let value_dim = shape.value_dim;
        let query = self.queries.index();
        let row = shape.row_head(head.batch, head.head).start + query;
        let (log_sum, d_out) = (&all.log_sum[row..], self.d_out);
        let Scratch { scores, d_scores, slopes, factors, terms, .. } = scratch;
        let scores = scores.sized(TILE * TILE);
        let d_scores = d_scores.sized(TILE * TILE);
        let slopes = slopes.sized(TILE * TILE);
        let factors = factors.sized(TILE * TILE);
        if self.outline.partial {
            // Products over queries read whole halves of the tile, also where no pair is visible.
            scores.fill(0.0);
            d_scores.fill(0.0);
        }
        head.scores(
            self.queries,
            self.keys,
            &self.outline,
            scores,
            attention.soft_cap.map(|_| &mut *slopes),
            terms,
        );
        let key = self.keys.range.start;
        for region in self.outline.regions() {
            simd.run(Matmul {
                rows: region.rows.len(),
                cols: region.cols.len(),
                inner: value_dim,
                a: &d_out[region.rows.start * value_dim..],
                a_row: value_dim,
                a_step: 1,
                b: &self.value_cols[region.cols.start..],
                b_row: TILE,
                c: &mut d_scores[region.of(region.rows.start).start..],
                c_row: TILE,
                old: Old::Drop,
            });
            if let Some(table) = &all.plan.relative_values {
                let band = head.band(query, key, &region, &table.vectors);
                let terms = band_terms(head, d_out, value_dim, table, &band, &region, terms);
                simd.run(AddBand { band, region: region.clone(), scores: d_scores, terms });
            }
            let scaled = head.factors(query, key, &region, factors);
            if let Some(focus) = attention.focus {
                simd.run(CentersBackward {
                    region: region.clone(),
                    scores,
                    d_weights: d_scores,
                    factors,
                    log_sum,
                    centers: &focus.centers[row..],
                    deviation: focus.deviation,
                    first_key: attention.first_key + key,
                    d_centers: &mut learned.centers[query..],
                });
            }
            simd.run(SoftmaxBackward {
                region: region.clone(),
                scores,
                d_weights: d_scores,
                factors: scaled.then_some(&*factors),
                log_sum,
                mean: &scratch.mean[self.queries.first..],
            });
        }
        self.values_backward(head, all, learned, scratch);
        for region in self.outline.regions() {
            self.biases_backward(head, all, chunk_keys, learned, &region, scratch);
            if attention.soft_cap.is_some() {
                let (values, factors) = (&mut scratch.d_scores[..], &scratch.slopes[..]);
                simd.run(Multiply { region, values, factors });
            }
        }
        self.compare_backward(head, learned, scratch);
    }

    /// `d_v += weightsᵀ d_out`, and the same for relative values, whose weights are summed by distance.
    fn values_backward(
        &self,
        head: &Head,
        all: &Backward,
        learned: &mut LearnedHead,
        scratch: &mut Scratch,
    ) {
        let attention = all.plan.attention;
        let value_dim = attention.shape.value_dim;
        let weights = &scratch.scores[..];
        for half in self.outline.halves() {
            product_over_rows(head, &half, weights, self.d_out, value_dim, &mut scratch.d_values);
        }
        let Some(table) = &all.plan.relative_values else { return };
        for region in self.outline.regions() {
            let band =
                head.band(self.queries.index(), self.keys.range.start, &region, &table.vectors);
            let terms = scratch.terms.sized(TILE * band.entries().len());
            attention.simd.run(FoldBand { band, region: region.clone(), d_scores: weights, terms });
            let d_table = &mut learned.relative_values;
            product_of_terms(head, &region, band.entries(), terms, self.d_out, value_dim, d_table);
        }
    }

    /// Gradients of every bias from a region's `d_scores`.
    fn biases_backward(
        &self,
        head: &Head,
        all: &Backward,
        chunk_keys: &Range<usize>,
        learned: &mut LearnedHead,
        region: &Region,
        scratch: &mut Scratch,
    ) {
        let attention = all.plan.attention;
        let (simd, dim) = (attention.simd, attention.shape.head_dim);
        let d_scores = &scratch.d_scores[..];
        let (query, key) = (self.queries.index(), self.keys.range.start);
        if !learned.by_distance.is_empty() {
            simd.run(FoldDiagonals {
                region: region.clone(),
                d_scores,
                table: &mut learned.by_distance,
                start: head.distance_index(query, key),
            });
        }
        for (i, relative) in all.plan.relative_keys.iter().enumerate() {
            let band = head.band(query, key, region, &relative.table.vectors);
            let entries = band.entries();
            let terms = scratch.terms.sized(TILE * entries.len());
            simd.run(FoldBand { band, region: region.clone(), d_scores, terms });
            let offset = self.queries.relative_start(i, dim);
            simd.run(Matmul {
                rows: region.rows.len(),
                cols: dim,
                inner: entries.len(),
                a: &terms[region.rows.start * entries.len()..],
                a_row: entries.len(),
                a_step: 1,
                b: &relative.table.by_distance(head.head)[entries.start * dim..],
                b_row: dim,
                c: &mut scratch.d_relative[offset + region.rows.start * dim..],
                c_row: dim,
                old: Old::Keep,
            });
            let rows = self.queries.relative(i, dim);
            let d_table = &mut learned.relative[i].table;
            product_of_terms(head, region, entries, terms, rows, dim, d_table);
        }
        for dense in &mut learned.dense {
            let real = region.cols.end.min(self.keys.range.len()).max(region.cols.start);
            for row in region.rows.clone() {
                let d = &d_scores[region.of(row)][..real - region.cols.start];
                dense.add(query + row, key + region.cols.start - chunk_keys.start, d);
            }
        }
    }

    /// From `d_scores` to gradients of the compared queries and keys.
    fn compare_backward(&self, head: &Head, learned: &mut LearnedHead, scratch: &mut Scratch) {
        let attention = head.attention();
        let (simd, width) = (attention.simd, head.width());
        let prepared = self.queries.prepared(width);
        let Scratch { d_scores, d_queries, d_keys, .. } = scratch;
        let d_queries = &mut d_queries[self.queries.first * width..];
        for region in self.outline.regions() {
            let Region { rows, cols } = region.clone();
            match (attention.score, self.keys.cols) {
                (Score::Additive { weight }, Some(key_cols)) => simd.run(AdditiveBackward {
                    region,
                    form: self.queries.form(),
                    queries: prepared,
                    keys: key_cols,
                    weight: &weight[head.head * width..][..width],
                    d_scores,
                    d_queries,
                    d_keys,
                    d_weight: &mut learned.score,
                }),
                _ => simd.run(Matmul {
                    rows: rows.len(),
                    cols: width,
                    inner: cols.end.min(self.keys.range.len()).max(cols.start) - cols.start,
                    a: &d_scores[region.of(rows.start).start..],
                    a_row: TILE,
                    a_step: 1,
                    b: &self.keys.rows[cols.start * width..],
                    b_row: width,
                    c: &mut d_queries[rows.start * width..],
                    c_row: width,
                    old: Old::Keep,
                }),
            }
        }
        if !matches!(attention.score, Score::Additive { .. }) {
            for half in self.outline.halves() {
                product_over_rows(head, &half, d_scores, prepared, width, d_keys);
            }
        }
    }
}

/// `out[keys of the half] += tile[rows, keys]ᵀ · rows`: a product over the queries of a tile.
fn product_over_rows(
    head: &Head,
    half: &Region,
    tile: &[f32],
    rows: &[f32],
    width: usize,
    out: &mut [f32],
) {
    head.attention().simd.run(Matmul {
        rows: half.cols.len(),
        cols: width,
        inner: half.rows.len(),
        a: &tile[half.rows.start * TILE + half.cols.start..],
        a_row: 1,
        a_step: TILE,
        b: &rows[half.rows.start * width..],
        b_row: width,
        c: &mut out[half.cols.start * width..],
        c_row: width,
        old: Old::Keep,
    });
}

/// `d_table[entries] += terms[rows, entries]ᵀ · rows`: the gradient of a relative table.
fn product_of_terms(
    head: &Head,
    region: &Region,
    entries: Range<usize>,
    terms: &[f32],
    rows: &[f32],
    width: usize,
    d_table: &mut [f32],
) {
    head.attention().simd.run(Matmul {
        rows: entries.len(),
        cols: width,
        inner: region.rows.len(),
        a: &terms[region.rows.start * entries.len()..],
        a_row: 1,
        a_step: entries.len(),
        b: &rows[region.rows.start * width..],
        b_row: width,
        c: &mut d_table[entries.start * width..],
        c_row: width,
        old: Old::Keep,
    });
}
