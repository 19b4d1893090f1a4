//! The past of linear attention as sums of constant size: decoding, and memories that are built once and read often.

use super::{LinearAttention, product};
use crate::{
    Error,
    attention::{Inputs, Shape},
    error::expect_len,
    simd::Simd,
};

/// All keys and values absorbed so far, as two sums per key head. They are plain numbers: a copy is a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearState {
    /// `S = Σ φ(k) vᵀ`, `[batch, kv_heads, head_dim, value_dim]`.
    pub s: Vec<f32>,
    /// `Z = Σ φ(k)`, `[batch, kv_heads, head_dim]`.
    pub z: Vec<f32>,
}

impl LinearState {
    /// The empty past.
    pub fn new(linear: &LinearAttention) -> Self {
        Self::zeros(&linear.shape, linear.kv_heads())
    }

    pub(super) fn zeros(shape: &Shape, heads: usize) -> Self {
        let z = vec![0.0; heads * shape.head_dim];
        Self { s: vec![0.0; z.len() * shape.value_dim], z }
    }

    /// The sums of each key head.
    pub(super) fn heads(&self, shape: &Shape) -> impl Iterator<Item = Past<'_>> {
        let s = self.s.chunks_exact(shape.head_dim * shape.value_dim);
        s.zip(self.z.chunks_exact(shape.head_dim)).map(|(s, z)| Past { s, z })
    }

    /// [`Self::heads`], to be added to.
    pub(super) fn heads_mut(&mut self, shape: &Shape) -> impl Iterator<Item = Sums<'_>> {
        let s = self.s.chunks_exact_mut(shape.head_dim * shape.value_dim);
        s.zip(self.z.chunks_exact_mut(shape.head_dim)).map(|(s, z)| Sums { s, z })
    }

    /// The sums before each segment of each key head: those that a scan returned in `self`, and before the last
    /// segment those it left in `state`.
    pub(super) fn before_each<'s>(
        &'s mut self,
        state: &'s mut LinearState,
        shape: &Shape,
    ) -> Vec<Sums<'s>> {
        let per_head = self.z.len() / state.z.len();
        let mut sums = Vec::with_capacity((per_head + 1) * shape.batch * shape.kv_heads);
        let mut earlier = self.heads_mut(shape);
        for last in state.heads_mut(shape) {
            sums.extend(earlier.by_ref().take(per_head));
            sums.push(last);
        }
        sums
    }

    fn check(&self, linear: &LinearAttention) -> Result<(), Error> {
        let expected = linear.kv_heads() * linear.shape.head_dim;
        expect_len("the state's z", self.z.len(), expected)?;
        expect_len("the state's s", self.s.len(), expected * linear.shape.value_dim)
    }
}

impl LinearAttention<'_> {
    /// The next tokens of causal attention: their outputs, `[batch, heads, queries, value_dim]`, as one pass over
    /// all tokens would give them. `state` holds the tokens before and takes in these.
    pub fn decode(&self, state: &mut LinearState, inputs: &Inputs) -> Result<Vec<f32>, Error> {
        self.check_inputs(inputs)?;
        state.check(self)?;
        if !self.causal {
            return Err(Error::Combination {
                what: "decoding bidirectional linear attention",
                reason: "a token may see later ones; use `absorb` for all keys, then `read`",
            });
        }
        let mut out = vec![0.0; self.shape.out_len()];
        let mut normalizer = vec![0.0; self.shape.rows()];
        self.attend_causally(state, inputs, &mut out, &mut normalizer);
        Ok(out)
    }

    /// Adds keys and values to a memory, in one call or several.
    pub fn absorb(&self, state: &mut LinearState, k: &[f32], v: &[f32]) -> Result<(), Error> {
        self.check()?;
        state.check(self)?;
        expect_len("k", k.len(), self.shape.k_len())?;
        expect_len("v", v.len(), self.shape.v_len())?;
        self.absorb_keys(state, &Inputs { q: &[], k, v });
        Ok(())
    }

    /// What queries find in a memory, `[batch, heads, queries, value_dim]`: attention to all it has absorbed.
    pub fn read(&self, state: &LinearState, q: &[f32]) -> Result<Vec<f32>, Error> {
        self.check()?;
        state.check(self)?;
        expect_len("q", q.len(), self.shape.q_len())?;
        let mut out = vec![0.0; self.shape.out_len()];
        let mut normalizer = vec![0.0; self.shape.rows()];
        self.attend_to(state, &Inputs { q, k: &[], v: &[] }, &mut out, &mut normalizer);
        Ok(out)
    }
}

/// `S` and `Z` of one key head, to be read.
#[derive(Clone, Copy)]
pub(super) struct Past<'a> {
    pub(super) s: &'a [f32],
    pub(super) z: &'a [f32],
}

/// `S` and `Z` of one key head, to be added to.
pub(super) struct Sums<'a> {
    s: &'a mut [f32],
    z: &'a mut [f32],
}

impl Sums<'_> {
    /// What they hold now.
    pub(super) fn past(&self) -> Past<'_> {
        Past { s: self.s, z: self.z }
    }

    /// `s += Σ left rightᵀ` over tokens, with `left [tokens, width]` and `right [tokens, _]`.
    pub(super) fn add_outer(&mut self, simd: Simd, width: usize, left: &[f32], right: &[f32]) {
        let sizes = [width, left.len() / width, self.s.len() / width];
        product::add_outer(simd, sizes, left, right, self.s);
    }

    /// `z += Σ weight · features` over tokens; a single weight counts for all of them.
    pub(super) fn add_features(&mut self, simd: Simd, weights: &[f32], features: &[f32]) {
        product::add_weighted(simd, weights, features, self.z);
    }

    /// Adds what `self` holds to `total`, and leaves here what `total` was before.
    pub(super) fn pass(&mut self, total: &mut Sums) {
        let own = self.s.iter_mut().chain(self.z.iter_mut());
        for (own, total) in own.zip(total.s.iter_mut().chain(total.z.iter_mut())) {
            let before = *total;
            *total += *own;
            *own = before;
        }
    }
}
