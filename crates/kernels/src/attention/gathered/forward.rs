//! The forward pass over gathered keys: the softmax of each query goes on from what earlier parts left.

use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{layers::Layer, layout::Layout};
use crate::{
    attention::{
        biases::Terms,
        forward::{Sums, Work, add_tile, finish},
        head::Head,
        indices::Indices,
        pattern::Tile,
        plan::Plan,
    },
    memory::scratch::Scratch,
    parallel,
    tile::{TILE, tiles_per_task},
};

/// Some queries of one head, in the order of their part.
struct Chunk<'r, 'm> {
    batch: usize,
    head: usize,
    tiles: Range<usize>,
    results: &'r Mutex<Results<'m>>,
}

/// The outputs and log-sum-exps of a head, which its chunks read and write at their own queries.
struct Results<'m> {
    out: &'m mut [f32],
    lse: &'m mut [f32],
}

fn lock<'l, 'm>(results: &'l Mutex<Results<'m>>) -> MutexGuard<'l, Results<'m>> {
    results.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds what a part shows to the outputs of a call.
pub(crate) fn forward(plan: &Plan, layer: &Layer, out: &mut [f32], lse: &mut [f32]) {
    let shape = &plan.attention.shape;
    let heads = shape.batch * shape.heads;
    let of_heads = out
        .chunks_exact_mut(shape.queries * shape.value_dim)
        .zip(lse.chunks_exact_mut(shape.queries));
    let results: Vec<Mutex<Results>> =
        of_heads.map(|(out, lse)| Mutex::new(Results { out, lse })).collect();
    let mut chunks = Vec::new();
    for tiles in layer.chunks(tiles_per_task(layer.len(), heads)) {
        for (index, results) in results.iter().enumerate() {
            let (batch, head) = (index / shape.heads, index % shape.heads);
            chunks.push(Chunk { batch, head, tiles: tiles.clone(), results });
        }
    }
    // As in tiles of neighbors, those that cost most under causal patterns come first.
    chunks.reverse();
    parallel::run(chunks, |chunk, scratch| {
        forward_chunk(&plan.head(chunk.batch, chunk.head), layer, &chunk, scratch);
    });
}

fn forward_chunk(head: &Head, layer: &Layer, chunk: &Chunk, scratch: &mut Scratch) {
    let attention = head.attention();
    let value_dim = attention.shape.value_dim;
    let Scratch { queries, relative, copied, copied_keys, key_rows, key_cols, values, .. } =
        scratch;
    let indices = Indices::List(layer.queries(chunk.tiles.clone()));
    let queries = head.queries(indices.clone(), copied, queries, relative);
    let mut work = Work {
        scores: scratch.scores.sized(TILE * TILE),
        factors: scratch.factors.sized(TILE * TILE),
        rescale: &mut scratch.rescale,
        terms: Terms { terms: &mut scratch.terms, entries: &mut scratch.entries },
    };
    let (max, sum) = (scratch.max.sized(indices.len()), scratch.sum.sized(indices.len()));
    let out = scratch.out.sized(indices.len() * value_dim);
    let lse = scratch.lse.sized(indices.len());
    {
        let results = lock(chunk.results);
        let rows = out.chunks_exact_mut(value_dim).zip(indices.iter());
        rows.for_each(|(to, row)| {
            to.copy_from_slice(&results.out[row * value_dim..][..value_dim]);
        });
        max.iter_mut().zip(indices.iter()).for_each(|(max, row)| *max = results.lse[row]);
    }
    // The softmax so far is its mean, of the weight e^lse; nothing was seen where that is 0.
    for (sum, max) in sum.iter_mut().zip(&*max) {
        *sum = if *max == f32::NEG_INFINITY { 0.0 } else { 1.0 };
    }
    let whole = head.whole();
    let mut layout = Layout::new(attention.shape.keys);
    let mut next = 0;
    for tile in chunk.tiles.clone() {
        let rows = layer.queries(tile..tile + 1);
        let first = next;
        next += rows.len();
        layout.lay(&*layer.pattern, &whole, rows);
        for (list, shown, outline) in layout.tiles() {
            let list = Indices::List(list);
            let raw = list.rows(head.k, attention.shape.head_dim, copied_keys);
            let values = list.rows(head.v, value_dim, values);
            let keys =
                head.prepare_keys(list.clone(), Some(shown), raw, &queries, key_rows, key_cols);
            let sums = Sums {
                max: &mut max[first..],
                sum: &mut sum[first..],
                out: &mut out[first * value_dim..],
            };
            add_tile(head, queries.from(first), &keys, values, &outline, sums, &mut work);
        }
    }
    finish(head, max, sum, out, lse);
    let mut results = lock(chunk.results);
    for (from, row) in out.chunks_exact(value_dim).zip(indices.iter()) {
        results.out[row * value_dim..][..value_dim].copy_from_slice(from);
    }
    lse.iter().zip(indices.iter()).for_each(|(lse, row)| results.lse[row] = *lse);
}

impl Head<'_> {
    /// All pairs of the head.
    pub(super) fn whole(&self) -> Tile {
        let shape = &self.attention().shape;
        self.tile(0..shape.queries, 0..shape.keys)
    }
}
