//! One head of one sequence: its tiles of prepared queries and keys.

use std::ops::Range;

use crate::{
    EXACT_ROWS,
    attention::{
        Attention,
        gathered::Shown,
        indices::Indices,
        pairwise::Pairwise,
        pattern::Tile,
        plan::Plan,
        prepare::{Preparation, Prepare, Side},
    },
    memory::scratch::Buffer,
    simd::{
        additive::Form,
        rows::{Region, Transpose},
    },
    tile::{Outline, TILE, tiles},
};

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
#[derive(Clone)]
pub(crate) struct Queries<'s> {
    /// Where they stand in their head.
    pub(crate) indices: Indices<'s>,
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
    /// Where its rows stand in their head.
    pub(crate) fn indices(&self) -> Indices<'s> {
        match &self.all.indices {
            Indices::Run(range) => Indices::Run(range.start + self.first..range.end),
            Indices::List(list) => Indices::List(&list[self.first..]),
        }
    }

    /// The line of the tile's first row in what a task learns: by index in the head among neighbors, else in the task.
    pub(crate) fn line(&self) -> usize {
        match &self.all.indices {
            Indices::Run(range) => range.start + self.first,
            Indices::List(_) => self.first,
        }
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
    /// Where they stand in their head.
    pub(crate) indices: Indices<'s>,
    /// By row of the tile, who sees which; nothing among neighbors, where the pattern is asked.
    pub(crate) shown: Option<&'s Shown>,
    /// `[keys, width]`.
    pub(crate) rows: &'s [f32],
    /// `[width, TILE]`, unless there are too few queries to be worth it.
    pub(crate) cols: Option<&'s [f32]>,
}

impl<'s> Keys<'s> {
    /// The keys of a region's columns, padding left out where they are gathered.
    pub(crate) fn columns(&self, region: &Region) -> Indices<'s> {
        match &self.indices {
            Indices::Run(range) => {
                Indices::Run(range.start + region.cols.start..range.start + region.cols.end)
            }
            Indices::List(list) => {
                let end = region.cols.end.min(list.len());
                Indices::List(&list[region.cols.start.min(end)..end])
            }
        }
    }
}

impl Head<'_> {
    pub(crate) fn attention(&self) -> &Attention<'_> {
        self.plan.attention
    }

    pub(crate) fn width(&self) -> usize {
        self.attention().width(self.head)
    }

    /// Its score, if that is no product.
    pub(crate) fn pairwise(&self) -> Option<Pairwise<'_>> {
        let attention = self.attention();
        attention.score.pairwise(self.head, attention.shape.head_dim)
    }

    /// Prepares queries into the last two buffers; those that are gathered are copied into the first.
    pub(crate) fn queries<'s>(
        &self,
        indices: Indices<'s>,
        copy: &mut Buffer,
        prepared: &'s mut Buffer,
        relative: &'s mut Buffer,
    ) -> Queries<'s> {
        let attention = self.attention();
        let dim = attention.shape.head_dim;
        let raw = indices.rows(self.q, dim, copy);
        let prepared = prepared.sized(indices.len() * self.width());
        attention.simd.run(Prepare {
            preparation: &self.preparation,
            side: Side::Query,
            indices: indices.clone(),
            raw,
            prepared,
        });
        let form = match self.pairwise() {
            Some(pairwise) => pairwise.prepare_queries(attention.simd, prepared, self.k),
            None => Form::Sum,
        };
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
        Queries { count: indices.len(), indices, prepared, relative, form }
    }

    /// Prepares neighboring keys for `queries`, in the two buffers.
    pub(crate) fn keys<'s>(
        &'s self,
        range: Range<usize>,
        queries: &Queries,
        rows: &'s mut Buffer,
        cols: &'s mut Buffer,
    ) -> Keys<'s> {
        let dim = self.attention().shape.head_dim;
        let raw = &self.k[range.start * dim..range.end * dim];
        self.prepare_keys(Indices::Run(range), None, raw, queries, rows, cols)
    }

    /// Prepares keys for `queries`, in the two buffers; `raw` are their rows, and `shown` says who sees them if they are
    /// gathered.
    pub(crate) fn prepare_keys<'s>(
        &self,
        indices: Indices<'s>,
        shown: Option<&'s Shown>,
        raw: &'s [f32],
        queries: &Queries,
        rows: &'s mut Buffer,
        cols: &'s mut Buffer,
    ) -> Keys<'s> {
        let attention = self.attention();
        let width = self.width();
        let rows: &[f32] = if self.preparation.keys_are_raw() {
            rows.aligned(raw)
        } else {
            let prepared = rows.sized(indices.len() * width);
            attention.simd.run(Prepare {
                preparation: &self.preparation,
                side: Side::Key,
                indices: indices.clone(),
                raw,
                prepared,
            });
            if let Some(pairwise) = self.pairwise() {
                pairwise.prepare_keys(attention.simd, queries.form, prepared);
            }
            prepared
        };
        // Row by row instead of by columns, which cost a transpose first.
        let by_rows = queries.count <= EXACT_ROWS && shown.is_none() && self.pairwise().is_none();
        let cols = (!by_rows).then(|| {
            let cols = cols.sized(width * TILE);
            attention.simd.run(Transpose { from: rows, width, to: cols });
            &*cols
        });
        Keys { indices, shown, rows, cols }
    }

    /// The tile of positions of some queries and keys, both given by index.
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
            Outline::new(self.plan.pattern, &tile).map(|outline| (rows, outline))
        })
    }
}
