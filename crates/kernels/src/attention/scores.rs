//! The steps from prepared rows to final scores, and the factors on weights. Forward, backward and inspection all get
//! their scores here.

use crate::{
    attention::{
        biases::Terms,
        head::{Head, Keys, Rows},
        indices::Indices,
        pairwise::PairwiseTile,
        pattern::Pair,
    },
    simd::{
        matmul::{Accumulate, Matmul},
        rows::{DotTile, DropoutRow, FocusRow, HideColumns, Region},
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
        work: &mut Terms,
    ) {
        let attention = self.attention();
        for region in outline.regions() {
            self.compare(queries, keys, &region, scores);
            if let Some(cap) = attention.soft_cap {
                let slopes = slopes.as_deref_mut();
                attention.simd.run(SoftCap { region: region.clone(), scores, slopes, cap });
            }
            self.add_biases(queries, keys, &region, scores, work);
            self.hide(queries, keys, &region, outline.partial, scores);
        }
    }

    fn compare(&self, queries: Rows, keys: &Keys, region: &Region, scores: &mut [f32]) {
        let attention = self.attention();
        let (width, simd) = (self.width(), attention.simd);
        let prepared = queries.prepared(width);
        #[cfg(test)]
        self.plan.compared.fetch_add(
            (region.rows.len() * region.cols.len()) as u64,
            std::sync::atomic::Ordering::Relaxed,
        );
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

    fn hide(&self, queries: Rows, keys: &Keys, region: &Region, partial: bool, scores: &mut [f32]) {
        let attention = self.attention();
        if let Some(shown) = keys.shown {
            let region = region.clone();
            return attention.simd.run(HideColumns { region, scores, shown });
        }
        let (query, key) = (queries.indices().at(0), keys.indices.at(0));
        let real = region.cols.end.min(keys.indices.len()) - region.cols.start;
        for row in region.rows.clone() {
            let (seen, padding) = scores[region.of(row)].split_at_mut(real);
            if partial {
                let first = Pair {
                    batch: self.batch,
                    head: self.head,
                    query: attention.first_query + query + row,
                    key: attention.first_key + key + region.cols.start,
                };
                self.plan.pattern.hide(first, seen);
            }
            padding.fill(f32::NEG_INFINITY);
        }
    }

    /// The factors of focus and dropout on the weights of a region, if there are any.
    pub(crate) fn factors(
        &self,
        queries: Rows,
        keys: &Keys,
        region: &Region,
        factors: &mut [f32],
    ) -> bool {
        let attention = self.attention();
        if attention.focus.is_none() && attention.dropout.is_none() {
            return false;
        }
        let queries = queries.indices();
        for row in region.rows.clone() {
            let factors = &mut factors[region.of(row)];
            let query = queries.at(row);
            match attention.focus {
                None => factors.fill(1.0),
                Some(focus) => {
                    let rows = attention.shape.row_head(self.batch, self.head);
                    let center = focus.centers[rows.start + query];
                    let deviation = focus.deviation;
                    match keys.columns(region) {
                        Indices::Run(keys) => {
                            let first = attention.first_key + keys.start;
                            let position = |i| first + i;
                            attention.simd.run(FocusRow { center, deviation, position, factors });
                        }
                        Indices::List(list) => {
                            // Padding is no key; any number does.
                            let position = |i| {
                                attention.first_key + list.get(i).map_or(0, |key| *key as usize)
                            };
                            attention.simd.run(FocusRow { center, deviation, position, factors });
                        }
                    }
                }
            }
            if let Some(dropout) = attention.dropout {
                let mask = dropout.row(self.batch, self.head, attention.first_query + query);
                let first = attention.first_key as u32;
                match keys.columns(region) {
                    Indices::Run(keys) => {
                        let first = first.wrapping_add(keys.start as u32);
                        let position = |i| first.wrapping_add(i as u32);
                        attention.simd.run(DropoutRow { mask, position, factors });
                    }
                    Indices::List(list) => {
                        let factors = &mut factors[..list.len()];
                        let position = |i: usize| first.wrapping_add(list[i]);
                        attention.simd.run(DropoutRow { mask, position, factors });
                    }
                }
            }
        }
        true
    }
}
