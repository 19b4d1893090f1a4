//! One tile of queries against one tile of keys: weights again, then the gradients of values, biases, queries and keys.

use std::ops::Range;

use crate::{
    attention::{
        biases::{Terms, band_terms, product_of_terms},
        head::{Head, Keys, Rows},
        indices::Indices,
        learned::LearnedHead,
        pairwise::PairwiseTile,
    },
    memory::scratch::Scratch,
    simd::{
        bands::{AddBand, FoldBand},
        matmul::{Accumulate, Matmul},
        rows::{Multiply, Region},
        softmax::{CentersBackward, SoftmaxBackward},
    },
    tile::{Outline, TILE},
};

/// One tile of queries against one tile of keys.
pub(crate) struct Step<'s> {
    pub(crate) queries: Rows<'s>,
    pub(crate) keys: &'s Keys<'s>,
    pub(crate) value_cols: &'s [f32],
    /// Output gradients from the tile's first row on.
    pub(crate) d_out: &'s [f32],
    /// Log-sum-exps from there on, and the centers of focus if there is one.
    pub(crate) lse: &'s [f32],
    pub(crate) centers: &'s [f32],
    pub(crate) outline: Outline,
}

impl Step<'_> {
    pub(crate) fn run(
        &self,
        head: &Head,
        chunk_keys: &Range<usize>,
        learned: &mut LearnedHead,
        scratch: &mut Scratch,
    ) {
        let attention = head.attention();
        let (simd, value_dim) = (attention.simd, attention.shape.value_dim);
        let (lse, d_out) = (self.lse, self.d_out);
        let Scratch { scores, d_scores, slopes, factors, terms, entries, .. } = scratch;
        let mut terms = Terms { terms, entries };
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
            &mut terms,
        );
        let queries = self.queries.indices();
        for region in self.outline.regions() {
            attention.product(Matmul {
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
                old: Accumulate::Overwrite,
            });
            match (&head.plan.relative_values, &self.keys.indices) {
                (None, _) => {}
                (Some(table), Indices::Run(keys)) => {
                    let band = head.band(queries.at(0), keys.start, &region, &table.vectors);
                    let terms = &mut *terms.terms;
                    let terms = band_terms(head, d_out, value_dim, table, &band, &region, terms);
                    simd.run(AddBand { band, region: region.clone(), scores: d_scores, terms });
                }
                (Some(_), Indices::List(list)) => {
                    let entries = &mut *terms.entries;
                    head.add_gathered_relative_values(
                        &queries, list, d_out, &region, d_scores, entries,
                    );
                }
            }
            let scaled = head.factors(self.queries, self.keys, &region, factors);
            if let Some(focus) = attention.focus {
                let columns = self.keys.columns(&region);
                let count = columns.len();
                simd.run(CentersBackward {
                    region: region.clone(),
                    scores,
                    d_weights: d_scores,
                    factors,
                    lse,
                    centers: self.centers,
                    deviation: focus.deviation,
                    // Padding has no weight.
                    position: |column: usize| {
                        attention.first_key + columns.at(column.min(count - 1))
                    },
                    d_centers: &mut learned.centers[self.queries.line()..],
                });
            }
            simd.run(SoftmaxBackward {
                region: region.clone(),
                scores,
                d_weights: d_scores,
                factors: scaled.then_some(&*factors),
                lse,
                mean: &scratch.mean[self.queries.first..],
            });
        }
        self.values_backward(head, learned, scratch);
        for region in self.outline.regions() {
            head.biases_backward(self.queries, self.keys, chunk_keys, learned, &region, scratch);
            if attention.soft_cap.is_some() {
                let (values, factors) = (&mut scratch.d_scores[..], &scratch.slopes[..]);
                simd.run(Multiply { region, values, factors });
            }
        }
        self.compare_backward(head, learned, scratch);
    }

    /// `d_v += weightsᵀ d_out`, and the same for relative values, whose weights are summed by distance.
    fn values_backward(&self, head: &Head, learned: &mut LearnedHead, scratch: &mut Scratch) {
        let attention = head.attention();
        let value_dim = attention.shape.value_dim;
        let weights = &scratch.scores[..];
        for half in self.outline.halves() {
            product_over_rows(head, &half, weights, self.d_out, value_dim, &mut scratch.d_values);
        }
        let Some(table) = &head.plan.relative_values else { return };
        let queries = self.queries.indices();
        for region in self.outline.regions() {
            let key = match self.keys.indices {
                Indices::Run(ref keys) => keys.start,
                Indices::List(list) => {
                    let (d_table, entries) = (&mut learned.relative_values, &mut scratch.entries);
                    head.gathered_relative_values_backward(
                        &queries, list, weights, self.d_out, &region, d_table, entries,
                    );
                    continue;
                }
            };
            let band = head.band(queries.at(0), key, &region, &table.vectors);
            let terms = scratch.terms.sized(TILE * band.entries().len());
            attention.simd.run(FoldBand { band, region: region.clone(), d_scores: weights, terms });
            let d_table = &mut learned.relative_values;
            product_of_terms(head, &region, band.entries(), terms, self.d_out, value_dim, d_table);
        }
    }

    /// From `d_scores` to gradients of the compared queries and keys.
    fn compare_backward(&self, head: &Head, learned: &mut LearnedHead, scratch: &mut Scratch) {
        let attention = head.attention();
        let (simd, width, pairwise) = (attention.simd, head.width(), head.pairwise());
        let prepared = self.queries.prepared(width);
        let Scratch { d_scores, d_queries, d_keys, .. } = scratch;
        let d_queries = &mut d_queries[self.queries.first * width..];
        for region in self.outline.regions() {
            let Region { rows, cols } = region.clone();
            match (pairwise, self.keys.cols) {
                (Some(pairwise), Some(keys)) => {
                    let form = self.queries.form();
                    let tile = PairwiseTile { region, form, queries: prepared, keys };
                    let d_learned = &mut learned.score;
                    pairwise.backward(simd, tile, d_scores, d_queries, d_keys, d_learned);
                }
                _ => attention.product(Matmul {
                    rows: rows.len(),
                    cols: width,
                    inner: cols.end.min(self.keys.indices.len()).max(cols.start) - cols.start,
                    a: &d_scores[region.of(rows.start).start..],
                    a_row: TILE,
                    a_step: 1,
                    b: &self.keys.rows[cols.start * width..],
                    b_row: width,
                    c: &mut d_queries[rows.start * width..],
                    c_row: width,
                    old: Accumulate::Add,
                }),
            }
        }
        if pairwise.is_none() {
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
    head.attention().product(Matmul {
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
        old: Accumulate::Add,
    });
}
