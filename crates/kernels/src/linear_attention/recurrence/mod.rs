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
//! Tokens follow each other, so heads are what threads share; time grows with the length. Calls of [`LEAST`] tokens or more go
//! in chunks (`chunks.rs`), shorter ones token by token (`tokens.rs`), to the bits of calls of one token each.

mod backward;
mod chunks;
mod tokens;

use std::ops::Range;

use tokens::{Backward, Forward};

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

/// Tokens from which on chunks pay: fewer are one chunk and a part.
const LEAST: usize = 64;

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
            match shape.keys < LEAST {
                true => self.simd.run(Forward { head, state, out }),
                false => chunks::forward(self.simd, &head, state, out),
            }
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
            let head = Head::new(self, inputs, index);
            let start = &state[index * per_head..][..per_head];
            let d_out = &d_out[index * of_head..][..of_head];
            let [q, k, v, decay, beta, state] = own;
            let d = Gradients { q, k, v, decay, beta, state };
            match self.shape.keys < LEAST {
                true => self.simd.run(Backward { head, start, d_out, d }),
                false => backward::backward(self.simd, &head, start, d_out, d),
            }
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

    /// Decays of a token: none, one, or one for each channel of a key.
    fn gates(&self) -> usize {
        self.decay.len() / self.shape.keys.max(1)
    }

    /// Where the rows of a query head's tokens lie in tensors of the given width.
    fn rows(&self, member: usize, tokens: &Range<usize>, width: usize) -> Range<usize> {
        let first = member * self.shape.queries;
        (first + tokens.start) * width..(first + tokens.end) * width
    }
}

/// Where the gradients of a head go; that of its state is, at first, of the state after all tokens.
struct Gradients<'a> {
    q: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a mut [f32],
    decay: &'a mut [f32],
    beta: &'a mut [f32],
    state: &'a mut [f32],
}
