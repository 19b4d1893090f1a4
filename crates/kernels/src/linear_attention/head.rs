//! One key head and the query heads that read it: their tokens as features.

use std::ops::Range;

use super::{LinearAttention, state::Sums};
use crate::{
    attention::{
        Inputs,
        pattern::{Causal, Tile},
    },
    memory::scratch::Buffer,
    simd::{feature_map::Features, rows::Transpose},
    tile::{Outline, TILE},
};

/// One key head of a call; the query heads that read it are its members.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) linear: &'a LinearAttention<'a>,
    pub(super) inputs: Inputs<'a>,
    /// Its index over all sequences.
    pub(super) kv_head: usize,
}

/// Keys and their values.
#[derive(Clone, Copy)]
pub(super) struct Keys<'s> {
    /// `φ(k)`, `[keys, head_dim]`.
    pub(super) features: &'s [f32],
    /// `[keys, value_dim]`.
    pub(super) values: &'s [f32],
}

/// What the queries of a causal chunk see of the chunk itself.
pub(super) struct Seen<'s> {
    pub(super) keys: Keys<'s>,
    /// `φ(k)` transposed, `[head_dim, TILE]`.
    pub(super) cols: &'s [f32],
    pub(super) outline: Outline,
}

impl<'a> Head<'a> {
    /// The rows of a member in `[batch, heads, queries]`.
    pub(super) fn rows(&self, member: usize, tokens: &Range<usize>) -> Range<usize> {
        let shape = &self.linear.shape;
        let first = (self.kv_head * shape.group() + member) * shape.queries;
        first + tokens.start..first + tokens.end
    }

    /// `φ(q)` of a member, `[queries, head_dim]`.
    pub(super) fn queries<'s>(
        &self,
        member: usize,
        tokens: &Range<usize>,
        features: &'s mut Buffer,
    ) -> &'s [f32] {
        let tokens = self.rows(member, tokens);
        let raw = slice(self.inputs.q, &tokens, self.linear.shape.head_dim);
        let features = features.sized(raw.len());
        let LinearAttention { map, simd, ref shape, .. } = *self.linear;
        simd.run(Features { map, raw, width: shape.head_dim, features });
        features
    }

    /// The keys among some tokens that are not padding.
    pub(super) fn keys<'s>(&self, tokens: &Range<usize>, features: &'s mut Buffer) -> Keys<'s>
    where
        'a: 's,
    {
        let (shape, length) = (&self.linear.shape, self.linear.keys_of(self.kv_head));
        let first = self.kv_head * shape.keys;
        let tokens = first + tokens.start.min(length)..first + tokens.end.min(length);
        let raw = slice(self.inputs.k, &tokens, shape.head_dim);
        let features = features.sized(raw.len());
        let LinearAttention { map, simd, .. } = *self.linear;
        simd.run(Features { map, raw, width: shape.head_dim, features });
        Keys { features, values: slice(self.inputs.v, &tokens, shape.value_dim) }
    }

    /// How `queries` of a causal chunk see the chunk's keys; nothing if all of those are padding.
    pub(super) fn seen<'s>(
        &self,
        queries: usize,
        keys: Keys<'s>,
        cols: &'s mut Buffer,
    ) -> Option<Seen<'s>> {
        let width = self.linear.shape.head_dim;
        let count = keys.features.len() / width;
        if count == 0 {
            return None;
        }
        let tile = Tile { batch: 0, head: 0, queries: 0..queries, keys: 0..count };
        let outline = Outline::new(&Causal::upper_left(), &tile)?;
        let cols = cols.sized(width * TILE);
        self.linear.simd.run(Transpose { from: keys.features, width, to: cols });
        Some(Seen { keys, cols, outline })
    }

    /// Adds keys to `S` and `Z`.
    pub(super) fn absorb(&self, keys: Keys, sums: &mut Sums) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        sums.add_outer(simd, shape.head_dim, keys.features, keys.values);
        sums.add_features(simd, &[1.0], keys.features);
    }
}

/// The part of `[tokens, width]` that belongs to some tokens.
pub(super) fn slice<'v>(values: &'v [f32], tokens: &Range<usize>, width: usize) -> &'v [f32] {
    &values[tokens.start * width..tokens.end * width]
}

/// [`slice`], to be written to.
pub(super) fn slice_mut<'v>(
    values: &'v mut [f32],
    tokens: &Range<usize>,
    width: usize,
) -> &'v mut [f32] {
    &mut values[tokens.start * width..tokens.end * width]
}
