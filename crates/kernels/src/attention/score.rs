//! Scores: how alike a query and a key are.

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

    /// The same score over other values; `f` gets each with its name.
    pub fn map<'t, U>(&'t self, f: &mut impl FnMut(&'static str, &'t T) -> U) -> Score<U> {
        match self {
            Self::Dot { scale } => Score::Dot { scale: *scale },
            Self::Cosine { scale } => Score::Cosine { scale: *scale },
            Self::Additive { weight } => Score::Additive { weight: f("weight", weight) },
        }
    }
}
