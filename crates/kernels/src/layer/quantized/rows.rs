//! Rows that go in, quantized as the weights are.

use rayon::prelude::*;

use crate::{
    Simd,
    simd::int8::{BLOCK, Levels, ROWS},
};

/// What goes in.
pub(super) struct Rows {
    /// Blocks of a row.
    blocks: usize,
    levels: Vec<Levels>,
}

impl Rows {
    pub(super) fn new(simd: Simd, x: &[f32], from: usize) -> Self {
        let (blocks, count) = (from.div_ceil(BLOCK), x.len() / from);
        let mut levels = vec![Levels::ZERO; blocks * count];
        let rows = x.par_chunks(from).zip(levels.par_chunks_mut(blocks));
        rows.with_min_len(ROWS).for_each(|(x, levels)| {
            simd.run(
                #[inline(always)]
                || {
                    for (levels, x) in levels.iter_mut().zip(x.chunks(BLOCK)) {
                        *levels = Levels::of(x);
                    }
                },
            );
        });
        Self { blocks, levels }
    }

    pub(super) fn levels(&self, row: usize) -> &[Levels] {
        &self.levels[row * self.blocks..(row + 1) * self.blocks]
    }
}
