//! Sparse patterns against causal attention, both passes, taken in turns: `cargo run --release --example sparse -- 8192`.
//! Prints the best of some rounds of each and the ratios.

use std::{env, time::Instant};

use whatwhere_kernels::attention::{
    Attention, Gradients, Inputs, Shape,
    pattern::{Causal, Dilated, Draw, Fixed, Full, Global, Or, Pattern, Random, Strided, Window},
};

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let length: usize = env::args().nth(1).map_or(Ok(8192), |text| text.parse())?;
    let shape = Shape::square(1, 8, length, 64);
    let value = |i: usize| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0;
    let [q, k, v, d_out] = [1, 2, 3, 4].map(|seed| {
        (0..shape.q_len()).map(|i| value(i + seed * shape.q_len())).collect::<Vec<_>>()
    });
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let draw = Draw { heads: 8, queries: length, keys: length, block: 64, count: 3, seed: 0 };
    let big_bird = Or(Window { left: 128, right: 128 }, Or(Random::new(draw)?, Global::first(1)));
    let behind = Or(Window { left: 256, right: 0 }, Or(Random::new(draw)?, Global::first(1)));
    let root = length.isqrt();
    let cases: Vec<(&str, Box<dyn Pattern>)> = vec![
        ("causal", Box::new(Causal::upper_left())),
        ("strided 128", Box::new(Strided::new(128)?)),
        ("strided √length", Box::new(Strided::new(root)?)),
        ("fixed 128, summary 8", Box::new(Fixed::new(128, 8)?)),
        ("dilated 64, step 8", Box::new(Dilated::new(64, 0, 8)?)),
        ("BigBird, window 128 + 128", Box::new(big_bird)),
        ("BigBird, window 256 + 0", Box::new(behind)),
        ("window 256", Box::new(Window { left: 256, right: 0 })),
    ];
    let (mut out, mut lse) = (vec![0.0; shape.out_len()], vec![0.0; shape.rows()]);
    let mut gradients = Gradients::zeros(&Attention::new(shape, &Full));
    let mut best = vec![[f64::INFINITY; 2]; cases.len()];
    for _ in 0..ROUNDS {
        for ((_, pattern), best) in cases.iter().zip(&mut best) {
            let attention = Attention::new(shape, &**pattern);
            let start = Instant::now();
            attention.forward_into(&inputs, &mut out, &mut lse)?;
            let forward = start.elapsed().as_secs_f64();
            attention.backward_into(&inputs, &out, &lse, &d_out, &mut gradients)?;
            let both = start.elapsed().as_secs_f64();
            *best = [best[0].min(forward), best[1].min(both)];
        }
    }
    for ((name, _), [forward, both]) in cases.iter().zip(&best) {
        let [causal_forward, causal] = best[0];
        println!(
            "{name:26} forward {:8.1} ms ({:5.1} ×), both {:8.1} ms ({:5.1} ×)",
            1e3 * forward,
            causal_forward / forward,
            1e3 * both,
            causal / both
        );
    }
    Ok(())
}
