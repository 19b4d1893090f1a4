//! Positions on queries and keys apart from a score: the same features as softmax attention has, formed as a whole.
//!
//! A rotated row is as wide as the widest head's: `head_dim`, and one more for each polar channel; heads with fewer end in zeros,
//! which add nothing to products.

use crate::{
    Error, Pooled,
    attention::{
        Attention, Score, Shape,
        indices::Indices,
        pattern::Full,
        prepare::{Preparation, Prepare, PrepareBackward, Side},
    },
    error::expect_len,
    parallel,
};

/// The features of a call, whatever else it computes. Every query head turns keys of its own, because phases and shares of
/// the heads belong to query heads: keys are `[batch, heads, keys, head_dim]`.
#[derive(Clone)]
pub struct Rotation<'a>(Attention<'a>);

/// Gradients of what was rotated and of the phases of polar features.
#[derive(Clone, Debug, PartialEq)]
pub struct RotationGradients {
    /// Of the rows before they were rotated.
    pub x: Vec<f32>,
    /// Of each feature's δ that has one, `[heads, channels]`, in the order of the features.
    pub deltas: Vec<Vec<f32>>,
}

impl<'a> Rotation<'a> {
    /// The features of this call.
    pub fn new(call: &Attention<'a>) -> Self {
        let shape = Shape { kv_heads: call.shape.heads, ..call.shape };
        Self(Attention {
            first_query: call.first_query,
            first_key: call.first_key,
            features: call.features.clone(),
            score: Score::Dot { scale: 1.0 },
            simd: call.simd,
            ..Attention::new(shape, &Full)
        })
    }

    /// Channels of a rotated row.
    pub fn width(&self) -> usize {
        let heads = 0..self.0.shape.heads;
        heads.map(|head| self.0.width(head)).max().unwrap_or(self.0.shape.head_dim)
    }

    /// Queries `[batch, heads, queries, head_dim]`, rotated.
    pub fn queries(&self, q: &[f32]) -> Result<Pooled, Error> {
        self.forward(Side::Query, q)
    }

    /// Keys of every query head, rotated.
    pub fn keys(&self, k: &[f32]) -> Result<Pooled, Error> {
        self.forward(Side::Key, k)
    }

    /// From gradients of rotated queries to those of the queries.
    pub fn queries_backward(
        &self,
        q: &[f32],
        d_rotated: &[f32],
    ) -> Result<RotationGradients, Error> {
        self.backward(Side::Query, q, d_rotated)
    }

    /// From gradients of rotated keys to those of the keys and of their phases.
    pub fn keys_backward(&self, k: &[f32], d_rotated: &[f32]) -> Result<RotationGradients, Error> {
        self.backward(Side::Key, k, d_rotated)
    }

    /// Refuses features that do not fit the call.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    fn check_rows(&self, side: Side, x: &[f32]) -> Result<(), Error> {
        self.check()?;
        let (what, length) = match side {
            Side::Query => ("q", self.0.shape.q_len()),
            Side::Key => ("k", self.0.shape.k_len()),
        };
        expect_len(what, x.len(), length)
    }

    fn rows(&self, side: Side) -> usize {
        match side {
            Side::Query => self.0.shape.queries,
            Side::Key => self.0.shape.keys,
        }
    }

    fn forward(&self, side: Side, x: &[f32]) -> Result<Pooled, Error> {
        self.check_rows(side, x)?;
        let (dim, width, rows) = (self.0.shape.head_dim, self.width(), self.rows(side));
        let mut rotated = Pooled::uncleared(x.len() / dim * width);
        if x.is_empty() {
            return Ok(rotated);
        }
        let heads = x.chunks_exact(rows * dim).zip(rotated.chunks_exact_mut(rows * width));
        let tasks = heads.enumerate().collect();
        parallel::run(tasks, |(index, (raw, rotated)): (usize, (&[f32], &mut [f32])), scratch| {
            let head = index % self.0.shape.heads;
            let preparation = &Preparation::new(&self.0, head);
            let (own, indices) = (self.0.width(head), Indices::Run(0..rows));
            if own == width {
                self.0.simd.run(Prepare { preparation, side, indices, raw, prepared: rotated });
                return;
            }
            let prepared = scratch.queries.sized(rows * own);
            self.0.simd.run(Prepare { preparation, side, indices, raw, prepared });
            let wide = rotated.chunks_exact_mut(width).zip(prepared.chunks_exact(own));
            for (wide, prepared) in wide {
                wide[..own].copy_from_slice(prepared);
                wide[own..].fill(0.0);
            }
        });
        Ok(rotated)
    }

    fn backward(
        &self,
        side: Side,
        x: &[f32],
        d_rotated: &[f32],
    ) -> Result<RotationGradients, Error> {
        self.check_rows(side, x)?;
        let Shape { heads, head_dim: dim, .. } = self.0.shape;
        let (width, rows) = (self.width(), self.rows(side));
        expect_len("gradients of rotated rows", d_rotated.len(), x.len() / dim * width)?;
        let features = &self.0.features;
        let mut d_x = Vec::from(Pooled::zeros(x.len()));
        // Of every head of every sequence: δ is summed over these in order.
        let count = if x.is_empty() { 0 } else { x.len() / (rows * dim) };
        let mut parts: Vec<Vec<Vec<f32>>> = Vec::new();
        parts.resize_with(count, || {
            features.iter().map(|feature| vec![0.0; feature.channels.len()]).collect()
        });
        if count > 0 {
            let slices = x.chunks_exact(rows * dim).zip(d_rotated.chunks_exact(rows * width));
            let made = d_x.chunks_exact_mut(rows * dim).zip(&mut parts);
            let tasks: Vec<_> = slices.zip(made).enumerate().collect();
            parallel::run(tasks, |(index, ((raw, d), (d_raw, d_deltas))), scratch| {
                let head = index % heads;
                let preparation = &Preparation::new(&self.0, head);
                let own = self.0.width(head);
                let d_prepared = scratch.d_queries.sized(rows * own);
                let narrow = d_prepared.chunks_exact_mut(own).zip(d.chunks_exact(width));
                narrow.for_each(|(narrow, d)| narrow.copy_from_slice(&d[..own]));
                self.0.simd.run(PrepareBackward {
                    preparation,
                    side,
                    indices: Indices::Run(0..rows),
                    raw,
                    d_prepared,
                    d_raw,
                    d_bias: &mut [],
                    d_deltas,
                    row: scratch.row.sized(own),
                });
            });
        }
        let mut deltas = Vec::new();
        for (i, feature) in features.iter().enumerate().filter(|(_, f)| f.delta().is_some()) {
            let channels = feature.channels.len();
            let mut sums = vec![0.0; heads * channels];
            for (index, part) in parts.iter().enumerate() {
                let own = &mut sums[index % heads * channels..][..channels];
                own.iter_mut().zip(&part[i]).for_each(|(sum, d)| *sum += d);
            }
            deltas.push(sums);
        }
        Ok(RotationGradients { x: d_x, deltas })
    }
}
