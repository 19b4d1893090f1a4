//! A recurrence token by token, as calls of few tokens are computed, such as those of decoding. The backward pass keeps the
//! state before every block of tokens and forms the others again.

use pulp::{Simd as Vectors, WithSimd};

use super::{Gradients, Head};

/// Tokens between states that the backward pass keeps.
const BLOCK: usize = 32;

impl Head<'_> {
    /// Forgets, then writes a token; `u` is what was written, and `held` what the key held.
    #[inline(always)]
    fn take(&self, token: usize, state: &mut [f32], held: &mut [f32], u: &mut [f32]) {
        let width = self.shape.value_dim;
        let (k, v) = (self.key(token), self.value(token));
        held.fill(0.0);
        for (i, (row, k)) in state.chunks_exact_mut(width).zip(k).enumerate() {
            if !self.decay.is_empty() {
                let remains = self.remains(token, i);
                row.iter_mut().for_each(|s| *s *= remains);
            }
            if self.beta.is_some() {
                held.iter_mut().zip(row).for_each(|(held, s)| *held += k * *s);
            }
        }
        match self.beta {
            None => u.copy_from_slice(v),
            Some(beta) => {
                let beta = beta[token];
                for ((u, v), held) in u.iter_mut().zip(v).zip(held) {
                    *u = beta * (v - *held);
                }
            }
        }
        for (row, k) in state.chunks_exact_mut(width).zip(k) {
            row.iter_mut().zip(&*u).for_each(|(s, u)| *s += k * u);
        }
    }
}

pub(super) struct Forward<'a> {
    pub(super) head: Head<'a>,
    pub(super) state: &'a mut [f32],
    /// Of each query head, `[tokens, value_dim]`.
    pub(super) out: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(self, _: S) {
        let Self { head, state, out } = self;
        let (dim, width) = (head.shape.head_dim, head.shape.value_dim);
        let (mut held, mut u) = (vec![0.0; width], vec![0.0; width]);
        for token in 0..head.shape.keys {
            head.take(token, state, &mut held, &mut u);
            for member in 0..head.shape.group() {
                let out = &mut out[head.row(member, token, width)];
                let q = &head.q[head.row(member, token, dim)];
                for (row, q) in state.chunks_exact(width).zip(q) {
                    let q = head.scale * q;
                    out.iter_mut().zip(row).for_each(|(out, s)| *out += q * s);
                }
            }
        }
    }
}

pub(super) struct Backward<'a> {
    pub(super) head: Head<'a>,
    pub(super) start: &'a [f32],
    pub(super) d_out: &'a [f32],
    /// That of the state is of the one after the tokens that are left, in the end before all.
    pub(super) d: Gradients<'a>,
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(mut self, _: S) {
        let (tokens, size) = (self.head.shape.keys, self.start.len());
        let width = self.head.shape.value_dim;
        let (mut held, mut u) = (vec![0.0; width], vec![0.0; width]);
        // The state before each block, then before each token of a block.
        let mut kept = Vec::with_capacity(tokens.div_ceil(BLOCK) * size);
        let mut state = self.start.to_vec();
        for token in 0..tokens {
            if token % BLOCK == 0 {
                kept.extend_from_slice(&state);
            }
            self.head.take(token, &mut state, &mut held, &mut u);
        }
        let mut before = vec![0.0; BLOCK * size];
        for (block, kept) in kept.chunks_exact(size).enumerate().rev() {
            let first = block * BLOCK;
            let last = (first + BLOCK).min(tokens);
            state.copy_from_slice(kept);
            for token in first..last {
                before[(token - first) * size..][..size].copy_from_slice(&state);
                self.head.take(token, &mut state, &mut held, &mut u);
            }
            for token in (first..last).rev() {
                let before = &before[(token - first) * size..][..size];
                state.copy_from_slice(before);
                self.head.take(token, &mut state, &mut held, &mut u);
                self.token(token, before, &state, &held, &u);
            }
        }
    }
}

impl Backward<'_> {
    /// The gradients of one token, from the state before it and after.
    #[inline(always)]
    fn token(&mut self, token: usize, before: &[f32], after: &[f32], held: &[f32], u: &[f32]) {
        let Self { head, d_out, d, .. } = self;
        let Gradients { q: d_q, k: d_k, v: d_v, decay: d_decay, beta: d_beta, state: d_state } = d;
        let (dim, width, scale) = (head.shape.head_dim, head.shape.value_dim, head.scale);
        for member in 0..head.shape.group() {
            let d_out = &d_out[head.row(member, token, width)];
            let at = head.row(member, token, dim);
            let rows = after.chunks_exact(width).zip(d_state.chunks_exact_mut(width));
            for ((s, d_s), (q, d_q)) in rows.zip(head.q[at.clone()].iter().zip(&mut d_q[at])) {
                *d_q = scale * s.iter().zip(d_out).map(|(s, d)| s * d).sum::<f32>();
                let q = scale * q;
                d_s.iter_mut().zip(d_out).for_each(|(d_s, d)| *d_s += q * d);
            }
        }
        let k = head.key(token);
        let d_k = &mut d_k[token * dim..][..dim];
        let d_v = &mut d_v[token * width..][..width];
        // d_u = d_Sᵀ k, kept where the gradient of v goes.
        d_v.fill(0.0);
        for ((d_s, k), d_k) in d_state.chunks_exact(width).zip(k).zip(&mut *d_k) {
            *d_k = d_s.iter().zip(u).map(|(d, u)| d * u).sum();
            d_v.iter_mut().zip(d_s).for_each(|(d_u, d)| *d_u += k * d);
        }
        if let Some(beta) = head.beta {
            let beta = beta[token];
            let change = head.value(token).iter().zip(held).map(|(v, held)| v - held);
            d_beta[token] = d_v.iter().zip(change).map(|(d, change)| d * change).sum();
            d_v.iter_mut().for_each(|d| *d *= beta);
            for (i, d_k) in d_k.iter_mut().enumerate() {
                let remains = head.remains(token, i);
                let row = &before[i * width..][..width];
                *d_k -= remains * row.iter().zip(&*d_v).map(|(s, d)| s * d).sum::<f32>();
            }
            for (d_s, k) in d_state.chunks_exact_mut(width).zip(k) {
                d_s.iter_mut().zip(&*d_v).for_each(|(d_s, d)| *d_s -= k * d);
            }
        }
        if head.decay.is_empty() {
            return;
        }
        let gates = d_decay.len() / head.shape.keys;
        for (i, d_s) in d_state.chunks_exact_mut(width).enumerate() {
            let remains = head.remains(token, i);
            let row = &before[i * width..][..width];
            let along: f32 = row.iter().zip(&*d_s).map(|(s, d)| s * d).sum();
            d_decay[token * gates + if gates == 1 { 0 } else { i }] += remains * along;
            d_s.iter_mut().for_each(|d| *d *= remains);
        }
    }
}
