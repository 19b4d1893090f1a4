//! Where the rows, keys and vectors of a call lie in its slices, and at which positions they stand.

use std::ops::Range;

use crate::attention::{
    Relative,
    pattern::Pair,
    reference::{Reference, Row},
};

impl Reference<'_, '_> {
    pub(super) fn heads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.attention.shape.heads;
        (0..self.attention.shape.batch).flat_map(move |batch| (0..heads).map(move |h| (batch, h)))
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row> + use<> {
        let queries = self.attention.shape.queries;
        self.heads().flat_map(move |(batch, head)| {
            (0..queries).map(move |query| Row { batch, head, query })
        })
    }

    /// The positions of a pair.
    pub(super) fn pair(&self, row: Row, key: usize) -> Pair {
        Pair {
            batch: row.batch,
            head: row.head,
            query: self.attention.first_query + row.query,
            key: self.attention.first_key + key,
        }
    }

    /// Key position − query position.
    pub(super) fn distance(&self, row: Row, key: usize) -> isize {
        let pair = self.pair(row, key);
        pair.key as isize - pair.query as isize
    }

    /// Where a row lies in `lse` and in the focus centers.
    pub(super) fn row_index(&self, row: Row) -> usize {
        let shape = &self.attention.shape;
        (row.batch * shape.heads + row.head) * shape.queries + row.query
    }

    /// Where a row lies in the scores and weights.
    pub(super) fn row_range(&self, row: Row) -> Range<usize> {
        block(self.row_index(row), self.attention.shape.keys)
    }

    pub(super) fn q_range(&self, row: Row) -> Range<usize> {
        block(self.row_index(row), self.attention.shape.head_dim)
    }

    pub(super) fn out_range(&self, row: Row) -> Range<usize> {
        block(self.row_index(row), self.attention.shape.value_dim)
    }

    pub(super) fn k_range(&self, batch: usize, head: usize, key: usize) -> Range<usize> {
        block(self.key_index(batch, head, key), self.attention.shape.head_dim)
    }

    pub(super) fn v_range(&self, row: Row, key: usize) -> Range<usize> {
        block(self.key_index(row.batch, row.head, key), self.attention.shape.value_dim)
    }

    fn key_index(&self, batch: usize, head: usize, key: usize) -> usize {
        let shape = &self.attention.shape;
        (batch * shape.kv_heads + shape.kv_head(head)) * shape.keys + key
    }

    /// Where `head` lies in a `[heads, head_dim]` parameter.
    pub(super) fn head_range(&self, head: usize) -> Range<usize> {
        block(head, self.attention.shape.head_dim)
    }

    /// Where the vector of a pair's clipped distance lies in a relative table.
    pub(super) fn vector_range(
        &self,
        vectors: &Relative<impl Sized>,
        row: Row,
        key: usize,
        width: usize,
    ) -> Range<usize> {
        let Relative { per_head, left, right, .. } = *vectors;
        let head = if per_head { row.head } else { 0 };
        block(head * (left + 1 + right) + clip(self.distance(row, key), left, right), width)
    }
}

/// The entry of a clipped distance among `left + 1 + right`.
pub(super) fn clip(distance: isize, left: usize, right: usize) -> usize {
    (distance.clamp(-(left as isize), right as isize) + left as isize) as usize
}

fn block(index: usize, len: usize) -> Range<usize> {
    index * len..(index + 1) * len
}
