//! The backward pass over gathered keys: a task has some queries of one head, whose gradients go where they belong at once;
//! those of keys and values are summed apart and added to the head's when the task's turn has come.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use super::{layers::Layer, layout::Layout};
use crate::{
    attention::{
        Gradients,
        backward::{
            Backward, DENSE_CHUNKS, mean_of_rows,
            pass::{keys_backward, queries_backward},
            step::Step,
        },
        indices::Indices,
        learned::{Learned, Totals},
    },
    memory::scratch::Scratch,
    parallel::{self, InTurn},
    simd::rows::Transpose,
    tile::{TILE, chunks_per_head},
};

/// Some queries of one head, and where the gradients go.
struct Chunk<'s, 'o> {
    batch: usize,
    head: usize,
    tiles: Range<usize>,
    /// When the chunk may add to the gradients of its key head: after those before it.
    turn: usize,
    /// `[queries, head_dim]` of the head; chunks write at their own queries.
    d_q: &'s Mutex<&'o mut [f32]>,
    /// `[keys, head_dim]` and `[keys, value_dim]` of the key head.
    d_k: &'s InTurn<'o>,
    d_v: &'s InTurn<'o>,
    learned: &'s mut Learned,
}

impl Backward<'_> {
    /// Adds the gradients of what a part shows.
    pub(crate) fn gathered(&self, layer: &Layer, gradients: &mut Gradients, totals: &mut Totals) {
        let shape = &self.plan.attention.shape;
        let heads = shape.batch * shape.heads;
        let dense = self.learns_dense();
        let chunks = if dense { DENSE_CHUNKS } else { chunks_per_head(heads) };
        let parts: Vec<Range<usize>> = layer.chunks(layer.len().div_ceil(chunks)).collect();
        let d_q = gradients.q.chunks_exact_mut(shape.queries * shape.head_dim);
        let d_q: Vec<Mutex<&mut [f32]>> = d_q.map(Mutex::new).collect();
        let d_k = gradients.k.chunks_exact_mut(shape.keys * shape.head_dim);
        let d_k: Vec<InTurn> = d_k.map(InTurn::new).collect();
        let d_v = gradients.v.chunks_exact_mut(shape.keys * shape.value_dim);
        let d_v: Vec<InTurn> = d_v.map(InTurn::new).collect();
        // As in tiles of neighbors: no more than one head's blocks of a dense bias at a time.
        let per_wave = if dense { 1 } else { heads };
        for wave in (0..heads).step_by(per_wave) {
            let mut learned: Vec<Learned> = Vec::new();
            learned.resize_with(per_wave * parts.len(), Learned::default);
            let mut chunks = Vec::with_capacity(learned.len());
            let mut slots = learned.iter_mut();
            for (part, tiles) in parts.iter().enumerate() {
                for (index, learned) in (wave..wave + per_wave).zip(&mut slots) {
                    let (batch, head) = (index / shape.heads, index % shape.heads);
                    let kv_head = batch * shape.kv_heads + shape.kv_head(head);
                    // In the order of the list: part by part, and in each the heads of a group; or head by head.
                    let turn = match dense {
                        true => head % shape.group() * parts.len() + part,
                        false => part * shape.group() + head % shape.group(),
                    };
                    let (d_q, d_k, d_v) = (&d_q[index], &d_k[kv_head], &d_v[kv_head]);
                    let tiles = tiles.clone();
                    chunks.push(Chunk { batch, head, tiles, turn, d_q, d_k, d_v, learned });
                }
            }
            parallel::run(chunks, |chunk, scratch| self.gathered_chunk(layer, chunk, scratch));
            learned.iter().for_each(|learned| totals.add(learned));
        }
    }

    fn gathered_chunk(&self, layer: &Layer, chunk: Chunk, scratch: &mut Scratch) {
        let attention = self.plan.attention;
        let (simd, shape) = (attention.simd, attention.shape);
        let (dim, value_dim) = (shape.head_dim, shape.value_dim);
        let Chunk { batch, head, tiles, turn, d_q, d_k, d_v, learned } = chunk;
        let list = layer.queries(tiles.clone());
        let (_keys, _values) =
            (InTurn::guard(std::slice::from_ref(d_k)), InTurn::guard(std::slice::from_ref(d_v)));
        let head = self.plan.head(batch, head);
        let (width, indices, all_keys) = (head.width(), Indices::List(list), 0..shape.keys);
        let learned = learned.head(&head, &indices, &all_keys);

        // What a task keeps for all its tiles, out of the way of what a step takes from the scratch.
        let mut copied = std::mem::take(&mut scratch.copied);
        let mut copied_keys = std::mem::take(&mut scratch.copied_keys);
        let mut prepared = std::mem::take(&mut scratch.queries);
        let mut relative = std::mem::take(&mut scratch.relative);
        let mut d_out = std::mem::take(&mut scratch.d_out);
        let mut lse = std::mem::take(&mut scratch.lse);
        let mut centers = std::mem::take(&mut scratch.centers);
        let mut key_rows = std::mem::take(&mut scratch.key_rows);
        let mut key_cols = std::mem::take(&mut scratch.key_cols);
        let mut values = std::mem::take(&mut scratch.values);
        let mut value_cols = std::mem::take(&mut scratch.value_cols);

        let rows = shape.row_head(batch, head.head);
        let of_head = shape.out_head(batch, head.head);
        {
            let d_out_rows = indices.rows(&self.d_out[of_head.clone()], value_dim, &mut d_out);
            let out = indices.rows(&self.out[of_head], value_dim, &mut scratch.out);
            let mean = scratch.mean.sized(list.len());
            mean_of_rows(attention, d_out_rows, out, &mut scratch.rounded, mean);
        }
        let lse_rows = &*lse.values(list, &self.lse[rows.clone()]);
        let center_rows: &[f32] = match attention.focus {
            Some(focus) => centers.values(list, &focus.centers[rows]),
            None => &[],
        };
        let queries = head.queries(indices.clone(), &mut copied, &mut prepared, &mut relative);
        scratch.d_queries.zeroed(list.len() * width);
        scratch.d_relative.zeroed(self.plan.relative_keys.len() * list.len() * dim);
        scratch.d_keys_of_head.zeroed(shape.keys * dim);
        scratch.d_values_of_head.zeroed(shape.keys * value_dim);
        let mut touched = Touched::default();

        let whole = head.whole();
        let mut layout = Layout::new(shape.keys);
        let mut next = 0;
        for tile in tiles {
            let tile_rows = layer.queries(tile..tile + 1);
            let first = next;
            next += tile_rows.len();
            layout.lay(&*layer.pattern, &whole, tile_rows);
            for (list, shown, outline) in layout.tiles() {
                touched.add(list);
                let list = Indices::List(list);
                let raw = list.rows(head.k, dim, &mut copied_keys);
                let (key_rows, key_cols) = (&mut key_rows, &mut key_cols);
                let keys =
                    head.prepare_keys(list.clone(), Some(shown), raw, &queries, key_rows, key_cols);
                let values = list.rows(head.v, value_dim, &mut values);
                let value_cols = value_cols.sized(value_dim * TILE);
                simd.run(Transpose { from: values, width: value_dim, to: value_cols });
                scratch.d_keys.zeroed(TILE * width);
                scratch.d_values.zeroed(TILE * value_dim);
                let step = Step {
                    queries: queries.from(first),
                    keys: &keys,
                    value_cols,
                    d_out: &d_out[first * value_dim..],
                    lse: &lse_rows[first..],
                    centers: center_rows.get(first..).unwrap_or_default(),
                    outline,
                };
                step.run(&head, &all_keys, learned, scratch);
                let Scratch {
                    d_keys, d_values, d_raw, row, d_keys_of_head, d_values_of_head, ..
                } = &mut *scratch;
                if head.preparation.keys_are_raw() {
                    list.add_rows(&d_keys[..list.len() * dim], dim, d_keys_of_head);
                } else {
                    let d_raw = d_raw.zeroed(list.len() * dim);
                    keys_backward(&head, learned, list.clone(), raw, d_keys, d_raw, row);
                    list.add_rows(d_raw, dim, d_keys_of_head);
                }
                let d_values = &d_values[..list.len() * value_dim];
                list.add_rows(d_values, value_dim, d_values_of_head);
            }
        }

        let Scratch { d_queries, d_relative, d_raw, row, .. } = &mut *scratch;
        let d_raw = d_raw.zeroed(list.len() * dim);
        let raw = indices.rows(head.q, dim, &mut copied_keys);
        queries_backward(&head, learned, indices.clone(), raw, d_queries, d_relative, d_raw, row);
        indices.add_rows(d_raw, dim, &mut d_q.lock().unwrap_or_else(PoisonError::into_inner));
        let (of_keys, of_values) = (touched.range(dim), touched.range(value_dim));
        d_k.at(turn, |d_k| add(&mut d_k[of_keys.clone()], &scratch.d_keys_of_head[of_keys]));
        d_v.at(turn, |d_v| add(&mut d_v[of_values.clone()], &scratch.d_values_of_head[of_values]));

        (scratch.copied, scratch.copied_keys) = (copied, copied_keys);
        (scratch.queries, scratch.relative, scratch.d_out) = (prepared, relative, d_out);
        (scratch.lse, scratch.centers) = (lse, centers);
        (scratch.key_rows, scratch.key_cols) = (key_rows, key_cols);
        (scratch.values, scratch.value_cols) = (values, value_cols);
    }
}

fn add(sums: &mut [f32], part: &[f32]) {
    sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

/// From the first to the last key that got a gradient.
#[derive(Default)]
struct Touched(Option<Range<usize>>);

impl Touched {
    fn add(&mut self, keys: &[u32]) {
        for key in keys {
            let key = *key as usize;
            let range = self.0.get_or_insert(key..key + 1);
            *range = range.start.min(key)..range.end.max(key + 1);
        }
    }

    /// Where they lie in a matrix.
    fn range(&self, width: usize) -> Range<usize> {
        self.0.as_ref().map_or(0..0, |keys| keys.start * width..keys.end * width)
    }
}
