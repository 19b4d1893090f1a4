//! The backward pass. With a row's denominator `z`, `g = d_out / z` and `d_z = −(d_out · out) / z`:
//! `d_φ(q_i) = S g_i + d_z_i Z` over the keys the query sees, and over the queries that see a key, with
//! `T = Σ φ(q_i) g_iᵀ` and `U = Σ d_z_i φ(q_i)`, `d_v_j = Tᵀ φ(k_j)` and `d_φ(k_j) = T v_j + U`.
//!
//! In causal attention a task goes through its segment twice: forward with `S` and `Z`, where it also works on the
//! pairs inside each chunk, and back with `T` and `U`. `S` is kept transposed here, as its product needs it.

use std::ops::Range;

use super::{
    LinearAttention, LinearGradients, LinearOutput, LinearState,
    gradient::DKeys,
    head::{Head, Keys, slice_mut},
    segment::Segment,
    state::{Past, Sums},
};
use crate::{
    Error, attention::Inputs, error::expect_len, memory::scratch::Scratch, simd::rows::Transpose,
    tile::TILE,
};

impl LinearAttention<'_> {
    /// Computes the gradients of a scalar whose gradient with respect to `output.out` is `d_out`.
    /// `output` is what [`Self::forward`] returned for the same inputs.
    pub fn backward(
        &self,
        inputs: &Inputs,
        output: &LinearOutput,
        d_out: &[f32],
    ) -> Result<LinearGradients, Error> {
        self.check_inputs(inputs)?;
        let mut gradients = LinearGradients {
            q: vec![0.0; self.shape.q_len()],
            k: vec![0.0; self.shape.k_len()],
            v: vec![0.0; self.shape.v_len()],
        };
        self.backward_into(inputs, &output.out, &output.normalizer, d_out, &mut gradients)?;
        Ok(gradients)
    }

    /// [`Self::backward`] into gradients of the caller, which are overwritten.
    pub fn backward_into(
        &self,
        inputs: &Inputs,
        out: &[f32],
        normalizer: &[f32],
        d_out: &[f32],
        gradients: &mut LinearGradients,
    ) -> Result<(), Error> {
        self.check_inputs(inputs)?;
        expect_len("out", out.len(), self.shape.out_len())?;
        expect_len("normalizer", normalizer.len(), self.shape.rows())?;
        expect_len("d_out", d_out.len(), self.shape.out_len())?;
        expect_len("gradients of q", gradients.q.len(), self.shape.q_len())?;
        expect_len("gradients of k", gradients.k.len(), self.shape.k_len())?;
        expect_len("gradients of v", gradients.v.len(), self.shape.v_len())?;
        let backward = Backward { linear: self, inputs: *inputs, out, normalizer, d_out };
        if self.causal {
            backward.causal(gradients);
        } else {
            backward.bidirectional(gradients);
        }
        Ok(())
    }
}

/// One backward pass; `gradient.rs` says what it does with a chunk.
pub(super) struct Backward<'a> {
    pub(super) linear: &'a LinearAttention<'a>,
    inputs: Inputs<'a>,
    pub(super) out: &'a [f32],
    pub(super) normalizer: &'a [f32],
    pub(super) d_out: &'a [f32],
}

/// Some tokens of one key head and of the query heads that read it, where their gradients go, and the sums that
/// are carried through them.
struct Task<'o> {
    segment: Segment,
    /// Of each query head, `[tokens, head_dim]`.
    d_q: Vec<&'o mut [f32]>,
    d_keys: DKeys<'o>,
    /// `Sᵀ` and `Z` before the segment.
    past: Sums<'o>,
    /// `T` and `U` after the segment.
    future: Sums<'o>,
}

impl<'a> Backward<'a> {
    fn causal(&self, gradients: &mut LinearGradients) {
        let linear = self.linear;
        let shape = &linear.shape;
        let cuts = linear.cuts(shape.queries);
        let reversed: Vec<_> = cuts.iter().rev().cloned().collect();
        let others = cuts.len() - 1;
        let (mut past, mut future) = (LinearState::new(linear), LinearState::new(linear));
        let mut starts = self.sum_keys(&mut past, &cuts[..others]);
        let mut ends = self.sum_queries(&mut future, &reversed[..others]);
        let past = starts.before_each(&mut past, shape);
        let mut future = ends.before_each(&mut future, shape);
        future.chunks_mut(cuts.len()).for_each(<[_]>::reverse);

        let d_q = linear.share_queries(&mut gradients.q, &cuts, shape.head_dim);
        let d_keys = self.share_keys(&cuts, &mut gradients.k, &mut gradients.v);
        let outputs = d_q.into_iter().zip(d_keys);
        let sums = past.into_iter().zip(future);
        let tasks = linear.segments(&cuts).zip(outputs).zip(sums);
        let tasks = tasks.map(|((segment, (d_q, d_keys)), (past, future))| Task {
            segment,
            d_q,
            d_keys,
            past,
            future,
        });
        linear.run(tasks.collect(), |mut task, scratch| {
            self.go_forward(&mut task, scratch);
            self.go_back(&mut task, scratch);
        });
    }

    fn bidirectional(&self, gradients: &mut LinearGradients) {
        let linear = self.linear;
        let shape = linear.shape;
        let (queries, keys) = (linear.cuts(shape.queries), linear.cuts(shape.keys));
        let (mut past, mut future) = (LinearState::new(linear), LinearState::new(linear));
        self.sum_keys(&mut past, &keys);
        self.sum_queries(&mut future, &queries);

        let past: Vec<Past> = past.heads(&shape).collect();
        let d_q = linear.share_queries(&mut gradients.q, &queries, shape.head_dim);
        let tasks = linear.segments(&queries).zip(d_q).collect();
        linear.run(tasks, |(segment, mut d_q): (Segment, Vec<&mut [f32]>), scratch| {
            let head = self.head(segment.kv_head);
            let Scratch { queries, d_out, mean, max, .. } = scratch;
            for (tokens, own) in segment.chunks() {
                for (member, d_q) in d_q.iter_mut().enumerate() {
                    let d_q = slice_mut(d_q, &own, shape.head_dim);
                    let buffers = [&mut *queries, &mut *d_out, &mut *mean, &mut *max];
                    let asked = self.asked(&head, member, &tokens, buffers);
                    self.queries_backward(&asked, past[segment.kv_head], d_q);
                    self.features_backward(asked.features, d_q);
                }
            }
        });

        let future: Vec<Past> = future.heads(&shape).collect();
        let d_keys = self.share_keys(&keys, &mut gradients.k, &mut gradients.v);
        let tasks = linear.segments(&keys).zip(d_keys).collect();
        linear.run(tasks, |(segment, mut d_keys): (Segment, DKeys), scratch| {
            let Scratch { key_rows, terms, .. } = scratch;
            for (tokens, own) in segment.chunks() {
                let keys = self.head(segment.kv_head).keys(&tokens, key_rows);
                let mut d_keys = d_keys.chunk(&shape, &own);
                d_keys.clear();
                self.keys_backward(keys, future[segment.kv_head], d_keys, terms);
            }
        });
    }

    /// Adds the keys of some cuts to `Sᵀ` and `Z`.
    fn sum_keys(&self, past: &mut LinearState, cuts: &[Range<usize>]) -> LinearState {
        self.linear.scan(past, cuts, |kv_head, tokens, sums, scratch| {
            self.add_keys(self.head(kv_head).keys(tokens, &mut scratch.key_rows), sums);
        })
    }

    fn add_keys(&self, keys: Keys, past: &mut Sums) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        past.add_outer(simd, shape.value_dim, keys.values, keys.features);
        past.add_features(simd, &[1.0], keys.features);
    }

    /// Adds the queries of some cuts to `T` and `U`.
    fn sum_queries(&self, future: &mut LinearState, cuts: &[Range<usize>]) -> LinearState {
        self.linear.scan(future, cuts, |kv_head, tokens, sums, scratch| {
            self.add_queries(&self.head(kv_head), tokens, sums, scratch);
        })
    }

    fn add_queries(
        &self,
        head: &Head,
        tokens: &Range<usize>,
        future: &mut Sums,
        scratch: &mut Scratch,
    ) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        let Scratch { queries, d_out, mean, max, .. } = scratch;
        for member in 0..shape.group() {
            let buffers = [&mut *queries, &mut *d_out, &mut *mean, &mut *max];
            let asked = self.asked(head, member, tokens, buffers);
            future.add_outer(simd, shape.head_dim, asked.features, asked.d_sums);
            future.add_features(simd, asked.d_normalizer, asked.features);
        }
    }

    /// Gradients of the queries, and what the keys owe to queries of their own chunk.
    fn go_forward(&self, task: &mut Task, scratch: &mut Scratch) {
        let LinearAttention { shape, simd, .. } = *self.linear;
        let head = self.head(task.segment.kv_head);
        let Scratch { queries, d_out, mean, max, key_rows, key_cols, .. } = scratch;
        let Scratch { value_cols, scores, d_scores, .. } = scratch;
        let value_cols = value_cols.sized(shape.value_dim * TILE);
        for (tokens, own) in task.segment.chunks() {
            let keys = head.keys(&tokens, key_rows);
            let seen = head.seen(tokens.len(), keys, key_cols);
            simd.run(Transpose { from: keys.values, width: shape.value_dim, to: value_cols });
            let mut d_keys = task.d_keys.chunk(&shape, &own);
            d_keys.clear();
            for (member, d_q) in task.d_q.iter_mut().enumerate() {
                let d_q = slice_mut(d_q, &own, shape.head_dim);
                let buffers = [&mut *queries, &mut *d_out, &mut *mean, &mut *max];
                let asked = self.asked(&head, member, &tokens, buffers);
                self.queries_backward(&asked, task.past.past(), d_q);
                if let Some(seen) = &seen {
                    let tiles = [&mut *scores, &mut *d_scores];
                    self.pairs_backward(&asked, seen, value_cols, d_q, &mut d_keys, tiles);
                }
                self.features_backward(asked.features, d_q);
            }
            self.add_keys(keys, &mut task.past);
        }
    }

    /// What the keys owe to queries of later chunks.
    fn go_back(&self, task: &mut Task, scratch: &mut Scratch) {
        let head = self.head(task.segment.kv_head);
        for (tokens, own) in task.segment.chunks().rev() {
            let keys = head.keys(&tokens, &mut scratch.key_rows);
            let d_keys = task.d_keys.chunk(&self.linear.shape, &own);
            self.keys_backward(keys, task.future.past(), d_keys, &mut scratch.terms);
            self.add_queries(&head, &tokens, &mut task.future, scratch);
        }
    }

    fn head(&self, kv_head: usize) -> Head<'a> {
        Head { linear: self.linear, inputs: self.inputs, kv_head }
    }

    fn share_keys<'o>(
        &self,
        cuts: &[Range<usize>],
        d_k: &'o mut [f32],
        d_v: &'o mut [f32],
    ) -> impl Iterator<Item = DKeys<'o>> {
        let shape = &self.linear.shape;
        let d_k = self.linear.share_keys(d_k, cuts, shape.head_dim);
        let d_v = self.linear.share_keys(d_v, cuts, shape.value_dim);
        d_k.into_iter().zip(d_v).map(|(k, v)| DKeys { k, v })
    }
}
