use std::time::Instant;
use whatwhere_kernels::*;
fn main() {
    let rand = |n: usize, seed: u64| -> Vec<f32> { let mut x = seed | 1; (0..n).map(|_| { x ^= x << 13; x ^= x >> 7; x ^= x << 17; (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0 }).collect() };
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
    for (t, causal) in [(512, true), (2048, true), (2048, false), (8192, true)] {
        let shape = Shape::square(1, 8, t, 64);
        let (q, k, v) = (rand(shape.q_len(), 1), rand(shape.q_len(), 2), rand(shape.q_len(), 3));
        let pattern: &dyn pattern::Pattern = if causal { &pattern::Causal { offset: 0 } } else { &pattern::Full };
        let a = Attention::new(shape, pattern);
        let inputs = Inputs { q: &q, k: &k, v: &v };
        let flops = 4.0 * (t * t * 64 * 8) as f64 * if causal { 0.5 } else { 1.0 };
        let mut best = f64::MAX;
        for _ in 0..if t > 4000 { 4 } else { 30 } { let s = Instant::now(); std::hint::black_box(a.forward(&inputs).unwrap()); best = best.min(s.elapsed().as_secs_f64()); }
        println!("{t} {causal} fwd {:.2} ms {:.0} GF/s", best * 1e3, flops / best / 1e9);
    }
}
