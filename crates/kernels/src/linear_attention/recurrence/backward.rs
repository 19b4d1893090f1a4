//! The backward pass of a recurrence in chunks; the letters are those of `chunks.rs`. A first walk forms the state before every
//! chunk; a second goes back over the chunks with the gradient of the state.

use std::ops::Range;

use super::{
    Gradients, Head,
    chunks::{Formed, Loop, cuts, lower},
};
use crate::{
    Simd,
    linear_attention::product::{add_outer, add_product_transposed, product},
    simd::{matmul::Accumulate, rows::DotRows},
    tile::TILE,
};

/// All gradients of a head: forward over its chunks for the states before each, and back again.
pub(super) fn backward(simd: Simd, head: &Head, start: &[f32], d_out: &[f32], mut d: Gradients) {
    let cuts = cuts(head);
    let mut formed = Formed::new(head);
    let mut states = Vec::with_capacity(cuts.len() * start.len());
    let mut state = start.to_vec();
    for tokens in &cuts {
        states.extend_from_slice(&state);
        formed.chunk(simd, head, tokens, &mut state);
        formed.absorb(simd, head, tokens, &mut state);
    }
    let mut back = Back::new(head);
    let mut found = Vec::with_capacity(start.len());
    for (tokens, before) in cuts.iter().zip(states.chunks_exact(start.len())).rev() {
        found.clear();
        found.extend_from_slice(before);
        formed.chunk(simd, head, tokens, &mut found);
        back.chunk(simd, head, &mut formed, tokens, [&found, &state], d_out, &mut d);
        state.copy_from_slice(before);
    }
}

/// Gradients of a chunk before they go to their places.
struct Back {
    /// Of `q̃` of one query head, of `k̃`, `k̂` and `u`.
    queries: Vec<f32>,
    keys: Vec<f32>,
    asked: Vec<f32>,
    written: Vec<f32>,
    /// Of `v − k̂ S̃`, with the sign turned.
    minus: Vec<f32>,
    tile: Vec<f32>,
    /// Of `b`, `[tokens, head_dim]`.
    sums: Vec<f32>,
    transposed: Vec<f32>,
}

impl Back {
    fn new(head: &Head) -> Self {
        let widest = head.shape.head_dim.max(head.shape.value_dim);
        let [queries, keys, asked, written, minus, tile, sums] = [const { Vec::new() }; 7];
        let transposed = vec![0.0; widest * TILE];
        Self { queries, keys, asked, written, minus, tile, sums, transposed }
    }

    /// The gradients of a chunk that `found` this state and left the one `after`; that of the state goes from after to before.
    #[expect(clippy::too_many_arguments, reason = "what a chunk is made of and where it goes")]
    fn chunk(
        &mut self,
        simd: Simd,
        head: &Head,
        formed: &mut Formed,
        tokens: &Range<usize>,
        [found, after]: [&[f32]; 2],
        d_out: &[f32],
        d: &mut Gradients,
    ) {
        let (dim, width, count) = (head.shape.head_dim, head.shape.value_dim, tokens.len());
        let gates = head.gates();
        let dots = |a: &[f32], b: &[f32]| -> Vec<f32> {
            let mut dots = vec![0.0; dim];
            simd.run(DotRows { a, b, width, dots: &mut dots });
            dots
        };
        let mut along = if gates > 0 { dots(after, d.state) } else { Vec::new() };
        formed.fade(simd, count, width, d.state);
        self.clear(count, dim, width);
        let Self { queries, keys, asked, written, minus, tile, sums, transposed } = self;
        let old = Accumulate::Overwrite;
        product(simd, [count, dim, width], &formed.keys, d.state, written, old);
        let u = formed.written(head, tokens);
        add_product_transposed(simd, [count, width, dim], u, d.state, keys, transposed);
        for member in 0..head.shape.group() {
            formed.ask(simd, head, member, tokens);
            let u = formed.written(head, tokens);
            let d_out = &d_out[head.rows(member, tokens, width)];
            tile.fill(0.0);
            add_product_transposed(simd, [count, width, count], d_out, u, tile, transposed);
            lower(tile, count, 1);
            queries.fill(0.0);
            add_product_transposed(simd, [count, width, dim], d_out, found, queries, transposed);
            product(simd, [count, count, dim], tile, &formed.keys, queries, Accumulate::Add);
            add_outer(simd, [count, count, dim], tile, &formed.queries, keys);
            add_outer(simd, [count, count, width], &formed.tile, d_out, written);
            add_outer(simd, [dim, count, width], &formed.queries, d_out, d.state);
            let d_q = &mut d.q[head.rows(member, tokens, dim)];
            let (scale, grown, q) = (head.scale, &formed.grown, &formed.queries);
            simd.run(Loop(|| {
                d_q.iter_mut().zip(&*queries).for_each(|(to, d)| *to = scale * d);
                d_q.iter_mut().zip(grown).for_each(|(to, grown)| *to *= grown);
                let each = sums.iter_mut().zip(q.iter().zip(&*queries));
                each.for_each(|(sum, (q, d))| *sum += q * d);
            }));
        }
        if let Some(beta) = head.beta {
            let beta = &beta[tokens.clone()];
            let d_beta = &mut d.beta[tokens.clone()];
            let (pairs, change) = (&formed.pairs, &formed.change);
            // Row after row from the last on: what is written is subtracted from later rows.
            simd.run(Loop(|| {
                for t in (0..count).rev() {
                    let (own, later) = written[t * width..].split_at_mut(width);
                    for (i, d) in later.chunks_exact(width).enumerate() {
                        let pair = pairs[(t + 1 + i) * count + t];
                        own.iter_mut().zip(d).for_each(|(own, d)| *own -= pair * d);
                    }
                    let w = &change[t * width..][..width];
                    d_beta[t] = own.iter().zip(w).map(|(d, w)| d * w).sum();
                    own.iter_mut().for_each(|d| *d *= beta[t]);
                }
                minus.iter_mut().zip(&*written).for_each(|(minus, d)| *minus = -d);
            }));
            let u = formed.written(head, tokens);
            tile.fill(0.0);
            add_product_transposed(simd, [count, width, count], minus, u, tile, transposed);
            lower(tile, count, 0);
            add_product_transposed(simd, [count, width, dim], minus, found, asked, transposed);
            product(simd, [count, count, dim], tile, &formed.keys, asked, Accumulate::Add);
            add_outer(simd, [count, count, dim], tile, &formed.asked, keys);
            add_outer(simd, [dim, count, width], &formed.asked, minus, d.state);
        }
        d.v[tokens.start * width..tokens.end * width].copy_from_slice(written);
        let d_k = &mut d.k[tokens.start * dim..tokens.end * dim];
        d_k.copy_from_slice(keys);
        if head.beta.is_some() && gates == 0 {
            d_k.iter_mut().zip(&*asked).for_each(|(to, d)| *to += d);
        }
        if gates == 0 {
            return;
        }
        let (k, grown) = (&formed.keys, &formed.grown);
        simd.run(Loop(|| {
            d_k.iter_mut().zip(grown).for_each(|(to, grown)| *to /= grown);
            let each = sums.iter_mut().zip(k.iter().zip(&*keys));
            each.for_each(|(sum, (k, d))| *sum -= k * d);
        }));
        if head.beta.is_some() {
            let k = &formed.asked;
            simd.run(Loop(|| {
                let each = d_k.iter_mut().zip(asked.iter().zip(grown));
                each.for_each(|(to, (d, grown))| *to += d * grown);
                let each = sums.iter_mut().zip(k.iter().zip(&*asked));
                each.for_each(|(sum, (k, d))| *sum += k * d);
            }));
        }
        for token in tokens.clone().skip(1).rev() {
            let own = &sums[(token - tokens.start) * dim..][..dim];
            along.iter_mut().zip(own).for_each(|(along, d)| *along += d);
            let d_decay = &mut d.decay[token * gates..][..gates];
            match d_decay {
                [one] => *one += along.iter().sum::<f32>(),
                each => each.iter_mut().zip(&along).for_each(|(d, along)| *d += along),
            }
        }
        let first = &head.decay[tokens.start * gates..][..gates];
        let d_decay = &mut d.decay[tokens.start * gates..][..gates];
        for (c, along) in dots(found, d.state).into_iter().enumerate() {
            d_decay[c % gates] += along;
        }
        for (c, row) in d.state.chunks_exact_mut(width).enumerate() {
            let remains = first[c % gates].exp();
            row.iter_mut().for_each(|d| *d *= remains);
        }
    }

    /// Zeros for a chunk.
    fn clear(&mut self, count: usize, dim: usize, width: usize) {
        let sizes = [
            (&mut self.queries, dim),
            (&mut self.keys, dim),
            (&mut self.asked, dim),
            (&mut self.sums, dim),
            (&mut self.written, width),
            (&mut self.minus, width),
            (&mut self.tile, count),
        ];
        for (buffer, width) in sizes {
            buffer.clear();
            buffer.resize(count * width, 0.0);
        }
    }
}
