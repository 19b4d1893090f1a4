//! Buffers of one thread, grown on demand and reused.

use crate::tile::TILE;

/// Everything a task needs besides its inputs and outputs.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Compared queries of a task, `[rows, width]`.
    pub(crate) queries: Vec<f32>,
    /// Gradients of the compared queries.
    pub(crate) d_queries: Vec<f32>,
    /// `scale · (q + v)` of each relative bias, `[biases, rows, head_dim]`.
    pub(crate) relative: Vec<f32>,
    /// Gradients of those.
    pub(crate) d_relative: Vec<f32>,
    /// Per row of a task: running maximum, sum, fade; in the backward pass `d_out · out`.
    pub(crate) max: Vec<f32>,
    pub(crate) sum: Vec<f32>,
    pub(crate) mean: Vec<f32>,
    pub(crate) fade: [f32; TILE],
    /// Compared keys of a tile, `[keys, width]`, and transposed, `[width, TILE]`.
    pub(crate) key_rows: Vec<f32>,
    pub(crate) key_cols: Vec<f32>,
    /// Values of a tile, transposed.
    pub(crate) value_cols: Vec<f32>,
    /// Gradients of a tile's compared keys and values.
    pub(crate) d_keys: Vec<f32>,
    pub(crate) d_values: Vec<f32>,
    /// Tiles of scores, of their gradients, of soft-cap slopes, and of dropout and focus factors.
    pub(crate) scores: Vec<f32>,
    pub(crate) d_scores: Vec<f32>,
    pub(crate) slopes: Vec<f32>,
    pub(crate) factors: Vec<f32>,
    /// Terms of a relative table for a tile, `[rows, entries]`.
    pub(crate) terms: Vec<f32>,
    /// One row of features.
    pub(crate) row: Vec<f32>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            queries: Vec::new(),
            d_queries: Vec::new(),
            relative: Vec::new(),
            d_relative: Vec::new(),
            max: Vec::new(),
            sum: Vec::new(),
            mean: Vec::new(),
            fade: [0.0; TILE],
            key_rows: Vec::new(),
            key_cols: Vec::new(),
            value_cols: Vec::new(),
            d_keys: Vec::new(),
            d_values: Vec::new(),
            scores: Vec::new(),
            d_scores: Vec::new(),
            slopes: Vec::new(),
            factors: Vec::new(),
            terms: Vec::new(),
            row: Vec::new(),
        }
    }
}

/// The first `len` values of a buffer, which grows if it must. Old contents remain.
pub(crate) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

/// The first `len` values of a buffer, all zero.
pub(crate) fn zeroed(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    let values = sized(buffer, len);
    values.fill(0.0);
    values
}
