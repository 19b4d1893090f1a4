//! The steps from prepared rows to final scores, and the factors on weights. Forward, backward and inspection all get
//! their scores here.

use crate::{
    attention::{
        Bias, Relative, Score,
        head::{Head, Keys, Rows},
        pattern::Pair,
        plan::{Transposed, distances},
    },
    memory::scratch::Buffer,
    simd::{
        additive::Additive,
        bands::{AddBand, AddDiagonals, Band},
        matmul::{Accumulate, Matmul},
        rows::{DotTile, DropoutRow, FocusRow, Region},
        softmax::SoftCap,
    },
    tile::{Outline, TILE},
};

impl Head<'_> {
    /// Final scores of a tile: compare → soft cap → + bias → hide, in every region of the outline.
    /// `slopes` receives the soft cap's slope where there is one.
    pub(crate) fn scores(
        &self,
        queries: Rows,
        keys: &Keys,
        outline: &Outline,
        scores: &mut [f32],
        mut slopes: Option<&mut [f32]>,
        terms: &mut Buffer,
    ) {
        let attention = self.attention();
        for region in outline.regions() {
            self.compare(queries, keys, &region, scores);
            if let Some(cap) = attention.soft_cap {
                let slopes = slopes.as_deref_mut();
                attention.simd.run(SoftCap { region: region.clone(), scores, slopes, cap });
            }
            self.add_biases(queries, keys, &region, scores, terms);
            self.hide(queries.index(), keys, &region, outline.partial, scores);
        }
    }

    fn compare(&self, queries: Rows, keys: &Keys, region: &Region, scores: &mut [f32]) {
        let attention = self.attention();
        let (width, simd) = (self.width(), attention.simd);
        let prepared = queries.prepared(width);
        match (attention.score, keys.cols) {
            (Score::Additive { weight }, Some(cols)) => simd.run(Additive {
                region: region.clone(),
                form: queries.form(),
                queries: prepared,
                keys: cols,
                weight: &weight[self.head * width..][..width],
                scores,
            }),
            (_, Some(cols)) => simd.run(Matmul {
                rows: region.rows.len(),
                cols: region.cols.len(),
                inner: width,
                a: &prepared[region.rows.start * width..],
                a_row: width,
                a_step: 1,
                b: &cols[region.cols.start..],
                b_row: TILE,
                c: &mut scores[region.of(region.rows.start).start..],
                c_row: TILE,
                old: Accumulate::Overwrite,
            }),
            (_, None) => simd.run(DotTile {
                region: region.clone(),
                queries: prepared,
                keys: keys.rows,
                width,
                scores,
            }),
        }
    }

    fn add_biases(
        &self,
        queries: Rows,
        keys: &Keys,
        region: &Region,
        scores: &mut [f32],
        terms: &mut Buffer,
    ) {
        let attention = self.attention();
        let (dim, simd) = (attention.shape.head_dim, attention.simd);
        if let Some((table, start)) = self.by_distance(queries.index(), keys.range.start) {
            simd.run(AddDiagonals { region: region.clone(), scores, table, start });
        }
        for (i, relative) in self.plan.relative_keys.iter().enumerate() {
            let rows = queries.relative(i, dim);
            let table = &relative.table;
            let band = self.band(queries.index(), keys.range.start, region, &table.vectors);
            let terms = band_terms(self, rows, dim, table, &band, region, terms);
            simd.run(AddBand { band, region: region.clone(), scores, terms });
        }
        for bias in &attention.biases {
            if let Bias::Dense { values, shape, .. } = bias {
                for row in region.rows.clone() {
                    let query = queries.index() + row;
                    let line = self.dense_line(shape, query);
                    let real = region.cols.end.min(keys.range.len());
                    let scores = &mut scores[region.of(row)];
                    let cols = region.cols.start..real.max(region.cols.start);
                    if shape[3] == 1 {
                        scores[..cols.len()].iter_mut().for_each(|s| *s += values[line]);
                    } else {
                        let values = &values[line + keys.range.start..][cols];
                        scores.iter_mut().zip(values).for_each(|(s, v)| *s += v);
                    }
                }
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

    /// This head's values by distance, and where the pair of two indices lies in them.
    fn by_distance(&self, query: usize, key: usize) -> Option<(&[f32], usize)> {
        let table = self.plan.by_distance.as_ref()?;
        let span = distances(self.attention()).len();
        Some((&table[self.head * span..][..span], self.distance_index(query, key)))
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
        vectors: &Relative,
    ) -> Band {
        let attention = self.attention();
        let distance =
            (attention.first_key + key) as isize - (attention.first_query + query) as isize;
        Band::new(distance, region, vectors.left, vectors.right)
    }

    fn hide(&self, query: usize, keys: &Keys, region: &Region, partial: bool, scores: &mut [f32]) {
        let attention = self.attention();
        let real = region.cols.end.min(keys.range.len()) - region.cols.start;
        for row in region.rows.clone() {
            let (seen, padding) = scores[region.of(row)].split_at_mut(real);
            if partial {
                let first = Pair {
                    batch: self.batch,
                    head: self.head,
                    query: attention.first_query + query + row,
                    key: attention.first_key + keys.range.start + region.cols.start,
                };
                attention.pattern.hide(first, seen);
            }
            padding.fill(f32::NEG_INFINITY);
        }
    }

    /// The factors of focus and dropout on the weights of a region, if there are any.
    /// `query` and `key` are the indices of the tile's first row and column.
    pub(crate) fn factors(
        &self,
        query: usize,
        key: usize,
        region: &Region,
        factors: &mut [f32],
    ) -> bool {
        let attention = self.attention();
        if attention.focus.is_none() && attention.dropout.is_none() {
            return false;
        }
        let first_key = attention.first_key + key + region.cols.start;
        for row in region.rows.clone() {
            let factors = &mut factors[region.of(row)];
            match attention.focus {
                None => factors.fill(1.0),
                Some(focus) => {
                    let rows = attention.shape.row_head(self.batch, self.head);
                    let center = focus.centers[rows.start + query + row];
                    let deviation = focus.deviation;
                    attention.simd.run(FocusRow { center, deviation, first_key, factors });
                }
            }
            if let Some(dropout) = attention.dropout {
                let mask = dropout.row(self.batch, self.head, attention.first_query + query + row);
                attention.simd.run(DropoutRow { mask, first_key: first_key as u32, factors });
            }
        }
        true
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
