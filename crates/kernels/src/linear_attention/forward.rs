//! The forward pass: features of the queries times the sums over keys.

use std::ops::Range;

use super::{
    LinearAttention, LinearOutput, LinearState,
    head::{Head, Seen, slice_mut},
    inverse,
    product::{add_tile_product, product, tile_of},
    segment::Segment,
    state::Past,
};
use crate::{
    Error,
    attention::Inputs,
    error::expect_len,
    memory::scratch::{Buffer, Scratch},
    simd::{
        lower::{DotVector, Lower, SumRows},
        matmul::Accumulate,
        rows::ScaleRows,
    },
    tile::TILE,
};

impl LinearAttention<'_> {
    /// Computes the output and each row's denominator.
    pub fn forward(&self, inputs: &Inputs) -> Result<LinearOutput, Error> {
        self.check_inputs(inputs)?;
        let mut made = LinearOutput {
            out: vec![0.0; self.shape.out_len()],
            normalizer: vec![0.0; self.shape.rows()],
        };
        self.forward_into(inputs, &mut made.out, &mut made.normalizer)?;
        Ok(made)
    }

    /// [`Self::forward`] into buffers of the caller.
    pub fn forward_into(
        &self,
        inputs: &Inputs,
        out: &mut [f32],
        normalizer: &mut [f32],
    ) -> Result<(), Error> {
        self.check_inputs(inputs)?;
        expect_len("out", out.len(), self.shape.out_len())?;
        expect_len("normalizer", normalizer.len(), self.shape.rows())?;
        let mut state = LinearState::new(self);
        if self.causal {
            self.attend_causally(&mut state, inputs, out, normalizer);
        } else {
            self.absorb_keys(&mut state, inputs);
            self.attend_to(&state, inputs, out, normalizer);
        }
        Ok(())
    }

    /// Each query reads the state and the tokens up to its own; at the end the state has taken in all tokens.
    pub(super) fn attend_causally(
        &self,
        state: &mut LinearState,
        inputs: &Inputs,
        out: &mut [f32],
        normalizer: &mut [f32],
    ) {
        let cuts = self.cuts(self.shape.queries);
        let mut starts = self.sum_keys(state, &cuts[..cuts.len() - 1], inputs);
        let sums = starts.before_each(state, &self.shape);
        let tasks = self.tasks(&cuts, out, normalizer).zip(sums).collect();
        self.run(tasks, |(mut task, mut sums), scratch| {
            let head = Head { linear: self, inputs: *inputs, kv_head: task.segment.kv_head };
            let Scratch { queries, key_rows, key_cols, scores, sum, .. } = scratch;
            for (tokens, own) in task.segment.chunks() {
                let keys = head.keys(&tokens, key_rows);
                let seen = head.seen(tokens.len(), keys, key_cols);
                let chunk = Chunk { head, tokens, past: sums.past(), seen };
                chunk.attend(&mut task, own, [queries, scores, sum]);
                head.absorb(keys, &mut sums);
            }
        });
    }

    /// Each query reads the state.
    pub(super) fn attend_to(
        &self,
        state: &LinearState,
        inputs: &Inputs,
        out: &mut [f32],
        normalizer: &mut [f32],
    ) {
        let cuts = self.cuts(self.shape.queries);
        let pasts: Vec<Past> = state.heads(&self.shape).collect();
        self.run(self.tasks(&cuts, out, normalizer).collect(), |mut task, scratch| {
            let head = Head { linear: self, inputs: *inputs, kv_head: task.segment.kv_head };
            let Scratch { queries, scores, sum, .. } = scratch;
            for (tokens, own) in task.segment.chunks() {
                let chunk = Chunk { head, tokens, past: pasts[head.kv_head], seen: None };
                chunk.attend(&mut task, own, [queries, scores, sum]);
            }
        });
    }

    /// Adds all keys and values to the state.
    pub(super) fn absorb_keys(&self, state: &mut LinearState, inputs: &Inputs) {
        self.sum_keys(state, &self.cuts(self.shape.keys), inputs);
    }

    fn sum_keys(
        &self,
        state: &mut LinearState,
        cuts: &[Range<usize>],
        inputs: &Inputs,
    ) -> LinearState {
        self.scan(state, cuts, |kv_head, tokens, sums, scratch| {
            let head = Head { linear: self, inputs: *inputs, kv_head };
            head.absorb(head.keys(tokens, &mut scratch.key_rows), sums);
        })
    }

    fn tasks<'o>(
        &self,
        cuts: &[Range<usize>],
        out: &'o mut [f32],
        normalizer: &'o mut [f32],
    ) -> impl Iterator<Item = Task<'o>> {
        let out = self.share_queries(out, cuts, self.shape.value_dim);
        let normalizer = self.share_queries(normalizer, cuts, 1);
        let made = out.into_iter().zip(normalizer);
        self.segments(cuts).zip(made).map(|(segment, (out, normalizer))| Task {
            segment,
            out,
            normalizer,
        })
    }
}

/// Some queries of the heads that read one key head, and where their results go.
struct Task<'o> {
    segment: Segment,
    /// Of each head, `[queries, value_dim]`.
    out: Vec<&'o mut [f32]>,
    /// Of each head, `[queries]`.
    normalizer: Vec<&'o mut [f32]>,
}

/// A chunk of queries and what they see.
struct Chunk<'s> {
    head: Head<'s>,
    tokens: Range<usize>,
    past: Past<'s>,
    seen: Option<Seen<'s>>,
}

impl Chunk<'_> {
    /// `out = (φ(q)·S + lower(φ(q)·φ(k)ᵀ)·v) / normalizer`, or times the scale, for each head; `own` is the chunk's place in the task.
    fn attend(&self, task: &mut Task, own: Range<usize>, buffers: [&mut Buffer; 3]) {
        let Self { head, tokens, past, seen } = self;
        let LinearAttention { shape, simd, epsilon, scale, .. } = *head.linear;
        let [features, scores, factors] = buffers;
        for (member, (out, normalizer)) in task.out.iter_mut().zip(&mut task.normalizer).enumerate()
        {
            let out = slice_mut(out, &own, shape.value_dim);
            let normalizer = &mut normalizer[own.clone()];
            let features = head.queries(member, tokens, features);
            if scale.is_none() {
                simd.run(DotVector { rows: features, vector: past.z, dots: normalizer });
            }
            let sizes = [own.len(), shape.head_dim, shape.value_dim];
            product(simd, sizes, features, past.s, out, Accumulate::Overwrite);
            if let Some(Seen { keys, cols, outline }) = seen {
                let tile = scores.sized(TILE * TILE);
                for region in outline.regions() {
                    tile_of(simd, &region, shape.head_dim, features, cols, tile);
                    simd.run(Lower { region: region.clone(), tile, shifts: None });
                    if scale.is_none() {
                        simd.run(SumRows { region: region.clone(), tile, sums: normalizer });
                    }
                    add_tile_product(simd, &region, shape.value_dim, tile, keys.values, out);
                }
            }
            let factors = factors.sized(own.len());
            match scale {
                None => {
                    for (sum, factor) in normalizer.iter_mut().zip(factors.iter_mut()) {
                        *sum += epsilon;
                        *factor = inverse(*sum);
                    }
                }
                Some(scale) => {
                    normalizer.fill(1.0);
                    factors.fill(scale);
                }
            }
            simd.run(ScaleRows { values: out, width: shape.value_dim, factors });
        }
    }
}
