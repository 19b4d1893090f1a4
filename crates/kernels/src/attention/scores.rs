//! The steps from prepared rows to final scores, and the factors on weights. Forward, backward and inspection all get
//! their scores here.

use crate::{
    attention::{
        head::{Head, Keys, Rows},
        pairwise::PairwiseTile,
        pattern::Pair,
    },
    memory::scratch::Buffer,
    simd::{
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
        match (self.pairwise(), keys.cols) {
            (Some(pairwise), Some(keys)) => {
                let (region, form) = (region.clone(), queries.form());
                let tile = PairwiseTile { region, form, queries: prepared, keys };
                pairwise.scores(simd, tile, scores);
            }
            (_, Some(cols)) => attention.product(Matmul {
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
