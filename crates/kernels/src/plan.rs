//! What every pass over the tiles of a call shares: the tables formed once, the tiles of queries and keys, and the
//! steps from prepared rows to final scores. Forward, backward and inspection all get their scores here.

use std::ops::Range;

use crate::{
    Attention, Bias, Inputs, Relative, Score,
    pattern::{Pair, Tile},
    prepare::{Preparation, Prepare, Side},
    scratch::Buffer,
    simd::{
        additive::{self, Additive, Form},
        bands::{AddBand, AddDiagonals, Band},
        matmul::{Matmul, Old},
        rows::{DotTile, DropoutRow, FocusRow, Region, SoftCap, Transpose},
    },
    tile::{Outline, PAD, TILE, tiles},
};

/// Below this many queries, keys are compared row by row instead of being transposed first.
const FEW_QUERIES: usize = 4;

/// A call with what is formed once for all its heads.
pub(crate) struct Plan<'a> {
    pub(crate) attention: &'a Attention<'a>,
    pub(crate) inputs: Inputs<'a>,
    /// The sum of all biases by distance, `[heads, distances]`.
    by_distance: Option<Vec<f32>>,
    /// Relative biases, in order.
    pub(crate) relative_keys: Vec<RelativeKeys<'a>>,
    /// Shaw's values and their transpose.
    pub(crate) relative_values: Option<Transposed<'a>>,
}

/// One relative bias.
pub(crate) struct RelativeKeys<'a> {
    pub(crate) table: Transposed<'a>,
    pub(crate) query_bias: Option<&'a [f32]>,
    pub(crate) scale: f32,
    /// Its index among the call's biases.
    pub(crate) index: usize,
}

/// A relative table that can be read by distance and by channel.
pub(crate) struct Transposed<'a> {
    pub(crate) vectors: Relative<'a>,
    width: usize,
    /// `[tables, width, count]`.
    by_channel: Vec<f32>,
}

impl<'a> Transposed<'a> {
    fn new(vectors: Relative<'a>, width: usize) -> Self {
        let count = vectors.count();
        let mut by_channel = vec![0.0; vectors.table.len()];
        let tables = vectors
            .table
            .chunks_exact(count * width)
            .zip(by_channel.chunks_exact_mut(count * width));
        for (from, to) in tables {
            for (entry, vector) in from.chunks_exact(width).enumerate() {
                for (channel, value) in vector.iter().enumerate() {
                    to[channel * count + entry] = *value;
                }
            }
        }
        Self { vectors, width, by_channel }
    }

    /// `[width, count]` of `head`.
    pub(crate) fn by_channel(&self, head: usize) -> &[f32] {
        &self.by_channel[self.vectors.head_range(head, self.width)]
    }

    /// `[count, width]` of `head`.
    pub(crate) fn by_distance(&self, head: usize) -> &'a [f32] {
        self.vectors.head(head, self.width)
    }
}

impl<'a> Plan<'a> {
    pub(crate) fn new(attention: &'a Attention<'a>, inputs: Inputs<'a>) -> Self {
        let shape = &attention.shape;
        let distances = distances(attention);
        let mut by_distance = None;
        let mut relative_keys = Vec::new();
        for (index, bias) in attention.biases.iter().enumerate() {
            if bias.is_by_distance() {
                let table =
                    by_distance.get_or_insert_with(|| vec![0.0; shape.heads * distances.len()]);
                bias.expand(distances.clone(), table);
            }
            if let Bias::Relative { vectors, query_bias, scale } = *bias {
                let table = Transposed::new(vectors, shape.head_dim);
                relative_keys.push(RelativeKeys { table, query_bias, scale, index });
            }
        }
        let relative_values =
            attention.relative_values.map(|vectors| Transposed::new(vectors, shape.value_dim));
        Self { attention, inputs, by_distance, relative_keys, relative_values }
    }

    /// One head of one sequence.
    pub(crate) fn head(&self, batch: usize, head: usize) -> Head<'_> {
        let shape = &self.attention.shape;
        let kv_head = shape.kv_head(head);
        Head {
            plan: self,
            batch,
            head,
            preparation: Preparation::new(self.attention, head),
            q: &self.inputs.q[shape.q_head(batch, head)],
            k: &self.inputs.k[shape.k_head(batch, kv_head)],
            v: &self.inputs.v[shape.v_head(batch, kv_head)],
        }
    }
}

/// Every distance `key place − query place` of a call, one more on the right for padded columns.
pub(crate) fn distances(attention: &Attention) -> Range<isize> {
    let (queries, keys) = (attention.query_places(), attention.key_places());
    let first = keys.start as isize + 1 - queries.end as isize;
    let padding = PAD as isize;
    first..(keys.end as isize - queries.start as isize).max(first) + padding
}

/// One head of one sequence, ready to be worked on.
pub(crate) struct Head<'a> {
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) batch: usize,
    pub(crate) head: usize,
    pub(crate) preparation: Preparation<'a>,
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
}

/// Prepared queries of a task.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'s> {
    /// Index of the first one in its head.
    pub(crate) first: usize,
    /// `[rows, width]`.
    pub(crate) prepared: &'s [f32],
    /// `[relative biases, rows, head_dim]`.
    pub(crate) relative: &'s [f32],
    pub(crate) count: usize,
    pub(crate) form: Form,
}

impl<'s> Queries<'s> {
    /// Those from row `first` on.
    pub(crate) fn from(&'s self, first: usize) -> Rows<'s> {
        Rows { all: self, first }
    }
}

/// The queries of a tile, and all that follow them in their task.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'s> {
    all: &'s Queries<'s>,
    /// The tile's first row in its task.
    pub(crate) first: usize,
}

impl<'s> Rows<'s> {
    /// The tile's first row in its head.
    pub(crate) fn index(&self) -> usize {
        self.all.first + self.first
    }

    /// `[rows, width]`.
    pub(crate) fn prepared(&self, width: usize) -> &'s [f32] {
        &self.all.prepared[self.first * width..]
    }

    /// Where the rows of relative bias `i` start in a buffer of all relative rows of the task.
    pub(crate) fn relative_start(&self, i: usize, dim: usize) -> usize {
        (i * self.all.count + self.first) * dim
    }

    /// The rows of relative bias `i`, `[rows, dim]`.
    pub(crate) fn relative(&self, i: usize, dim: usize) -> &'s [f32] {
        &self.all.relative[self.relative_start(i, dim)..]
    }

    pub(crate) fn form(&self) -> Form {
        self.all.form
    }
}

/// Prepared keys of a tile.
#[derive(Clone)]
pub(crate) struct Keys<'s> {
    /// Their indices in the head.
    pub(crate) range: Range<usize>,
    /// `[keys, width]`.
    pub(crate) rows: &'s [f32],
    /// `[width, TILE]`, unless there are too few queries to be worth it.
    pub(crate) cols: Option<&'s [f32]>,
}

impl Head<'_> {
    pub(crate) fn attention(&self) -> &Attention<'_> {
        self.plan.attention
    }

    pub(crate) fn width(&self) -> usize {
        self.attention().width(self.head)
    }

    /// Prepares queries `rows` into the two buffers.
    pub(crate) fn queries<'s>(
        &self,
        rows: Range<usize>,
        prepared: &'s mut Buffer,
        relative: &'s mut Buffer,
    ) -> Queries<'s> {
        let attention = self.attention();
        let dim = attention.shape.head_dim;
        let raw = &self.q[rows.start * dim..rows.end * dim];
        let prepared = prepared.sized(rows.len() * self.width());
        attention.simd.run(Prepare {
            preparation: &self.preparation,
            side: Side::Query,
            first_place: attention.first_query + rows.start,
            raw,
            prepared,
        });
        let mut form = Form::Sum;
        if let Score::Additive { .. } = attention.score {
            form = Form::of(prepared).meet(Form::of(self.k));
            attention.simd.run(additive::Prepare { form, values: prepared });
        }
        let relative = relative.sized(self.plan.relative_keys.len() * raw.len());
        for (keys, out) in
            self.plan.relative_keys.iter().zip(relative.chunks_exact_mut(raw.len().max(1)))
        {
            let bias = keys.query_bias.map(|v| &v[self.head * dim..][..dim]);
            for (out, raw) in out.chunks_exact_mut(dim).zip(raw.chunks_exact(dim)) {
                for (c, (out, raw)) in out.iter_mut().zip(raw).enumerate() {
                    *out = keys.scale * (raw + bias.map_or(0.0, |bias| bias[c]));
                }
            }
        }
        Queries { first: rows.start, prepared, relative, count: rows.len(), form }
    }

    /// Prepares keys `range` for `queries`, in the two buffers.
    pub(crate) fn keys<'s>(
        &'s self,
        range: Range<usize>,
        queries: &Queries,
        rows: &'s mut Buffer,
        cols: &'s mut Buffer,
    ) -> Keys<'s> {
        let attention = self.attention();
        let (dim, width) = (attention.shape.head_dim, self.width());
        let raw = &self.k[range.start * dim..range.end * dim];
        let rows: &[f32] = if self.preparation.keys_are_raw() {
            rows.aligned(raw)
        } else {
            let prepared = rows.sized(range.len() * width);
            attention.simd.run(Prepare {
                preparation: &self.preparation,
                side: Side::Key,
                first_place: attention.first_key + range.start,
                raw,
                prepared,
            });
            if let Score::Additive { .. } = attention.score {
                attention.simd.run(additive::Prepare { form: queries.form, values: prepared });
            }
            prepared
        };
        let by_rows =
            queries.count < FEW_QUERIES && !matches!(attention.score, Score::Additive { .. });
        let cols = (!by_rows).then(|| {
            let cols = cols.sized(width * TILE);
            attention.simd.run(Transpose { from: rows, width, to: cols });
            &*cols
        });
        Keys { range, rows, cols }
    }

    /// The tile of places of some queries and keys, both given by index.
    pub(crate) fn tile(&self, queries: Range<usize>, keys: Range<usize>) -> Tile {
        let attention = self.attention();
        let shift = |range: Range<usize>, by: usize| range.start + by..range.end + by;
        Tile {
            batch: self.batch,
            head: self.head,
            queries: shift(queries, attention.first_query),
            keys: shift(keys, attention.first_key),
        }
    }

    /// The tiles of queries `rows` that see any of `keys`, with their outlines.
    pub(crate) fn visible_above(
        &self,
        rows: Range<usize>,
        keys: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Outline)> {
        tiles(rows).filter_map(move |rows| {
            let tile = self.tile(rows.clone(), keys.clone());
            Outline::new(self.attention().pattern, &tile).map(|outline| (rows, outline))
        })
    }

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
                old: Old::Drop,
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
        old: Old::Drop,
    });
    terms
}
