//! Looking inside: weights recomputed from q, k and the stored log-sum-exps, for as much of the map as is asked for.
//!
//! Nothing here holds more than a tile of the map besides its own result, so heads of any length can be looked at.
//! Weights are those that mix the values, focus included, dropout aside.

use std::ops::Range;

use crate::{
    Error,
    attention::{
        Attention, Inputs, Output, biases::Terms, head::Head, indices::Indices, plan::Plan,
    },
    error::{expect_len, expect_range},
    memory::scratch::Scratch,
    parallel,
    simd::{rows::Multiply, softmax::Weights},
    tile::{TILE, tiles},
};

/// A finished call, open for inspection.
pub struct Inspection<'a> {
    attention: Attention<'a>,
    inputs: Inputs<'a>,
    lse: &'a [f32],
}

/// How a pooled map sums up the weights of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean; the mean over a row of cells stays that of the full map.
    Mean,
    /// Their maximum: single strong weights stay visible.
    Max,
}

impl<'a> Attention<'a> {
    /// Opens a call for inspection; `output` is what [`Self::forward`] returned for the same inputs.
    pub fn inspect(
        &self,
        inputs: &Inputs<'a>,
        output: &'a Output,
    ) -> Result<Inspection<'a>, Error> {
        self.check_inputs(inputs)?;
        expect_len("lse", output.lse.len(), self.shape.rows())?;
        let attention = Attention { dropout: None, ..self.clone() };
        Ok(Inspection { attention, inputs: *inputs, lse: &output.lse })
    }
}

impl Inspection<'_> {
    /// The weights of chosen queries over all keys, `[rows.len(), keys]`.
    pub fn rows(&self, batch: usize, head: usize, rows: &[usize]) -> Result<Vec<f32>, Error> {
        let keys = self.attention.shape.keys;
        let mut map = vec![0.0; rows.len() * keys];
        for (&row, line) in rows.iter().zip(map.chunks_exact_mut(keys.max(1))) {
            let end = row.saturating_add(1);
            self.visit(batch, head, row..end, 0..keys, |_, first, weights| {
                line[first..first + weights.len()].copy_from_slice(weights);
            })?;
        }
        Ok(map)
    }

    /// The weights of a rectangle of the map, `[queries.len(), keys.len()]`.
    pub fn tile(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Result<Vec<f32>, Error> {
        let (top, left, width) = (queries.start, keys.start, keys.len());
        let mut map = vec![0.0; queries.len() * width];
        self.visit(batch, head, queries, keys, |row, first, weights| {
            let start = (row - top) * width + first - left;
            map[start..start + weights.len()].copy_from_slice(weights);
        })?;
        Ok(map)
    }

    /// The `count` strongest keys of each query in `queries` with their weights, strongest first, earlier keys first
    /// among equals; fewer where a query sees fewer.
    pub fn top(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        count: usize,
    ) -> Result<Vec<Vec<(usize, f32)>>, Error> {
        let start = queries.start;
        let mut best = vec![Vec::<(usize, f32)>::new(); queries.len()];
        self.visit(batch, head, queries, 0..self.attention.shape.keys, |row, first, weights| {
            let best = &mut best[row - start];
            for (key, &weight) in (first..).zip(weights) {
                let weakest = best.last().map_or(f32::NEG_INFINITY, |&(_, weight)| weight);
                if weight > 0.0 && (best.len() < count || weight > weakest) {
                    let at = best.partition_point(|&(_, other)| other >= weight);
                    best.insert(at, (key, weight));
                    best.truncate(count);
                }
            }
        })?;
        Ok(best)
    }

    /// The entropy of each row's weights in nats, `[batch, heads, queries]`; 0 for a row that sees one key or none.
    /// Under focus, whose weights do not sum to 1, it is `−Σ w ln w` all the same.
    pub fn entropy(&self) -> Result<Vec<f32>, Error> {
        let shape = self.attention.shape;
        let mut entropy = vec![0.0; shape.rows()];
        let plan = Plan::new(&self.attention, self.inputs);
        let heads = entropy.chunks_exact_mut(shape.queries.max(1)).enumerate().collect();
        parallel::run(heads, |(index, entropy): (usize, &mut [f32]), scratch| {
            let head = plan.head(index / shape.heads, index % shape.heads);
            self.visit_head(&head, 0..shape.queries, 0..shape.keys, scratch, |row, _, weights| {
                let part: f32 = weights.iter().filter(|w| **w > 0.0).map(|w| w * w.ln()).sum();
                entropy[row] -= part;
            });
        });
        Ok(entropy)
    }

    /// The map of one head reduced to `rows × cols` cells, in row-major order.
    pub fn pooled(
        &self,
        batch: usize,
        head: usize,
        rows: usize,
        cols: usize,
        pooling: Pooling,
    ) -> Result<Vec<f32>, Error> {
        let shape = self.attention.shape;
        let (queries, keys) = (shape.queries, shape.keys);
        expect_range("pooled rows", rows, (1..=queries).contains(&rows), "1 to the queries")?;
        expect_range("pooled cols", cols, (1..=keys).contains(&cols), "1 to the keys")?;
        let mut map = vec![0.0f32; rows * cols];
        self.visit(batch, head, 0..queries, 0..keys, |row, first, weights| {
            let line = &mut map[row * rows / queries * cols..][..cols];
            for (key, &weight) in (first..).zip(weights) {
                let cell = &mut line[key * cols / keys];
                match pooling {
                    Pooling::Mean => *cell += weight,
                    Pooling::Max => *cell = cell.max(weight),
                }
            }
        })?;
        if pooling == Pooling::Mean {
            // Cell `i` of `cells` holds the indices with `index · cells / length = i`.
            let size = |i: usize, cells: usize, length: usize| {
                ((i + 1) * length).div_ceil(cells) - (i * length).div_ceil(cells)
            };
            for (i, cell) in map.iter_mut().enumerate() {
                let pairs = size(i / cols, rows, queries) * size(i % cols, cols, keys);
                *cell /= pairs as f32;
            }
        }
        Ok(map)
    }

    /// A rectangle of the map of one head in cells of `cell × cell` pairs, those at its ends smaller where its sides are no
    /// multiples: `[queries.len() / cell, keys.len() / cell]` rounded up. Parts of a map that begin at multiples of a cell
    /// fit together.
    pub fn cells(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        cell: usize,
        pooling: Pooling,
    ) -> Result<Vec<f32>, Error> {
        expect_range("cell", cell, cell > 0, "at least 1")?;
        let (top, left) = (queries.start, keys.start);
        let (high, wide) = (queries.len(), keys.len());
        let cols = wide.div_ceil(cell);
        let mut map = vec![0.0f32; high.div_ceil(cell) * cols];
        self.visit(batch, head, queries, keys, |row, first, weights| {
            let line = &mut map[(row - top) / cell * cols..][..cols];
            for (key, &weight) in (first - left..).zip(weights) {
                let at = &mut line[key / cell];
                match pooling {
                    Pooling::Mean => *at += weight,
                    Pooling::Max => *at = at.max(weight),
                }
            }
        })?;
        if pooling == Pooling::Mean {
            let size = |i: usize, length: usize| cell.min(length - i * cell);
            for (i, value) in map.iter_mut().enumerate() {
                *value /= (size(i / cols, high) * size(i % cols, wide)) as f32;
            }
        }
        Ok(map)
    }

    /// Calls `visit(query, first key, weights)` for every visible stretch of the rectangle.
    fn visit(
        &self,
        batch: usize,
        head: usize,
        queries: Range<usize>,
        keys: Range<usize>,
        visit: impl FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        let shape = self.attention.shape;
        expect_range("batch", batch, batch < shape.batch, "the batch")?;
        expect_range("head", head, head < shape.heads, "the heads")?;
        let inside = |range: &Range<usize>, end| range.start <= range.end && range.end <= end;
        expect_range("queries", &queries, inside(&queries, shape.queries), "the queries")?;
        expect_range("keys", &keys, inside(&keys, shape.keys), "the keys")?;
        let plan = Plan::new(&self.attention, self.inputs);
        self.visit_head(&plan.head(batch, head), queries, keys, &mut Scratch::default(), visit);
        Ok(())
    }

    fn visit_head(
        &self,
        head: &Head,
        queries: Range<usize>,
        keys: Range<usize>,
        scratch: &mut Scratch,
        mut visit: impl FnMut(usize, usize, &[f32]),
    ) {
        let simd = self.attention.simd;
        let Scratch {
            queries: prepared,
            relative,
            copied,
            key_rows,
            key_cols,
            scores,
            factors,
            terms,
            entries,
            ..
        } = scratch;
        let scores = scores.sized(TILE * TILE);
        let factors = factors.sized(TILE * TILE);
        let lse = &self.lse[self.attention.shape.row_head(head.batch, head.head)];
        for rows in tiles(queries) {
            let queries = head.queries(Indices::Run(rows.clone()), copied, prepared, relative);
            for key_range in tiles(keys.clone()) {
                for (rows, outline) in head.visible_above(rows.clone(), key_range.clone()) {
                    let keys = head.keys(key_range.clone(), &queries, key_rows, key_cols);
                    let work = &mut Terms { terms, entries };
                    head.scores(queries.from(0), &keys, &outline, scores, None, work);
                    for region in outline.regions() {
                        let lse = &lse[rows.start..];
                        simd.run(Weights { region: region.clone(), scores, lse });
                        if head.factors(queries.from(0), &keys, &region, factors) {
                            simd.run(Multiply { region: region.clone(), values: scores, factors });
                        }
                        let real = region.cols.end.min(key_range.len()) - region.cols.start;
                        for row in region.rows.clone() {
                            let weights = &scores[region.of(row)][..real];
                            visit(rows.start + row, key_range.start + region.cols.start, weights);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{Focus, Shape, pattern::Causal, reference};

    const TOLERANCE: f32 = 1e-5; // weights are at most 1; f32 scores of this size err by a few 1e-6

    fn value(i: usize) -> f32 {
        ((i * 2_654_435_761) % 1999) as f32 / 1000.0 - 1.0
    }

    /// Calls `check` with an inspection, the true weights of its head 1 and its shape.
    fn with_case(focus: bool, check: impl Fn(&Inspection, &[f32], Shape)) {
        let shape = Shape { keys: 210, ..Shape::square(1, 2, 130, 8) };
        let [q, k, v] = [shape.q_len(), shape.k_len(), shape.v_len()]
            .map(|len| (0..len).map(|i| 3.0 * value(i + len)).collect::<Vec<_>>());
        let centers: Vec<f32> = (0..shape.rows()).map(|i| 100.0 + 50.0 * value(i)).collect();
        let mut attention = Attention::new(shape, &Causal { offset: 40 });
        if focus {
            attention.focus = Some(Focus { centers: &centers, deviation: 30.0 });
        }
        let inputs = Inputs { q: &q, k: &k, v: &v };
        let made = attention.forward(&inputs).unwrap();
        let weights = reference::weights(&attention, &inputs).unwrap();
        let head = &weights[shape.queries * shape.keys..];
        let gaussian = |i: usize| {
            let far = ((i % shape.keys) as f32 - centers[shape.queries + i / shape.keys]) / 30.0;
            if focus { (-0.5 * far * far).exp() } else { 1.0 }
        };
        let truth: Vec<f32> =
            head.iter().enumerate().map(|(i, w)| *w as f32 * gaussian(i)).collect();
        check(&attention.inspect(&inputs, &made).unwrap(), &truth, shape);
    }

    fn assert_close(got: &[f32], want: &[f32]) {
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((got - want).abs() < TOLERANCE, "{i}: {got}, expected {want}");
        }
    }

    #[test]
    fn rows_and_tiles_are_parts_of_the_true_map() {
        for focus in [false, true] {
            with_case(focus, |inspection, truth, shape| {
                let rows = [129, 0, 96, 7];
                let want: Vec<f32> = rows
                    .iter()
                    .flat_map(|r| truth[r * shape.keys..(r + 1) * shape.keys].iter().copied())
                    .collect();
                assert_close(&inspection.rows(0, 1, &rows).unwrap(), &want);
                let (queries, keys) = (90..105, 33..140);
                let want: Vec<f32> = queries
                    .clone()
                    .flat_map(|q| keys.clone().map(move |k| truth[q * shape.keys + k]))
                    .collect();
                assert_close(&inspection.tile(0, 1, queries, keys).unwrap(), &want);
            });
        }
    }

    #[test]
    fn the_strongest_keys_are_those_of_the_sorted_row() {
        with_case(false, |inspection, truth, shape| {
            for (row, best) in (60..130).zip(inspection.top(0, 1, 60..130, 5).unwrap()) {
                let mut line: Vec<f32> = truth[row * shape.keys..(row + 1) * shape.keys].to_vec();
                assert!(best.iter().all(|&(key, w)| (line[key] - w).abs() < TOLERANCE));
                line.sort_by(|a, b| b.total_cmp(a));
                assert_close(&best.iter().map(|b| b.1).collect::<Vec<_>>(), &line[..5]);
            }
        });
    }

    #[test]
    fn entropy_and_pooled_maps_are_those_of_the_true_map() {
        with_case(false, |inspection, truth, shape| {
            let entropy = inspection.entropy().unwrap();
            for (row, line) in truth.chunks_exact(shape.keys).enumerate() {
                let want: f32 = line.iter().filter(|w| **w > 0.0).map(|w| -w * w.ln()).sum();
                assert!((entropy[shape.queries + row] - want).abs() < 1e-4, "row {row}");
            }
            let (rows, cols) = (7, 11);
            let mut sums = vec![(0.0f32, 0.0f32, 0.0f32); rows * cols];
            for (i, &w) in truth.iter().enumerate() {
                let (q, k) = (i / shape.keys, i % shape.keys);
                let cell = &mut sums[q * rows / shape.queries * cols + k * cols / shape.keys];
                *cell = (cell.0 + w, cell.1 + 1.0, cell.2.max(w));
            }
            let mean: Vec<f32> = sums.iter().map(|c| c.0 / c.1).collect();
            let max: Vec<f32> = sums.iter().map(|c| c.2).collect();
            assert_close(&inspection.pooled(0, 1, rows, cols, Pooling::Mean).unwrap(), &mean);
            assert_close(&inspection.pooled(0, 1, rows, cols, Pooling::Max).unwrap(), &max);
        });
    }

    #[test]
    fn parts_in_cells_are_those_of_the_true_map() {
        with_case(false, |inspection, truth, shape| {
            for (queries, keys, cell) in
                [(0..130, 0..210, 16), (32..97, 64..200, 8), (5..6, 0..3, 2)]
            {
                let cols = keys.len().div_ceil(cell);
                let mut sums = vec![(0.0f32, 0.0f32, 0.0f32); queries.len().div_ceil(cell) * cols];
                for (row, query) in queries.clone().enumerate() {
                    for (column, key) in keys.clone().enumerate() {
                        let weight = truth[query * shape.keys + key];
                        let sum = &mut sums[row / cell * cols + column / cell];
                        *sum = (sum.0 + weight, sum.1 + 1.0, sum.2.max(weight));
                    }
                }
                let mean: Vec<f32> = sums.iter().map(|sum| sum.0 / sum.1).collect();
                let max: Vec<f32> = sums.iter().map(|sum| sum.2).collect();
                let found = |pooling| {
                    inspection.cells(0, 1, queries.clone(), keys.clone(), cell, pooling).unwrap()
                };
                assert_close(&found(Pooling::Mean), &mean);
                assert_close(&found(Pooling::Max), &max);
            }
        });
    }

    #[test]
    fn places_outside_the_map_are_refused() {
        with_case(false, |inspection, _, _| {
            assert!(inspection.rows(0, 1, &[130]).is_err());
            assert!(inspection.rows(0, 2, &[0]).is_err());
            assert!(inspection.rows(1, 0, &[0]).is_err());
            assert!(inspection.tile(0, 0, 0..131, 0..1).is_err());
            assert!(inspection.pooled(0, 0, 0, 4, Pooling::Mean).is_err());
            assert!(inspection.pooled(0, 0, 4, 500, Pooling::Mean).is_err());
            assert!(inspection.cells(0, 0, 0..4, 0..4, 0, Pooling::Max).is_err());
            assert!(inspection.cells(0, 0, 0..4, 0..211, 2, Pooling::Max).is_err());
        });
    }
}
