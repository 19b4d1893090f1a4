//! Linear layers in f32, in bf16 and with int8 weights: `cargo bench --bench linear`. An item is a row.
//!
//! The weights of one call are a layer of a larger model's and are read in turns with others, so that a single row meets
//! them in memory and not in the cache.

use divan::{Bencher, counter::ItemsCount};
use whatwhere_kernels::{
    Precision,
    layer::{Linear, QuantizedLinear},
};

const FROM: usize = 576;
const TO: usize = 1536;
const LAYERS: usize = 60;
const ROWS: [usize; 5] = [1, 4, 8, 64, 512];

fn main() {
    divan::main();
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0).collect()
}

#[divan::bench(args = ROWS)]
fn f32(bencher: Bencher, rows: usize) {
    let weights: Vec<Vec<f32>> = (0..LAYERS).map(|_| numbers(FROM * TO)).collect();
    let (x, mut out, mut turn) = (numbers(rows * FROM), vec![0.0; rows * TO], 0);
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        turn = (turn + 1) % LAYERS;
        let linear = Linear {
            from: FROM,
            to: TO,
            weight: &weights[turn],
            bias: None,
            precision: Precision::F32,
        };
        linear.forward(&x, &mut out)
    });
}

#[divan::bench(args = ROWS)]
fn int8(bencher: Bencher, rows: usize) {
    let weight = numbers(FROM * TO);
    let linear =
        Linear { from: FROM, to: TO, weight: &weight, bias: None, precision: Precision::F32 };
    let layers: Result<Vec<_>, _> = (0..LAYERS).map(|_| QuantizedLinear::new(&linear)).collect();
    let layers = layers.expect("sizes that fit");
    let (x, mut out, mut turn) = (numbers(rows * FROM), vec![0.0; rows * TO], 0);
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        turn = (turn + 1) % LAYERS;
        layers[turn].forward(&x, &mut out)
    });
}

/// Rows, channels in and channels out of a training step's projections: GPT-2 small's feed-forward, and a small model's.
const STEPS: [(usize, usize, usize); 3] = [(1024, 768, 3072), (1024, 3072, 768), (4096, 256, 1024)];

/// Forward, and the gradients of inputs and of weights.
#[divan::bench(args = STEPS, consts = [false, true])]
fn step<const BF16: bool>(bencher: Bencher, (rows, from, to): (usize, usize, usize)) {
    let precision = if BF16 { Precision::Bf16 } else { Precision::F32 };
    let (weight, x, d_out) = (numbers(from * to), numbers(rows * from), numbers(rows * to));
    let [mut out, mut d_x, mut d_weight] =
        [rows * to, rows * from, from * to].map(|n| vec![0.0; n]);
    let linear = Linear { from, to, weight: &weight, bias: None, precision };
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        linear.forward(&x, &mut out)?;
        linear.backward(&d_out, &mut d_x, false)?;
        linear.backward_weights(&x, &d_out, &mut d_weight, &mut [])
    });
}
