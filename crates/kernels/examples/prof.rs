use whatwhere_kernels::*;
fn main() {
    let rand = |n: usize, seed: u64| -> Vec<f32> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..n)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            })
            .collect()
    };
    let arg = |i: usize, d: usize| std::env::args().nth(i).map_or(d, |s| s.parse().unwrap());
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
    let (t, causal, both, n) = (arg(1, 2048), arg(2, 0) == 1, arg(3, 0) == 1, arg(4, 20));
    let shape = Shape::square(1, 8, t, 64);
    let (q, k, v, d) = (
        rand(shape.q_len(), 1),
        rand(shape.q_len(), 2),
        rand(shape.q_len(), 3),
        rand(shape.q_len(), 4),
    );
    let pattern: &dyn pattern::Pattern =
        if causal { &pattern::Causal { offset: 0 } } else { &pattern::Full };
    let a = Attention::new(shape, pattern);
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let mut made = a.forward(&inputs).unwrap();
    let mut g = Gradients::zeros(&a);
    let mut best = f64::MAX;
    for _ in 0..n {
        let s = std::time::Instant::now();
        a.forward_into(&inputs, &mut made.out, &mut made.log_sum).unwrap();
        if both {
            a.backward_into(&inputs, &made.out, &made.log_sum, &d, &mut g).unwrap();
        }
        best = best.min(s.elapsed().as_secs_f64());
    }
    let flops = 4.0
        * (t * t * 64 * 8) as f64
        * if causal { 0.5 } else { 1.0 }
        * if both { 3.5 } else { 1.0 };
    println!("{:.2} ms {:.0} GF/s", best * 1e3, flops / best / 1e9);
}
