use std::time::Instant;
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
    let threads = std::env::args().nth(1).map_or(2, |s| s.parse().unwrap());
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().unwrap();
    {
        let shape = Shape::square(1, 2, 130, 16);
        let (q, k, v, d) = (
            rand(shape.q_len(), 1),
            rand(shape.q_len(), 2),
            rand(shape.q_len(), 3),
            rand(shape.q_len(), 4),
        );
        let a = Attention::new(shape, &pattern::Causal { offset: 0 });
        let inputs = Inputs { q: &q, k: &k, v: &v };
        let made = a.forward(&inputs).unwrap();
        let want = reference::forward(&a, &inputs).unwrap();
        let err =
            made.out.iter().zip(&want.out).map(|(a, b)| (*a as f64 - b).abs()).fold(0.0, f64::max);
        let g = a.backward(&inputs, &made, &d).unwrap();
        let w = reference::backward(&a, &inputs, &d).unwrap();
        println!("error {err:e}");
        for ((n, x), (_, y)) in reference::Values::from(&g).slices().iter().zip(w.slices()) {
            println!("{n} {:e}", x.iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max));
        }
    }
    for (t, causal) in [(512, true), (2048, true), (2048, false), (8192, true)] {
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
        let flops = 4.0 * (t * t * 64 * 8) as f64 * if causal { 0.5 } else { 1.0 };
        let n = if t > 4000 { 4 } else { 20 };
        let mut best = f64::MAX;
        for _ in 0..n {
            let s = Instant::now();
            std::hint::black_box(a.forward(&inputs).unwrap());
            best = best.min(s.elapsed().as_secs_f64());
        }
        let mut both = f64::MAX;
        for _ in 0..n {
            let s = Instant::now();
            let m = a.forward(&inputs).unwrap();
            std::hint::black_box(a.backward(&inputs, &m, &d).unwrap());
            both = both.min(s.elapsed().as_secs_f64());
        }
        println!(
            "{t} {causal} fwd {:.2} ms {:.0} GF/s both {:.2} ms {:.0} GF/s",
            best * 1e3,
            flops / best / 1e9,
            both * 1e3,
            3.5 * flops / both / 1e9
        );
    }
}
