//! Scores: how alike a query and a key are.

/// How a query and a key are compared, after their features are formed.
#[derive(Clone, Copy, Debug)]
pub enum Score<'a> {
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
        /// `[heads, head_dim]`, learned.
        weight: &'a [f32],
    },
}

impl Score<'_> {
    /// The scaled dot score of *Attention Is All You Need*: scale `1/√head_dim`.
    pub fn scaled_dot(head_dim: usize) -> Self {
        Self::Dot { scale: 1.0 / (head_dim as f32).sqrt() }
    }
}
