//! Rows that go in, quantized to 15 bits and a sign.

use rayon::prelude::*;

use super::LEVELS;
use crate::{
    Simd,
    simd::int8::{BLOCK, Levels, PAIR, ROWS},
};

/// What goes in.
pub(super) struct Rows {
    /// Blocks of a row.
    blocks: usize,
    levels: Vec<Levels>,
    pub(super) scales: Vec<f32>,
}

impl Rows {
    pub(super) fn new(simd: Simd, x: &[f32], from: usize) -> Self {
        let (blocks, count) = (from.div_ceil(BLOCK), x.len() / from);
        let mut levels = vec![[[0; PAIR]; BLOCK / PAIR]; blocks * count];
        let mut scales = vec![0.0; count];
        let rows = x.par_chunks(from).zip(levels.par_chunks_mut(blocks)).zip(&mut scales);
        rows.with_min_len(ROWS).for_each(|((x, levels), scale)| {
            simd.run(
                #[inline(always)]
                || *scale = quantize_row(x, levels.as_flattened_mut().as_flattened_mut()),
            );
        });
        Self { blocks, levels, scales }
    }

    pub(super) fn levels(&self, row: usize) -> &[Levels] {
        &self.levels[row * self.blocks..(row + 1) * self.blocks]
    }
}

/// Returns the scale: a sum over a block of such levels and those of weights is within 32 bits.
#[inline(always)]
fn quantize_row(x: &[f32], levels: &mut [i16]) -> f32 {
    const _: () = assert!(BLOCK as i64 * LEVELS as i64 * i16::MAX as i64 <= i32::MAX as i64);
    let scale = largest(x) / f32::from(i16::MAX);
    let per_level = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (level, x) in levels.iter_mut().zip(x) {
        *level = nearest(x * per_level) as i16;
    }
    scale
}

/// The nearest integer, of at most 22 bits: a sum with 1.5 · 2²³ has no digits behind the point.
#[inline(always)]
pub(super) fn nearest(value: f32) -> i32 {
    const POINTLESS: f32 = 12_582_912.0;
    (value + POINTLESS).to_bits().wrapping_sub(POINTLESS.to_bits()) as i32
}

/// The largest size of a value.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sizes = [0.0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (size, value) in sizes.iter_mut().zip(chunk) {
            *size = size.max(value.abs());
        }
    }
    rest.iter().chain(&sizes).fold(0.0, |size, value| size.max(value.abs()))
}
