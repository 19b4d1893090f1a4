//! Linear attention whose state forgets and overwrites: retention, gated linear attention and the delta rule, as ONNX's
//! operator `LinearAttention` defines them. With the state `S [head_dim, value_dim]` of a key head, token by token:
//!
//! ```text
//! forget   A = exp(decay) · S                      one decay for the token, or one for each channel of its key
//! write    S = A + k uᵀ,   u = v   or by the delta rule   u = beta · (v − Aᵀ k)
//! read     out = scale · Sᵀ q
//! ```
//! Retention: Sun et al. 2023, <https://arxiv.org/abs/2307.08621>, the same decay for all tokens of a head. Gated linear attention:
//! Yang et al. 2023, <https://arxiv.org/abs/2312.06635>. The delta rule: Yang et al. 2024, <https://arxiv.org/abs/2406.06484>, and gated,
//! <https://arxiv.org/abs/2412.06464>. Feature maps and norms of queries and keys are the caller's.
//!
//! Tokens follow each other, so heads are what threads share; time grows with the length. The backward pass keeps the
//! state before every block of tokens and forms the others again.

use pulp::{Simd as Vectors, WithSimd};

use crate::{
    Error, Simd,
    attention::{Inputs, Shape},
    error::{expect_len, expect_range},
    parallel,
};

/// One call: every choice, checked when it is used.
#[derive(Clone, Copy, Debug)]
pub struct Recurrence<'a> {
    /// The sizes; as many keys as queries, which are the same tokens.
    pub shape: Shape,
    /// Logarithms of what remains of the state: `[batch, kv_heads, length]`, or with a last size `head_dim` for each
    /// channel of a key; nothing is forgotten without them.
    pub decay: Option<&'a [f32]>,
    /// How much of what a key held is overwritten, `[batch, kv_heads, length]`: the delta rule. Without it values are added.
    pub beta: Option<&'a [f32]>,
    /// Factor of the output; `1/√head_dim` unless set.
    pub scale: f32,
    /// The instruction set to run on; [`Simd::detect`] unless a test or benchmark forces another.
    pub simd: Simd,
}

/// What the backward pass makes.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrenceGradients {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys.
    pub k: Vec<f32>,
    /// Of the values.
    pub v: Vec<f32>,
    /// Of the decays, as many as there are.
    pub decay: Vec<f32>,
    /// Of the betas, as many as there are.
    pub beta: Vec<f32>,
    /// Of the state before the first token.
    pub state: Vec<f32>,
}

/// Tokens between states that the backward pass keeps.
const BLOCK: usize = 32;

impl<'a> Recurrence<'a> {
    /// A state that only adds; the other choices are fields to set.
    pub fn new(shape: Shape) -> Self {
        let scale = 1.0 / (shape.head_dim as f32).sqrt();
        Self { shape, decay: None, beta: None, scale, simd: Simd::detect() }
    }

    /// Length of a state, `[batch, kv_heads, head_dim, value_dim]`.
    pub fn state_len(&self) -> usize {
        let Shape { batch, kv_heads, head_dim, value_dim, .. } = self.shape;
        batch * kv_heads * head_dim * value_dim
    }

    /// Checks the choices; every entry point does so first.
    pub fn check(&self) -> Result<(), Error> {
        self.shape.check()?;
        let Shape { batch, kv_heads, queries, keys, head_dim, value_dim, .. } = self.shape;
        if queries != keys {
            return Err(Error::Combination {
                what: "a recurrence with unequal numbers of queries and keys",
                reason: "both count the same tokens; earlier tokens are in the state",
            });
        }
        let state = [batch, kv_heads, head_dim, value_dim, size_of::<f32>()];
        let bytes = state.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::TooLarge);
        }
        expect_range("scale", self.scale, self.scale.is_finite(), "any finite number")?;
        let tokens = batch * kv_heads * keys;
        if let Some(decay) = self.decay
            && decay.len() != tokens
        {
            expect_len("decay", decay.len(), tokens * head_dim)?;
        }
        self.beta.map_or(Ok(()), |beta| expect_len("beta", beta.len(), tokens))
    }

    fn check_inputs(&self, state: &[f32], inputs: &Inputs) -> Result<(), Error> {
        self.check()?;
        expect_len("state", state.len(), self.state_len())?;
        expect_len("q", inputs.q.len(), self.shape.q_len())?;
        expect_len("k", inputs.k.len(), self.shape.k_len())?;
        expect_len("v", inputs.v.len(), self.shape.v_len())
    }

    /// The next tokens' outputs, `[batch, heads, length, value_dim]`; `state` holds the tokens before and takes in these.
    /// One call over all tokens and calls token by token give the same.
    pub fn forward(&self, state: &mut [f32], inputs: &Inputs) -> Result<Vec<f32>, Error> {
        self.check_inputs(state, inputs)?;
        let mut out = vec![0.0; self.shape.out_len()];
        if out.is_empty() {
            return Ok(out);
        }
        let shape = &self.shape;
        let per_head = shape.group() * shape.queries * shape.value_dim;
        let states = state.chunks_exact_mut(shape.head_dim * shape.value_dim);
        let tasks = states.zip(out.chunks_exact_mut(per_head)).enumerate().collect();
        parallel::run(tasks, |(index, (state, out)): (usize, (&mut [f32], &mut [f32])), _| {
            let head = Head::new(self, inputs, index);
            self.simd.run(Forward { head, state, out });
        });
        Ok(out)
    }

    /// The gradients of a scalar whose gradient with respect to the output of [`Self::forward`] from the same `state`, the one
    /// before the tokens, is `d_out`.
    pub fn backward(
        &self,
        state: &[f32],
        inputs: &Inputs,
        d_out: &[f32],
    ) -> Result<RecurrenceGradients, Error> {
        self.check_inputs(state, inputs)?;
        expect_len("d_out", d_out.len(), self.shape.out_len())?;
        let zeros = |len: usize| vec![0.0; len];
        let mut made = RecurrenceGradients {
            q: zeros(self.shape.q_len()),
            k: zeros(self.shape.k_len()),
            v: zeros(self.shape.v_len()),
            decay: zeros(self.decay.map_or(0, <[f32]>::len)),
            beta: zeros(self.beta.map_or(0, <[f32]>::len)),
            state: zeros(state.len()),
        };
        let mut rest = [
            &mut made.q,
            &mut made.k,
            &mut made.v,
            &mut made.decay,
            &mut made.beta,
            &mut made.state,
        ]
        .map(|values| &mut values[..]);
        let heads = self.shape.batch * self.shape.kv_heads;
        let lengths = rest.each_ref().map(|values| values.len() / heads);
        let mut tasks = Vec::with_capacity(heads);
        for index in 0..heads {
            let mut lengths = lengths.iter();
            let own = rest.each_mut().map(|values| {
                let length = lengths.next().copied().unwrap_or_default();
                values.split_off_mut(..length).unwrap_or_default()
            });
            tasks.push((index, own));
        }
        let per_head = self.shape.head_dim * self.shape.value_dim;
        let of_head = self.shape.group() * self.shape.queries * self.shape.value_dim;
        parallel::run(tasks, |(index, own), _| {
            let [d_q, d_k, d_v, d_decay, d_beta, d_state] = own;
            self.simd.run(Backward {
                head: Head::new(self, inputs, index),
                start: &state[index * per_head..][..per_head],
                d_out: &d_out[index * of_head..][..of_head],
                d_q,
                d_k,
                d_v,
                d_decay,
                d_beta,
                d_state,
            });
        });
        Ok(made)
    }
}

/// One key head and the query heads that read it.
struct Head<'a> {
    shape: Shape,
    scale: f32,
    /// Of each query head, `[tokens, head_dim]`.
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    /// `[tokens, 1 or head_dim]`, or nothing.
    decay: &'a [f32],
    beta: Option<&'a [f32]>,
}

impl<'a> Head<'a> {
    fn new(call: &Recurrence<'a>, inputs: &Inputs<'a>, index: usize) -> Self {
        let shape = call.shape;
        let tokens = shape.keys;
        let part = |values: &'a [f32], length: usize| &values[index * length..][..length];
        let heads = shape.batch * shape.kv_heads;
        Self {
            shape,
            scale: call.scale,
            q: part(inputs.q, shape.group() * tokens * shape.head_dim),
            k: part(inputs.k, tokens * shape.head_dim),
            v: part(inputs.v, tokens * shape.value_dim),
            decay: call.decay.map_or(&[], |decay| part(decay, decay.len() / heads)),
            beta: call.beta.map(|beta| part(beta, tokens)),
        }
    }

    fn key(&self, token: usize) -> &'a [f32] {
        &self.k[token * self.shape.head_dim..][..self.shape.head_dim]
    }

    fn value(&self, token: usize) -> &'a [f32] {
        &self.v[token * self.shape.value_dim..][..self.shape.value_dim]
    }

    /// Where the rows of a query head's token lie in tensors of the given width.
    fn row(&self, member: usize, token: usize, width: usize) -> std::ops::Range<usize> {
        let start = (member * self.shape.queries + token) * width;
        start..start + width
    }

    /// What remains of each row of the state.
    fn remains(&self, token: usize, row: usize) -> f32 {
        let width = self.decay.len() / self.shape.keys.max(1);
        match width {
            0 => 1.0,
            1 => self.decay[token].exp(),
            _ => self.decay[token * width + row].exp(),
        }
    }

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

struct Forward<'a> {
    head: Head<'a>,
    state: &'a mut [f32],
    /// Of each query head, `[tokens, value_dim]`.
    out: &'a mut [f32],
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

struct Backward<'a> {
    head: Head<'a>,
    start: &'a [f32],
    d_out: &'a [f32],
    d_q: &'a mut [f32],
    d_k: &'a mut [f32],
    d_v: &'a mut [f32],
    d_decay: &'a mut [f32],
    d_beta: &'a mut [f32],
    /// Of the state after the tokens that are left, in the end before all.
    d_state: &'a mut [f32],
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
        let Self { head, d_out, d_q, d_k, d_v, d_decay, d_beta, d_state, .. } = self;
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
