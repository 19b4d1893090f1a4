//! A recurrence in chunks of tokens. Within a chunk, with `b` the decays summed from its second token on, keys and queries take
//! the decays up, `k̃ = k·exp(−b)` and `q̃ = scale · q·exp(b)`, and so does the state, `S̃ = exp(first decay) · S`. What is left
//! is linear attention without a decay:
//!
//! ```text
//! out = q̃ S̃ + lower(q̃ k̃ᵀ) u          S ← exp(last b) · (S̃ + k̃ᵀ u)
//! ```
//! with `u = v`, or by the delta rule, with `k̂ = k·exp(b)` and `N = lower(k̂ k̃ᵀ)` without its diagonal, the solution of
//! `w = v − k̂ S̃ − N u`, `u = beta · w`, row after row (Yang et al. 2024, <https://arxiv.org/abs/2406.06484>).
//! A chunk ends early where the decays add up to more than [`RANGE`], so that no factor leaves what f32 can hold.

use std::ops::Range;

use pulp::{Simd as Vectors, WithSimd};

use super::Head;
use crate::{
    Simd,
    linear_attention::{
        FeatureMap,
        product::{add_outer, add_product_transposed, product},
    },
    simd::{feature_map::Features, matmul::Accumulate},
    tile::TILE,
};

/// Tokens per chunk, as in linear attention without decays.
const CHUNK: usize = TILE / 2;
/// The largest sum of decays within a chunk: `e^16` costs a factor two bits of its 24.
const RANGE: f32 = 16.0;

/// Runs a loop compiled for an instruction set.
pub(super) struct Loop<F>(pub(super) F);

impl<F: FnOnce()> WithSimd for Loop<F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(self, _: S) {
        (self.0)();
    }
}

/// The chunks of a head's tokens.
pub(super) fn cuts(head: &Head) -> Vec<Range<usize>> {
    let (tokens, gates) = (head.shape.keys, head.gates());
    let mut cuts: Vec<Range<usize>> = Vec::new();
    let mut sums = vec![0.0f32; gates];
    for token in 0..tokens {
        let decays = &head.decay[token * gates..][..gates];
        let fits = cuts.last().is_some_and(|last| last.len() < CHUNK)
            && sums.iter().zip(decays).all(|(sum, decay)| (sum + decay).abs() <= RANGE);
        match cuts.last_mut().filter(|_| fits) {
            Some(last) => {
                last.end = token + 1;
                sums.iter_mut().zip(decays).for_each(|(sum, decay)| *sum += decay);
            }
            None => {
                cuts.push(token..token + 1);
                sums.fill(0.0);
            }
        }
    }
    cuts
}

/// What a chunk is computed from, kept from chunk to chunk.
#[derive(Default)]
pub(super) struct Formed {
    /// `b`, `[tokens, 1 or head_dim]`.
    sums: Vec<f32>,
    /// `exp(b)`, `[tokens, head_dim]`; empty without decays.
    pub(super) grown: Vec<f32>,
    /// `k̃` and, of the delta rule, `k̂`.
    pub(super) keys: Vec<f32>,
    pub(super) asked: Vec<f32>,
    /// `N`, `w` and `u` of the delta rule.
    pub(super) pairs: Vec<f32>,
    pub(super) change: Vec<f32>,
    written: Vec<f32>,
    /// `q̃` of one query head, and a tile of pairs.
    pub(super) queries: Vec<f32>,
    pub(super) tile: Vec<f32>,
    transposed: Vec<f32>,
}

impl Formed {
    pub(super) fn new(head: &Head) -> Self {
        let widest = head.shape.head_dim.max(head.shape.value_dim);
        Self { transposed: vec![0.0; widest * TILE], ..Self::default() }
    }

    /// Forms everything but queries, and `state` as the chunk finds it: after its first token's decay.
    pub(super) fn chunk(
        &mut self,
        simd: Simd,
        head: &Head,
        tokens: &Range<usize>,
        state: &mut [f32],
    ) {
        let (dim, width, count) = (head.shape.head_dim, head.shape.value_dim, tokens.len());
        let gates = head.gates();
        let k = &head.k[tokens.start * dim..tokens.end * dim];
        self.keys.clear();
        self.keys.extend_from_slice(k);
        self.grown.clear();
        if gates > 0 {
            self.grow(simd, head, tokens);
            let first = &head.decay[tokens.start * gates..][..gates];
            let (keys, grown) = (&mut self.keys, &self.grown);
            simd.run(Loop(|| {
                keys.iter_mut().zip(grown).for_each(|(k, grown)| *k /= grown);
                for (c, row) in state.chunks_exact_mut(width).enumerate() {
                    let remains = first[c % gates].exp();
                    row.iter_mut().for_each(|s| *s *= remains);
                }
            }));
        }
        let Some(beta) = head.beta else { return };
        self.asked.clear();
        self.asked.extend_from_slice(k);
        for (k, grown) in self.asked.iter_mut().zip(&self.grown) {
            *k *= grown;
        }
        // w starts as k̂ S̃ and becomes v − k̂ S̃ − N u.
        self.change.resize(count * width, 0.0);
        let (asked, old) = (&self.asked, Accumulate::Overwrite);
        product(simd, [count, dim, width], asked, state, &mut self.change, old);
        let v = &head.v[tokens.start * width..tokens.end * width];
        self.pairs.clear();
        self.pairs.resize(count * count, 0.0);
        let sizes = [count, dim, count];
        add_product_transposed(
            simd,
            sizes,
            asked,
            &self.keys,
            &mut self.pairs,
            &mut self.transposed,
        );
        lower(&mut self.pairs, count, 0);
        self.written.clear();
        self.written.resize(count * width, 0.0);
        let (pairs, change, written) = (&self.pairs, &mut self.change, &mut self.written);
        let beta = &beta[tokens.clone()];
        simd.run(Loop(|| {
            for t in 0..count {
                let w = &mut change[t * width..][..width];
                w.iter_mut().zip(&v[t * width..]).for_each(|(w, v)| *w = v - *w);
                let (before, own) = written.split_at_mut(t * width);
                for (pair, u) in pairs[t * count..].iter().zip(before.chunks_exact(width)) {
                    w.iter_mut().zip(u).for_each(|(w, u)| *w -= pair * u);
                }
                own.iter_mut().zip(&*w).for_each(|(u, w)| *u = beta[t] * w);
            }
        }));
    }

    /// Forms `exp(b)`, the same for all channels where a token has one decay.
    fn grow(&mut self, simd: Simd, head: &Head, tokens: &Range<usize>) {
        let (dim, gates, count) = (head.shape.head_dim, head.gates(), tokens.len());
        self.sums.clear();
        self.sums.resize(count * gates, 0.0);
        let decays = &head.decay[tokens.start * gates..tokens.end * gates];
        for i in 1..count {
            let (before, own) = self.sums.split_at_mut(i * gates);
            let added = before[(i - 1) * gates..].iter().zip(&decays[i * gates..]);
            own.iter_mut().zip(added).for_each(|(sum, (before, decay))| *sum = before + decay);
        }
        self.grown.resize(count * dim, 0.0);
        let features = &mut self.grown[..count * gates];
        simd.run(Features { map: FeatureMap::Exp, raw: &self.sums, width: gates, features });
        if gates < dim {
            // From the last on: a token's row lies at or behind its one value.
            for i in (0..count).rev() {
                let grown = self.grown[i];
                self.grown[i * dim..][..dim].fill(grown);
            }
        }
    }

    /// What is written for each token.
    pub(super) fn written<'a>(&'a self, head: &Head<'a>, tokens: &Range<usize>) -> &'a [f32] {
        let width = head.shape.value_dim;
        match head.beta {
            None => &head.v[tokens.start * width..tokens.end * width],
            Some(_) => &self.written,
        }
    }

    /// `q̃` of one query head, and `lower(q̃ k̃ᵀ)`.
    pub(super) fn ask(&mut self, simd: Simd, head: &Head, member: usize, tokens: &Range<usize>) {
        let (dim, count) = (head.shape.head_dim, tokens.len());
        let q = head.rows(member, tokens, dim);
        self.queries.clear();
        self.queries.extend_from_slice(&head.q[q]);
        let (queries, grown, scale) = (&mut self.queries, &self.grown, head.scale);
        simd.run(Loop(|| {
            queries.iter_mut().for_each(|q| *q *= scale);
            queries.iter_mut().zip(grown).for_each(|(q, grown)| *q *= grown);
        }));
        self.tile.clear();
        self.tile.resize(count * count, 0.0);
        let sizes = [count, dim, count];
        let (queries, transposed) = (&self.queries, &mut self.transposed);
        add_product_transposed(simd, sizes, queries, &self.keys, &mut self.tile, transposed);
        lower(&mut self.tile, count, 1);
    }

    /// Adds what the chunk writes to the state it found.
    pub(super) fn absorb(&self, simd: Simd, head: &Head, tokens: &Range<usize>, state: &mut [f32]) {
        let (dim, width, count) = (head.shape.head_dim, head.shape.value_dim, tokens.len());
        let written = self.written(head, tokens);
        add_outer(simd, [dim, count, width], &self.keys, written, state);
        self.fade(simd, count, width, state);
    }

    /// Rows of a state times `exp(last b)`.
    pub(super) fn fade(&self, simd: Simd, count: usize, width: usize, state: &mut [f32]) {
        if self.grown.is_empty() {
            return;
        }
        let dim = self.grown.len() / count;
        let last = &self.grown[(count - 1) * dim..];
        simd.run(Loop(|| {
            for (row, grown) in state.chunks_exact_mut(width).zip(last) {
                row.iter_mut().for_each(|s| *s *= grown);
            }
        }));
    }
}

/// Keeps what stands in the columns before `row + more`.
pub(super) fn lower(tile: &mut [f32], count: usize, more: usize) {
    for (row, values) in tile.chunks_exact_mut(count).enumerate() {
        values[(row + more).min(count)..].fill(0.0);
    }
}

/// All outputs of a head; `state` takes its tokens in.
pub(super) fn forward(simd: Simd, head: &Head, state: &mut [f32], out: &mut [f32]) {
    let (dim, width) = (head.shape.head_dim, head.shape.value_dim);
    let mut formed = Formed::new(head);
    for tokens in cuts(head) {
        let count = tokens.len();
        formed.chunk(simd, head, &tokens, state);
        for member in 0..head.shape.group() {
            formed.ask(simd, head, member, &tokens);
            let out = &mut out[head.rows(member, &tokens, width)];
            let old = Accumulate::Overwrite;
            product(simd, [count, dim, width], &formed.queries, state, out, old);
            let (tile, written) = (&formed.tile, formed.written(head, &tokens));
            product(simd, [count, count, width], tile, written, out, Accumulate::Add);
        }
        formed.absorb(simd, head, &tokens, state);
    }
}
