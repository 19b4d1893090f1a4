//! Linear layers in f32 and with int8 weights: `cargo bench --bench linear`. An item is a row.
//!
//! The weights of one call are a layer of a larger model's and are read in turns with others, so that a single row meets
//! them in memory and not in the cache.

use divan::{Bencher, counter::ItemsCount};
use whatwhere_kernels::layer::{Linear, QuantizedLinear};

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
        let linear = Linear { from: FROM, to: TO, weight: &weights[turn], bias: None };
        linear.forward(&x, &mut out)
    });
}

#[divan::bench(args = ROWS)]
fn int8(bencher: Bencher, rows: usize) {
    let weight = numbers(FROM * TO);
    let linear = Linear { from: FROM, to: TO, weight: &weight, bias: None };
    let layers: Result<Vec<_>, _> = (0..LAYERS).map(|_| QuantizedLinear::new(&linear)).collect();
    let layers = layers.expect("sizes that fit");
    let (x, mut out, mut turn) = (numbers(rows * FROM), vec![0.0; rows * TO], 0);
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        turn = (turn + 1) % LAYERS;
        layers[turn].forward(&x, &mut out)
    });
}
