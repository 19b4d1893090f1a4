//! The kernels by themselves: `cargo bench --bench attention`, which needs nothing but Rust.
//!
//! For regressions between two versions on one machine; `bench/attention` measures against PyTorch and burn.
//! An item is a token, so that figures of different lengths compare.

use divan::{Bencher, counter::ItemsCount};
use whatwhere_kernels::attention::{
    Attention, Inputs, Shape,
    pattern::{Causal, Dilated, Draw, Fixed, Full, Global, Or, Pattern, Random, Strided, Window},
};

const BATCH: usize = 1;
const HEADS: usize = 8;
const HEAD_DIM: usize = 64;
const LENGTHS: [usize; 3] = [128, 512, 2048];

fn main() {
    divan::main();
}

/// Queries, keys, values, and a gradient of the output.
struct Tensors([Vec<f32>; 4]);

impl Tensors {
    fn new(shape: &Shape) -> Self {
        let count = shape.batch * shape.heads * shape.queries * shape.head_dim;
        let value = |i: usize| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0;
        Self([1, 2, 3, 4].map(|seed| (0..count).map(|i| value(i + seed * count)).collect()))
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs { q: &self.0[0], k: &self.0[1], v: &self.0[2] }
    }
}

fn forward(bencher: Bencher, length: usize, pattern: &dyn Pattern) {
    let shape = Shape::square(BATCH, HEADS, length, HEAD_DIM);
    let tensors = Tensors::new(&shape);
    let attention = Attention::new(shape, pattern);
    let tokens = ItemsCount::new(BATCH * length);
    bencher.counter(tokens).bench_local(|| attention.forward(&tensors.inputs()));
}

fn both(bencher: Bencher, length: usize, pattern: &dyn Pattern) {
    let shape = Shape::square(BATCH, HEADS, length, HEAD_DIM);
    let tensors = Tensors::new(&shape);
    let attention = Attention::new(shape, pattern);
    let tokens = ItemsCount::new(BATCH * length);
    bencher.counter(tokens).bench_local(|| {
        let out = attention.forward(&tensors.inputs())?;
        attention.backward(&tensors.inputs(), &out, &tensors.0[3])
    });
}

#[divan::bench(args = LENGTHS)]
fn full(bencher: Bencher, length: usize) {
    forward(bencher, length, &Full);
}

#[divan::bench(args = LENGTHS)]
fn causal(bencher: Bencher, length: usize) {
    forward(bencher, length, &Causal::upper_left());
}

#[divan::bench(args = LENGTHS)]
fn window(bencher: Bencher, length: usize) {
    forward(bencher, length, &Window { left: 64, right: 0 });
}

#[divan::bench(args = LENGTHS)]
fn causal_and_backward(bencher: Bencher, length: usize) {
    both(bencher, length, &Causal::upper_left());
}

#[divan::bench(args = LENGTHS)]
fn window_and_backward(bencher: Bencher, length: usize) {
    both(bencher, length, &Window { left: 64, right: 0 });
}

#[divan::bench(args = LENGTHS)]
fn strided_and_backward(bencher: Bencher, length: usize) {
    both(bencher, length, &Strided::new(length.isqrt()).expect("a stride"));
}

#[divan::bench(args = LENGTHS)]
fn fixed_and_backward(bencher: Bencher, length: usize) {
    both(bencher, length, &Fixed::new(128, 8).expect("a summary in the stride"));
}

#[divan::bench(args = LENGTHS)]
fn dilated_and_backward(bencher: Bencher, length: usize) {
    both(bencher, length, &Dilated::new(64, 0, 8).expect("a step"));
}

#[divan::bench(args = LENGTHS)]
fn big_bird_and_backward(bencher: Bencher, length: usize) {
    let count = 3.min(length.div_ceil(64));
    let draw = Draw { heads: HEADS, queries: length, keys: length, block: 64, count, seed: 0 };
    let random = Random::new(draw).expect("as many blocks as there are");
    both(bencher, length, &Or(Window { left: 32, right: 32 }, Or(random, Global::first(1))));
}
