//! Gradients of one chunk: of its queries, of its keys, and of the pairs between them. The letters are those of
//! `backward.rs`.

use std::ops::Range;

use super::{
    LinearAttention,
    backward::Backward,
    head::{Head, Keys, Seen, slice, slice_mut},
    inverse,
    product::{add_product_transposed, add_tile_outer, add_tile_product, product, tile_of},
    state::Past,
};
use crate::{
    attention::Shape,
    memory::scratch::Buffer,
    simd::{
        feature_map::FeaturesBackward,
        lower::Lower,
        matmul::Accumulate,
        rows::{DotRows, ScaleRows},
    },
    tile::TILE,
};

/// Some queries of one head.
pub(super) struct Asked<'s> {
    /// `φ(q)`, `[queries, head_dim]`.
    pub(super) features: &'s [f32],
    /// `g`, `[queries, value_dim]`.
    pub(super) d_sums: &'s [f32],
    /// `d_z`, `[queries]`.
    pub(super) d_normalizer: &'s [f32],
}

/// Gradients of some keys, or of their features, and of their values; zeros for padding.
pub(super) struct DKeys<'o> {
    /// `[keys, head_dim]`.
    pub(super) k: &'o mut [f32],
    /// `[keys, value_dim]`.
    pub(super) v: &'o mut [f32],
}

impl DKeys<'_> {
    /// Those of a chunk; `own` is its place among them.
    pub(super) fn chunk(&mut self, shape: &Shape, own: &Range<usize>) -> DKeys<'_> {
        DKeys {
            k: slice_mut(self.k, own, shape.head_dim),
            v: slice_mut(self.v, own, shape.value_dim),
        }
    }

    pub(super) fn clear(&mut self) {
        self.k.fill(0.0);
        self.v.fill(0.0);
    }
}

impl Backward<'_> {
    /// From gradients of features to those of queries or keys.
    pub(super) fn features_backward(&self, features: &[f32], d: &mut [f32]) {
        let LinearAttention { shape, simd, map, .. } = *self.linear;
        simd.run(FeaturesBackward { map, features, width: shape.head_dim, d });
    }

    /// Features of some queries and the gradients that reach them.
    pub(super) fn asked<'s>(
        &self,
        head: &Head,
        member: usize,
        tokens: &Range<usize>,
        [features, d_sums, d_normalizer, factors]: [&'s mut Buffer; 4],
    ) -> Asked<'s> {
        let LinearAttention { shape, simd, scale, .. } = *self.linear;
        let (width, rows) = (shape.value_dim, head.rows(member, tokens));
        let (out, d_out) = (slice(self.out, &rows, width), slice(self.d_out, &rows, width));
        let factors = factors.sized(rows.len());
        let d_normalizer = d_normalizer.sized(rows.len());
        simd.run(DotRows { a: d_out, b: out, width, dots: d_normalizer });
        let normalizer = &self.normalizer[rows];
        for ((d, factor), &sum) in d_normalizer.iter_mut().zip(factors.iter_mut()).zip(normalizer) {
            match scale {
                None => {
                    *factor = inverse(sum);
                    *d *= -*factor;
                }
                Some(scale) => (*factor, *d) = (scale, 0.0),
            }
        }
        let d_sums = d_sums.sized(d_out.len());
        d_sums.copy_from_slice(d_out);
        simd.run(ScaleRows { values: d_sums, width, factors });
        Asked { features: head.queries(member, tokens, features), d_sums, d_normalizer }
    }

    /// `d_q = g·Sᵀ + d_z·Zᵀ`, of the features.
    pub(super) fn queries_backward(&self, asked: &Asked, past: Past, d_q: &mut [f32]) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        let count = asked.d_normalizer.len();
        product(
            simd,
            [count, 1, shape.head_dim],
            asked.d_normalizer,
            past.z,
            d_q,
            Accumulate::Overwrite,
        );
        product(
            simd,
            [count, shape.value_dim, shape.head_dim],
            asked.d_sums,
            past.s,
            d_q,
            Accumulate::Add,
        );
    }

    /// The pairs inside a chunk: with the tiles `A = lower(φ(q)·φ(k)ᵀ)` and `B = lower(g·vᵀ + d_z)`,
    /// `d_q += B·φ(k)`, `d_k += Bᵀ·φ(q)` of the features, and `d_v += Aᵀ·g`.
    pub(super) fn pairs_backward(
        &self,
        asked: &Asked,
        seen: &Seen,
        value_cols: &[f32],
        d_q: &mut [f32],
        d_keys: &mut DKeys,
        [scores, d_scores]: [&mut Buffer; 2],
    ) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        let (dim, value_dim) = (shape.head_dim, shape.value_dim);
        let Asked { features, d_sums, d_normalizer } = asked;
        let Seen { keys, cols, outline } = seen;
        // Products over queries also read what lies outside the regions.
        let size = d_normalizer.len() * TILE;
        let (tile, d_tile) = (scores.zeroed(size), d_scores.zeroed(size));
        for region in outline.regions() {
            tile_of(simd, &region, dim, features, cols, tile);
            simd.run(Lower { region: region.clone(), tile, shifts: None });
            tile_of(simd, &region, value_dim, d_sums, value_cols, d_tile);
            let shifts = Some(*d_normalizer);
            simd.run(Lower { region: region.clone(), tile: d_tile, shifts });
            add_tile_product(simd, &region, dim, d_tile, keys.features, d_q);
        }
        add_tile_outer(simd, outline, value_dim, tile, d_sums, d_keys.v);
        add_tile_outer(simd, outline, dim, d_tile, features, d_keys.k);
    }

    /// `d_v += φ(k)·T` and `d_k += v·Tᵀ + U`, then on to the raw keys.
    pub(super) fn keys_backward(
        &self,
        keys: Keys,
        future: Past,
        d_keys: DKeys,
        transposed: &mut Buffer,
    ) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        let (dim, value_dim) = (shape.head_dim, shape.value_dim);
        let count = keys.features.len() / dim;
        product(simd, [count, dim, value_dim], keys.features, future.s, d_keys.v, Accumulate::Add);
        let transposed = transposed.sized(value_dim * TILE);
        let sizes = [count, value_dim, dim];
        add_product_transposed(simd, sizes, keys.values, future.s, d_keys.k, transposed);
        let d_k = &mut d_keys.k[..keys.features.len()];
        for d_k in d_k.chunks_exact_mut(dim) {
            d_k.iter_mut().zip(future.z).for_each(|(d, u)| *d += u);
        }
        self.features_backward(keys.features, d_k);
    }
}
