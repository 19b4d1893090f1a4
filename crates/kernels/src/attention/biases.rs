//! What biases do to a tile: added to its scores, and their gradients collected from those of the scores.

use std::ops::Range;

use crate::{
    attention::{
        Bias, Entries, Relative,
        head::{Head, Keys, Rows},
        indices::Indices,
        learned::LearnedHead,
        plan::{Transposed, distances},
    },
    memory::scratch::{Buffer, Scratch},
    simd::{
        bands::{AddBand, AddDiagonals, Band, FoldBand, FoldDiagonals},
        matmul::{Accumulate, Matmul},
        rows::Region,
    },
    tile::TILE,
};

/// Where terms of relative tables are formed: for neighbors, and for gathered keys.
pub(crate) struct Terms<'s> {
    pub(crate) terms: &'s mut Buffer,
    pub(crate) entries: &'s mut Entries,
}

impl Head<'_> {
    /// Adds every bias to the scores of a region.
    pub(crate) fn add_biases(
        &self,
        queries: Rows,
        keys: &Keys,
        region: &Region,
        scores: &mut [f32],
        work: &mut Terms,
    ) {
        let attention = self.attention();
        let (dim, simd) = (attention.shape.head_dim, attention.simd);
        if let Indices::List(list) = keys.indices {
            return self.add_gathered_biases(queries, list, region, scores, work.entries);
        }
        let (query, key, terms) = (queries.indices().at(0), keys.indices.at(0), &mut *work.terms);
        if let Some((table, start)) = self.by_distance(query, key) {
            simd.run(AddDiagonals { region: region.clone(), scores, table, start });
        }
        for (i, relative) in self.plan.relative_keys.iter().enumerate() {
            let rows = queries.relative(i, dim);
            let table = &relative.table;
            let band = self.band(query, key, region, &table.vectors);
            let terms = band_terms(self, rows, dim, table, &band, region, terms);
            simd.run(AddBand { band, region: region.clone(), scores, terms });
        }
        for bias in &attention.biases {
            if let Bias::Dense { values, shape, .. } = bias {
                for row in region.rows.clone() {
                    let line = self.dense_line(shape, query + row);
                    let real = region.cols.end.min(keys.indices.len());
                    let scores = &mut scores[region.of(row)];
                    let cols = region.cols.start..real.max(region.cols.start);
                    if shape[3] == 1 {
                        scores[..cols.len()].iter_mut().for_each(|s| *s += values[line]);
                    } else {
                        let values = &values[line + key..][cols];
                        scores.iter_mut().zip(values).for_each(|(s, v)| *s += v);
                    }
                }
            }
        }
    }

    /// Gradients of every bias from a region's `d_scores`; `chunk_keys` are the task's.
    pub(crate) fn biases_backward(
        &self,
        queries: Rows,
        keys: &Keys,
        chunk_keys: &Range<usize>,
        learned: &mut LearnedHead,
        region: &Region,
        scratch: &mut Scratch,
    ) {
        let attention = self.attention();
        let (simd, dim) = (attention.simd, attention.shape.head_dim);
        if let Indices::List(list) = keys.indices {
            return self.gathered_biases_backward(queries, list, learned, region, scratch);
        }
        let d_scores = &scratch.d_scores[..];
        let (query, key) = (queries.indices().at(0), keys.indices.at(0));
        if !learned.by_distance.is_empty() {
            simd.run(FoldDiagonals {
                region: region.clone(),
                d_scores,
                table: &mut learned.by_distance,
                start: self.distance_index(query, key),
            });
        }
        for (i, relative) in self.plan.relative_keys.iter().enumerate() {
            let band = self.band(query, key, region, &relative.table.vectors);
            let entries = band.entries();
            let terms = scratch.terms.sized(TILE * entries.len());
            simd.run(FoldBand { band, region: region.clone(), d_scores, terms });
            let offset = queries.relative_start(i, dim);
            simd.run(Matmul {
                rows: region.rows.len(),
                cols: dim,
                inner: entries.len(),
                a: &terms[region.rows.start * entries.len()..],
                a_row: entries.len(),
                a_step: 1,
                b: &relative.table.by_distance(self.head)[entries.start * dim..],
                b_row: dim,
                c: &mut scratch.d_relative[offset + region.rows.start * dim..],
                c_row: dim,
                old: Accumulate::Add,
            });
            let rows = queries.relative(i, dim);
            let d_table = &mut learned.relative[i].table;
            product_of_terms(self, region, entries, terms, rows, dim, d_table);
        }
        for dense in &mut learned.dense {
            let real = region.cols.end.min(keys.indices.len()).max(region.cols.start);
            for row in region.rows.clone() {
                let d = &d_scores[region.of(row)][..real - region.cols.start];
                dense.add(query + row, key + region.cols.start - chunk_keys.start, d);
            }
        }
    }

    /// Where the line of `query` starts in a dense bias of this shape.
    pub(crate) fn dense_line(&self, shape: &[usize; 4], query: usize) -> usize {
        let at = |index: usize, size: usize| if size == 1 { 0 } else { index };
        ((at(self.batch, shape[0]) * shape[1] + at(self.head, shape[1])) * shape[2]
            + at(query, shape[2]))
            * shape[3]
    }

    /// This head's values by distance.
    pub(crate) fn distance_table(&self) -> Option<&[f32]> {
        let table = self.plan.by_distance.as_ref()?;
        let span = distances(self.attention()).len();
        Some(&table[self.head * span..][..span])
    }

    /// This head's values by distance, and where the pair of two indices lies in them.
    fn by_distance(&self, query: usize, key: usize) -> Option<(&[f32], usize)> {
        Some((self.distance_table()?, self.distance_index(query, key)))
    }

    /// Where the pair of two indices lies in a table over all distances of the call.
    pub(crate) fn distance_index(&self, query: usize, key: usize) -> usize {
        key + self.attention().shape.queries - 1 - query
    }

    /// The clipped distances of a region of the tile that starts at these indices.
    pub(crate) fn band(
        &self,
        query: usize,
        key: usize,
        region: &Region,
        vectors: &Relative<&[f32]>,
    ) -> Band {
        let attention = self.attention();
        let distance =
            (attention.first_key + key) as isize - (attention.first_query + query) as isize;
        Band::new(distance, region, vectors.left, vectors.right)
    }
}

/// `rows · table[entries of the band]ᵀ` for the rows of a region, `[rows of the tile, entries]`.
pub(crate) fn band_terms<'t>(
    head: &Head,
    rows: &[f32],
    width: usize,
    table: &Transposed,
    band: &Band,
    region: &Region,
    terms: &'t mut Buffer,
) -> &'t [f32] {
    let entries = band.entries();
    let terms = terms.sized(TILE * entries.len());
    head.attention().simd.run(Matmul {
        rows: region.rows.len(),
        cols: entries.len(),
        inner: width,
        a: &rows[region.rows.start * width..],
        a_row: width,
        a_step: 1,
        b: &table.by_channel(head.head)[entries.start..],
        b_row: table.vectors.count(),
        c: &mut terms[region.rows.start * entries.len()..],
        c_row: entries.len(),
        old: Accumulate::Overwrite,
    });
    terms
}

/// `d_table[entries] += terms[rows, entries]ᵀ · rows`: the gradient of a relative table.
pub(crate) fn product_of_terms(
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
        old: Accumulate::Add,
    });
}
