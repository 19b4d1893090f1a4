//! Numbers for the inputs, the same on every run.

use std::f64::consts::TAU;

/// `len` normally distributed numbers around 0.
pub(crate) fn normal(seed: u64, len: usize, deviation: f64) -> Vec<f32> {
    let mut state = seed << 32;
    let mut uniform = || {
        // SplitMix64; the upper 53 bits make a number in (0, 1].
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON / 2.0
    };
    let mut number = || {
        let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), TAU * uniform());
        (deviation * radius * angle.cos()) as f32
    };
    (0..len).map(|_| number()).collect()
}
