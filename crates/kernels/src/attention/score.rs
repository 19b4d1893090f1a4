//! Scores: how alike a query and a key are.
//!
//! What the passes need to know of a kind they ask here; the tiles of one that is no product are in `pairwise.rs`.

use crate::{
    Error,
    attention::{Shape, prepare::Side},
    error::{expect_len, expect_range},
};

/// How a query and a key are compared, after their features are formed, over values `T`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Score<T> {
    /// `scale · q·k`. Luong's dot score has scale 1, Vaswani's scaled dot score `1/√head_dim`.
    Dot {
        /// Factor on every score.
        scale: f32,
    },
    /// `scale · q·k / (|q| |k|)`. A zero vector compares as 0 and receives no gradient.
    Cosine {
        /// Factor on every score.
        scale: f32,
    },
    /// Bahdanau's `Σ_c weight_c · tanh(q_c + k_c)`; q and k are the projected states.
    Additive {
        /// `[heads, head_dim]`.
        weight: T,
    },
}

impl<T> Score<T> {
    /// The scaled dot score of *Attention Is All You Need*: scale `1/√head_dim`.
    pub fn scaled_dot(head_dim: usize) -> Self {
        Self::Dot { scale: 1.0 / (head_dim as f32).sqrt() }
    }

    /// The factor on the scores, which relative vectors share.
    pub fn scale(&self) -> f32 {
        match self {
            Self::Dot { scale } | Self::Cosine { scale } => *scale,
            Self::Additive { .. } => 1.0,
        }
    }

    /// The factor that rows of a side carry, and whether they are brought to length 1.
    pub(crate) fn preparation(&self, side: Side) -> (f32, bool) {
        match (self, side) {
            (Self::Dot { scale }, Side::Query) => (*scale, false),
            (Self::Cosine { scale }, Side::Query) => (*scale, true),
            (Self::Cosine { .. }, Side::Key) => (1.0, true),
            (Self::Dot { .. }, Side::Key) | (Self::Additive { .. }, _) => (1.0, false),
        }
    }

    /// Whether keys are compared as they are.
    pub(crate) fn takes_raw_keys(&self) -> bool {
        matches!(self, Self::Dot { .. })
    }

    /// What it learns, `head_dim` values for each head.
    pub(crate) fn learned(&mut self) -> Option<&mut T> {
        match self {
            Self::Dot { .. } | Self::Cosine { .. } => None,
            Self::Additive { weight } => Some(weight),
        }
    }

    /// The same score over other values; `f` gets each with its name.
    pub fn map<'t, U>(&'t self, f: &mut impl FnMut(&'static str, &'t T) -> U) -> Score<U> {
        match self {
            Self::Dot { scale } => Score::Dot { scale: *scale },
            Self::Cosine { scale } => Score::Cosine { scale: *scale },
            Self::Additive { weight } => Score::Additive { weight: f("weight", weight) },
        }
    }
}

impl Score<&[f32]> {
    /// Refuses values out of range, and features that mean nothing under the score.
    pub(crate) fn check(&self, shape: &Shape, has_features: bool) -> Result<(), Error> {
        match self {
            Self::Dot { scale } | Self::Cosine { scale } => {
                expect_range("scale", scale, scale.is_finite(), "the finite numbers")
            }
            Self::Additive { weight } => {
                expect_len("additive weight", weight.len(), shape.heads * shape.head_dim)?;
                match has_features {
                    true => Err(Error::Combination {
                        what: "additive score with rotary or polar features",
                        reason: "tanh(q + k) does not depend on the distance after a rotation",
                    }),
                    false => Ok(()),
                }
            }
        }
    }
}
