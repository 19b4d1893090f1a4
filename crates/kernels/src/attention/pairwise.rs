//! Scores that are no product of a query and a key: how their rows are prepared, and what they do to a tile.
//! Products need none of this: their tiles are matrix products.

use crate::{
    attention::Score,
    simd::{
        Simd,
        additive::{self, Additive, AdditiveBackward, Form},
        rows::Region,
    },
};

/// Such a score with what one head has learned for it.
#[derive(Clone, Copy)]
pub(crate) enum Pairwise<'a> {
    /// `[head_dim]`.
    Additive { weight: &'a [f32] },
}

/// A region of a tile: prepared queries `[rows, width]` and transposed prepared keys `[width, TILE]`.
pub(crate) struct PairwiseTile<'a> {
    pub(crate) region: Region,
    pub(crate) form: Form,
    pub(crate) queries: &'a [f32],
    pub(crate) keys: &'a [f32],
}

impl<'a> Score<&'a [f32]> {
    /// The score of one head, if it is no product.
    pub(crate) fn pairwise(&self, head: usize, head_dim: usize) -> Option<Pairwise<'a>> {
        match self {
            Self::Dot { .. } | Self::Cosine { .. } => None,
            Self::Additive { weight } => {
                Some(Pairwise::Additive { weight: &weight[head * head_dim..][..head_dim] })
            }
        }
    }
}

impl Pairwise<'_> {
    /// Brings queries into the form that these queries and all keys of the head can be compared in.
    pub(crate) fn prepare_queries(self, simd: Simd, queries: &mut [f32], keys: &[f32]) -> Form {
        match self {
            Self::Additive { .. } => {
                let form = Form::of(queries).meet(Form::of(keys));
                simd.run(additive::Prepare { form, values: queries });
                form
            }
        }
    }

    /// Brings keys into the form of their queries.
    pub(crate) fn prepare_keys(self, simd: Simd, form: Form, keys: &mut [f32]) {
        match self {
            Self::Additive { .. } => simd.run(additive::Prepare { form, values: keys }),
        }
    }

    /// The scores of a region.
    pub(crate) fn scores(self, simd: Simd, tile: PairwiseTile, scores: &mut [f32]) {
        let PairwiseTile { region, form, queries, keys } = tile;
        match self {
            Self::Additive { weight } => {
                simd.run(Additive { region, form, queries, keys, weight, scores });
            }
        }
    }

    /// Adds the gradients of a region: of queries `[rows, width]`, of keys `[width, TILE]`, of what the head has learned.
    pub(crate) fn backward(
        self,
        simd: Simd,
        tile: PairwiseTile,
        d_scores: &[f32],
        d_queries: &mut [f32],
        d_keys: &mut [f32],
        d_learned: &mut [f32],
    ) {
        let PairwiseTile { region, form, queries, keys } = tile;
        match self {
            Self::Additive { weight } => simd.run(AdditiveBackward {
                region,
                form,
                queries,
                keys,
                weight,
                d_scores,
                d_queries,
                d_keys,
                d_weight: d_learned,
            }),
        }
    }
}
