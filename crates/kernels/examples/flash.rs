//! Attention without its matrix of scores: forward and backward, held against the plain definition in f64.
//!
//! `cargo run --release --example flash`

use whatwhere_kernels::{
    Error,
    attention::{Attention, Inputs, Shape, pattern::Window, reference},
};

fn main() -> Result<(), Error> {
    let shape = Shape::square(1, 2, 300, 32); // batch, heads, length, head_dim
    let wave = |step: f32| (0..shape.q_len()).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    let (q, k, v, d_out) = (wave(0.7), wave(1.3), wave(2.1), wave(0.4));

    // Each query sees itself and the 64 tokens before it; tiles outside cost nothing.
    let attention = Attention::new(shape, &Window { left: 64, right: 0 });
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let out = attention.forward(&inputs)?;
    let gradients = attention.backward(&inputs, &out, &d_out)?;

    // The same with all scores stored, pair by pair.
    let plain = reference::forward(&attention, &inputs)?;
    let slopes = reference::backward(&attention, &inputs, &d_out)?;
    let far = |fast: &[f32], plain: &[f64]| {
        let pairs = fast.iter().zip(plain);
        pairs.map(|(fast, plain)| (f64::from(*fast) - plain).abs()).fold(0.0, f64::max)
    };
    let (out, d_q) = (far(&out.out, &plain.out), far(&gradients.q, &slopes.q));
    println!("largest difference to the definition: output {out:.1e}, gradient of q {d_q:.1e}");
    assert!(out < 1e-5 && d_q < 1e-4);
    Ok(())
}
