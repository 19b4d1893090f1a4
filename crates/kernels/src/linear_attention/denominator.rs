//! The denominators of linear attention by themselves, `φ(q_i)·Z_i` with `Z_i` the sum of the features of all keys that query
//! `i` sees, and their gradients. A sum is carried from key to key, so a head costs its features' length and no products.

use pulp::{Simd as Vectors, WithSimd};

use super::LinearAttention;
use crate::{parallel, simd::rows::dot};

/// Tokens whose features are added up before they join the sum: long sums lose little to rounding so.
const BLOCK: usize = 64;

/// Features of queries, `[batch, heads, queries, head_dim]`, and of keys.
pub(super) struct Denominator<'a> {
    pub(super) linear: &'a LinearAttention<'a>,
    pub(super) fq: &'a [f32],
    pub(super) fk: &'a [f32],
}

impl Denominator<'_> {
    /// Of each row, `[batch, heads, queries]`.
    pub(super) fn forward(&self, sums: &mut [f32]) {
        let rows = self.linear.shape.group() * self.linear.shape.queries;
        if rows == 0 {
            return;
        }
        let tasks = sums.chunks_exact_mut(rows).enumerate().collect();
        parallel::run(tasks, |(kv_head, sums): (usize, &mut [f32]), _| {
            self.linear.simd.run(Forward { head: self.head(kv_head), sums });
        });
    }

    /// Adds to the gradients of both features what comes from those of the denominators.
    pub(super) fn backward(&self, d_sums: &[f32], d_q: &mut [f32], d_k: &mut [f32]) {
        let shape = &self.linear.shape;
        let (rows, dim) = (shape.group() * shape.queries, shape.head_dim);
        if rows == 0 || shape.keys == 0 {
            return;
        }
        let d_keys = d_k.chunks_exact_mut(shape.keys * dim);
        let made = d_q.chunks_exact_mut(rows * dim).zip(d_keys);
        let tasks: Vec<_> = d_sums.chunks_exact(rows).zip(made).enumerate().collect();
        parallel::run(tasks, |(kv_head, (d_sums, (d_q, d_k))), _| {
            self.linear.simd.run(Backward { head: self.head(kv_head), d_sums, d_q, d_k });
        });
    }

    fn head(&self, kv_head: usize) -> Head<'_> {
        let shape = &self.linear.shape;
        let dim = shape.head_dim;
        let (queries, keys) = (shape.group() * shape.queries * dim, shape.keys * dim);
        Head {
            dim,
            queries: shape.queries,
            causal: self.linear.causal,
            fq: &self.fq[kv_head * queries..][..queries],
            fk: &self.fk[kv_head * keys..][..self.linear.keys_of(kv_head) * dim],
        }
    }
}

/// One key head and the query heads that read it.
#[derive(Clone, Copy)]
struct Head<'a> {
    dim: usize,
    queries: usize,
    causal: bool,
    /// Of each query head, `[queries, dim]`.
    fq: &'a [f32],
    /// Without padding, `[keys, dim]`.
    fk: &'a [f32],
}

impl<'a> Head<'a> {
    fn key(&self, token: usize) -> Option<&'a [f32]> {
        self.fk.chunks_exact(self.dim).nth(token)
    }

    /// Rows of all query heads that belong to a token.
    fn rows(&self, token: usize) -> impl Iterator<Item = usize> {
        (token..self.fq.len() / self.dim).step_by(self.queries)
    }

    fn query(&self, row: usize) -> &'a [f32] {
        &self.fq[row * self.dim..][..self.dim]
    }
}

/// A sum of rows: of whole blocks, and of the block that is not full.
struct Sum {
    whole: Vec<f32>,
    block: Vec<f32>,
    count: usize,
}

impl Sum {
    fn new(dim: usize) -> Self {
        Self { whole: vec![0.0; dim], block: vec![0.0; dim], count: 0 }
    }

    #[inline(always)]
    fn add(&mut self, factor: f32, row: &[f32]) {
        add(&mut self.block, factor, row);
        self.count += 1;
        if self.count == BLOCK {
            add(&mut self.whole, 1.0, &self.block);
            self.block.fill(0.0);
            self.count = 0;
        }
    }

    #[inline(always)]
    fn dot<S: Vectors>(&self, s: S, row: &[f32]) -> f32 {
        dot(s, row, &self.whole) + dot(s, row, &self.block)
    }

    #[inline(always)]
    fn add_to(&self, to: &mut [f32], factor: f32) {
        let sums = self.whole.iter().zip(&self.block);
        to.iter_mut().zip(sums).for_each(|(to, (whole, block))| *to += factor * (whole + block));
    }
}

#[inline(always)]
fn add(to: &mut [f32], factor: f32, row: &[f32]) {
    to.iter_mut().zip(row).for_each(|(to, x)| *to += factor * x);
}

struct Forward<'a> {
    head: Head<'a>,
    sums: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(self, s: S) {
        let Self { head, sums } = self;
        let mut z = Sum::new(head.dim);
        if !head.causal {
            head.fk.chunks_exact(head.dim).for_each(|key| z.add(1.0, key));
        }
        for token in 0..head.queries {
            if let Some(key) = head.key(token).filter(|_| head.causal) {
                z.add(1.0, key);
            }
            for row in head.rows(token) {
                sums[row] = z.dot(s, head.query(row));
            }
        }
    }
}

struct Backward<'a> {
    head: Head<'a>,
    d_sums: &'a [f32],
    d_q: &'a mut [f32],
    d_k: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Vectors>(self, _: S) {
        let Self { head, d_sums, d_q, d_k } = self;
        let Head { dim, queries, causal, .. } = head;
        // `Z` forward over the tokens for queries, and the queries' own sum back over them for keys.
        let (mut z, mut u) = (Sum::new(dim), Sum::new(dim));
        if !causal {
            head.fk.chunks_exact(dim).for_each(|key| z.add(1.0, key));
        }
        for token in 0..queries {
            if let Some(key) = head.key(token).filter(|_| causal) {
                z.add(1.0, key);
            }
            for row in head.rows(token) {
                z.add_to(&mut d_q[row * dim..][..dim], d_sums[row]);
            }
        }
        for token in (0..queries).rev() {
            for row in head.rows(token) {
                u.add(d_sums[row], head.query(row));
            }
            if causal && head.key(token).is_some() {
                u.add_to(&mut d_k[token * dim..][..dim], 1.0);
            }
        }
        if !causal {
            let keys = d_k.chunks_exact_mut(dim).take(head.fk.len() / dim);
            keys.for_each(|d_key| u.add_to(d_key, 1.0));
        }
    }
}
