//! What calls borrow: tables, slopes and angles, made when they are asked for and kept as long as the supply.

use std::cell::{Cell, OnceCell};

use whatwhere_kernels::attention::{Angles, Bias, Relative, Shape};

/// The numbers of one call.
pub(crate) struct Supply {
    pub(crate) shape: Shape,
    /// One more than the last place.
    end: usize,
    pub(crate) seed: u64,
    tables: [OnceCell<Vec<f32>>; 4],
    taken: Cell<usize>,
    angles: OnceCell<Angles>,
}

impl Supply {
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let end = shape.queries.max(shape.keys);
        let (taken, angles) = (Cell::new(0), OnceCell::new());
        Self { shape, end, seed, tables: Default::default(), taken, angles }
    }

    /// Numbers to learn, drawn uniformly from (−1, 1).
    pub(crate) fn draw(&self, len: usize) -> &[f32] {
        // 0 to 3 are the inputs' streams.
        let stream = 4 + self.taken.get() as u64;
        self.keep(numbers(self.seed, stream, len))
    }

    /// Keeps numbers as long as the supply itself.
    pub(crate) fn keep(&self, values: Vec<f32>) -> &[f32] {
        let slot = self.taken.replace(self.taken.get() + 1);
        self.tables[slot].get_or_init(|| values)
    }

    /// Angles at every place of the call.
    pub(crate) fn angles(&self, frequencies: &[f64]) -> &Angles {
        self.angles.get_or_init(|| Angles::new(frequencies, 0..self.end, 1.0))
    }

    /// Vectors by clipped distance, one table for each head.
    pub(crate) fn vectors(&self, left: usize, right: usize) -> Relative<'_> {
        let Shape { heads, head_dim, .. } = self.shape;
        let table = self.draw(heads * (left + 1 + right) * head_dim);
        Relative { table, per_head: true, left, right }
    }

    /// Shaw's keys: vectors by distance, compared with the query.
    pub(crate) fn shaw_keys(&self, reach: usize) -> Bias<'_> {
        let scale = 1.0 / (self.shape.head_dim as f32).sqrt();
        Bias::Relative { vectors: self.vectors(reach, reach), query_bias: None, scale }
    }
}

/// Queries, keys, values and the gradient of the output, with variance 1 as after a norm.
pub(crate) struct Tensors {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) d_out: Vec<f32>,
}

impl Tensors {
    pub(crate) fn new(shape: &Shape, seed: u64) -> Self {
        let normal = |stream, len| {
            let mut values = numbers(seed, stream, len);
            values.iter_mut().for_each(|x| *x *= 3f32.sqrt());
            values
        };
        Self {
            q: normal(0, shape.q_len()),
            k: normal(1, shape.k_len()),
            v: normal(2, shape.v_len()),
            d_out: normal(3, shape.out_len()),
        }
    }
}

/// Numbers in (−1, 1), the same for the same seed and stream (SplitMix64).
fn numbers(seed: u64, stream: u64, len: usize) -> Vec<f32> {
    let mut state = mix(seed).wrapping_add(mix(!stream));
    let next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        ((mix(state) >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
