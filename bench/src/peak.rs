//! The most this machine can do: fused multiply-adds on registers alone, on all threads at once.

use std::{hint::black_box, thread, time::Instant};

use pulp::{Arch, Simd, WithSimd};

/// Sums that do not wait for each other: two units with a latency of four to five cycles need ten; sixteen registers
/// hold twelve beside the factors.
const SUMS: usize = 12;
const STEPS: usize = 1 << 21; // some 5 ms
const TRIES: usize = 200; // about a second, so that one falls into a quiet moment

/// GFLOP/s of `threads` threads, the best of some tries.
pub(crate) fn gflops(threads: usize) -> f64 {
    let arch = Arch::new();
    let tries = (0..TRIES).map(|_| {
        let start = Instant::now();
        let flops = thread::scope(|scope| {
            let running: Vec<_> =
                (0..threads).map(|_| scope.spawn(move || arch.dispatch(MultiplyAdd))).collect();
            running.into_iter().filter_map(|thread| thread.join().ok()).sum::<f64>()
        });
        flops / start.elapsed().as_secs_f64() / 1e9
    });
    tries.fold(0.0, f64::max)
}

struct MultiplyAdd;

impl WithSimd for MultiplyAdd {
    /// Multiplications and additions done.
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) -> f64 {
        // Each sum tends to 1; nothing overflows or becomes denormal.
        let (factor, step) = (s.splat_f32s(black_box(0.5)), s.splat_f32s(black_box(0.5)));
        let mut sums = [s.splat_f32s(0.0); SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = s.mul_add_f32s(*sum, factor, step);
            }
        }
        black_box(sums);
        (2 * SUMS * STEPS * S::F32_LANES) as f64
    }
}
