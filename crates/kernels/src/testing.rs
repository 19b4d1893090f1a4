//! What unit tests share.

/// Numbers between −1.3 and 1.3 that repeat late.
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
}
