//! The backward pass: gradients of everything that can learn, one chunk of keys of one key head at a time.
//!
//! Scores are formed again as in the forward pass, tile by tile, and with the weights `w = exp(score − lse)`:
//! `d_v = wᵀ d_out`, `d_w = d_out vᵀ`, `d_score = w (d_w − d_out·out)`, `d_q = d_score k`, `d_k = d_scoreᵀ q`.
//! A task owns its keys' gradients; the queries of a head are shared between its chunks, each of which sums its part
//! of `d_q` apart and adds it when its turn has come.

pub(super) mod pass;
pub(super) mod step;

use std::ops::Range;

use crate::{
    Error, Precision,
    attention::{
        Attention, Bias, Gradients, Inputs, Output,
        gathered::Layers,
        indices::Indices,
        learned::{Learned, Totals},
        pattern::Coverage,
        plan::Plan,
    },
    error::expect_len,
    memory::scratch::{Buffer, Scratch},
    parallel::{self, InTurn},
    simd::{bf16::Round, rows::DotRows},
    tile::{chunks_per_head, key_chunks, tiles},
};

use pass::Pass;

/// Chunks per head when a learned dense bias has its heads worked on one after the other.
pub(crate) const DENSE_CHUNKS: usize = 8;

/// `d_out · out` of each row, the mean of the gradients of its weights. For products in bf16 `d_out` is rounded as they round it:
/// what a row that sees one key is told of its score cancels to 0 so, and not to the rounding of `d_out`.
pub(in crate::attention) fn mean_of_rows(
    attention: &Attention,
    d_out: &[f32],
    out: &[f32],
    rounded: &mut Buffer,
    mean: &mut [f32],
) {
    let (simd, width) = (attention.simd, attention.shape.value_dim);
    let a = match attention.precision {
        Precision::F32 => d_out,
        Precision::Bf16 => {
            let copy = rounded.sized(d_out.len());
            simd.run(Round { values: d_out, copy: &mut *copy });
            copy
        }
    };
    simd.run(DotRows { a, b: out, width, dots: mean });
}

impl Attention<'_> {
    /// Computes the gradients of a scalar whose gradient with respect to `output.out` is `d_out`.
    /// `output` is what [`Self::forward`] returned for the same inputs.
    pub fn backward(
        &self,
        inputs: &Inputs,
        output: &Output,
        d_out: &[f32],
    ) -> Result<Gradients, Error> {
        self.check_inputs(inputs)?;
        let mut gradients = Gradients::zeros(self);
        self.backward_into(inputs, &output.out, &output.lse, d_out, &mut gradients)?;
        Ok(gradients)
    }

    /// [`Self::backward`] into gradients of the caller, which are overwritten.
    pub fn backward_into(
        &self,
        inputs: &Inputs,
        out: &[f32],
        lse: &[f32],
        d_out: &[f32],
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        self.check_inputs(inputs)?;
        expect_len("out", out.len(), self.shape.out_len())?;
        expect_len("lse", lse.len(), self.shape.rows())?;
        expect_len("d_out", d_out.len(), self.shape.out_len())?;
        expect_len("gradients of q", gradients.q.len(), self.shape.q_len())?;
        expect_len("gradients of k", gradients.k.len(), self.shape.k_len())?;
        expect_len("gradients of v", gradients.v.len(), self.shape.v_len())?;
        if self.shape.queries == 0 || self.shape.keys == 0 {
            *gradients = Gradients::zeros(self);
            return Ok(());
        }
        let layers = Layers::of(self);
        let plan = layers.plan(self, inputs);
        Backward { plan: &plan, out, lse, d_out }.run(&layers, gradients);
        Ok(())
    }
}

/// What a backward pass starts from.
pub(crate) struct Backward<'a> {
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) out: &'a [f32],
    pub(crate) lse: &'a [f32],
    pub(crate) d_out: &'a [f32],
}

/// Some keys of one key head, and where the gradients go.
struct Chunk<'s, 'o> {
    batch: usize,
    kv_head: usize,
    keys: Range<usize>,
    /// When the chunk may add to `d_q`: after those before it.
    turn: usize,
    /// `[queries, head_dim]` of each head of the group; none if there are no queries.
    d_q: &'s [InTurn<'o>],
    /// `[keys, head_dim]`.
    d_k: &'o mut [f32],
    /// `[keys, value_dim]`.
    d_v: &'o mut [f32],
    learned: &'s mut Learned,
}

impl Backward<'_> {
    /// What lies together, then what is gathered.
    pub(crate) fn run(&self, layers: &Layers, gradients: &mut Gradients) {
        let mut totals = Totals::new(self.plan);
        if layers.neighbors().is_some() {
            self.neighbors(gradients, &mut totals);
        } else {
            for d in [&mut gradients.q, &mut gradients.k, &mut gradients.v] {
                d.fill(0.0);
            }
        }
        for layer in &layers.gathered {
            self.gathered(layer, gradients, &mut totals);
        }
        totals.finish(gradients);
    }

    fn neighbors(&self, gradients: &mut Gradients, totals: &mut Totals) {
        let attention = self.plan.attention;
        let shape = &attention.shape;
        let heads = shape.batch * shape.kv_heads;
        let dense = self.learns_dense();
        let ranges = self.key_ranges(if dense { DENSE_CHUNKS } else { chunks_per_head(heads) });
        let per_head = (shape.queries * shape.head_dim).max(1);
        let shared: Vec<InTurn> = gradients.q.chunks_exact_mut(per_head).map(InTurn::new).collect();
        let mut d_k = split(&mut gradients.k, heads, &ranges, shape.head_dim);
        let mut d_v = split(&mut gradients.v, heads, &ranges, shape.value_dim);
        // Blocks of a dense bias's gradient are added up head by head, to hold no more than one head's at a time.
        let per_wave = if dense { 1 } else { heads };
        for wave in (0..heads).step_by(per_wave) {
            let indices = wave..(wave + per_wave).min(heads);
            let mut learned: Vec<Learned> = Vec::new();
            learned.resize_with(indices.len() * ranges.len(), Learned::default);
            let mut slots = learned.iter_mut();
            let mut chunks = Vec::with_capacity(slots.len());
            // Chunk by chunk rather than head by head, so that nobody waits long for a turn.
            for (turn, keys) in ranges.iter().enumerate() {
                for (index, learned) in indices.clone().zip(&mut slots) {
                    chunks.push(Chunk {
                        batch: index / shape.kv_heads,
                        kv_head: index % shape.kv_heads,
                        turn,
                        keys: keys.clone(),
                        d_q: shared.chunks_exact(shape.group()).nth(index).unwrap_or_default(),
                        d_k: std::mem::take(&mut d_k[index * ranges.len() + turn]),
                        d_v: std::mem::take(&mut d_v[index * ranges.len() + turn]),
                        learned,
                    });
                }
            }
            parallel::run(chunks, |chunk, scratch| self.chunk(chunk, scratch));
            for learned in &learned {
                totals.add(learned);
            }
        }
    }

    /// Whether a bias of queries by keys learns.
    pub(crate) fn learns_dense(&self) -> bool {
        let biases = &self.plan.attention.biases;
        biases.iter().any(|bias| matches!(bias, Bias::Dense { learned: true, .. }))
    }

    /// Cuts the keys of a head into chunks of about equal cost.
    fn key_ranges(&self, chunks: usize) -> Vec<Range<usize>> {
        let shape = &self.plan.attention.shape;
        let head = self.plan.head(0, 0);
        let cost: Vec<usize> = tiles(0..shape.keys)
            .map(|keys| {
                let seen = |rows: &Range<usize>| {
                    let tile = head.tile(rows.clone(), keys.clone());
                    self.plan.pattern.coverage(&tile) != Coverage::Empty
                };
                1 + tiles(0..shape.queries).filter(seen).count()
            })
            .collect();
        key_chunks(shape.keys, &cost, chunks)
    }
}

/// Cuts a tensor over `heads` heads of keys into the parts of each head's chunks.
fn split<'o>(
    mut whole: &'o mut [f32],
    heads: usize,
    ranges: &[Range<usize>],
    width: usize,
) -> Vec<&'o mut [f32]> {
    let ranges = std::iter::repeat_n(ranges, heads).flatten();
    ranges.map(|range| whole.split_off_mut(..range.len() * width).unwrap_or_default()).collect()
}

impl Backward<'_> {
    fn chunk(&self, chunk: Chunk, scratch: &mut Scratch) {
        let shape = self.plan.attention.shape;
        let Chunk { batch, kv_head, keys, turn, d_q, d_k, d_v, learned } = chunk;
        d_k.fill(0.0);
        d_v.fill(0.0);
        let _guard = InTurn::guard(d_q);
        for (member, d_q) in d_q.iter().enumerate() {
            let head = self.plan.head(batch, kv_head * shape.group() + member);
            let learned = learned.head(&head, &Indices::Run(0..shape.queries), &keys);
            let mut pass = Pass { all: self, head, learned, keys: keys.clone() };
            let rows = pass.run(d_k, d_v, scratch);
            d_q.at(turn, |d_q| {
                if turn == 0 {
                    d_q.fill(0.0);
                }
                if let Some(rows) = rows {
                    pass.queries_backward(rows, d_q, scratch);
                }
            });
        }
    }
}
