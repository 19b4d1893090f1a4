//! Panels of weights: quantized from f32, or taken from levels and scales and given as such.

use super::{
    Panel,
    values::{Int8Values, scale_bits, unscalable},
};
use crate::{
    Error, Simd,
    simd::int8::{self, BLOCK, Block, LEVELS, PANEL, nearest},
};

impl Panel {
    /// The columns whose weights `fill` writes, one channel at a time, into a row of zeros.
    pub(super) fn quantize(
        &mut self,
        from: usize,
        fill: impl Fn(usize, &mut [f32; PANEL]),
    ) -> Result<(), Error> {
        let simd = Simd::detect();
        for (first, block) in (0..from).step_by(BLOCK).zip(&mut self.blocks) {
            let mut rows = [[0.0; PANEL]; BLOCK];
            for (channel, row) in (first..from).zip(&mut rows) {
                fill(channel, row);
            }
            simd.run(
                #[inline(always)]
                || quantize_block(&rows, block),
            );
            if let Some(j) = block.scales.iter().position(|bits| *bits >= 0x7c00) {
                let most = rows.iter().map(|row| row[j]).fold(0.0, |m: f32, w| m.max(w.abs()));
                return Err(unscalable(format!("{} for a weight of {most}", most / LEVELS)));
            }
        }
        Ok(())
    }

    /// The columns from `first` on of these values.
    pub(super) fn take(&mut self, values: &Int8Values, first: usize) {
        let [rows, columns] = values.shape();
        let (levels, scales) = (values.levels(), values.scales());
        if values.is_table() {
            let blocks = columns.div_ceil(BLOCK);
            for j in 0..PANEL.min(rows - first) {
                let own = levels[(first + j) * columns..][..columns].chunks(BLOCK);
                let scales = &scales[(first + j) * blocks..][..blocks];
                for ((block, levels), scale) in self.blocks.iter_mut().zip(own).zip(scales) {
                    block.scales[j] = *scale;
                    for (channel, level) in levels.iter().enumerate() {
                        block.set_level(channel, j, *level);
                    }
                }
            }
            return;
        }
        let own = first..columns.min(first + PANEL);
        for (channel, row) in levels.chunks_exact(columns).enumerate() {
            let block = &mut self.blocks[channel / BLOCK];
            for (j, level) in row[own.clone()].iter().enumerate() {
                block.set_level(channel % BLOCK, j, *level);
            }
        }
        for (block, row) in self.blocks.iter_mut().zip(scales.chunks_exact(columns)) {
            block.scales[..own.len()].copy_from_slice(&row[own.clone()]);
        }
    }

    /// Its columns, of `to` in all, into these values from `first` on.
    pub(super) fn give(&self, values: &mut Int8Values, first: usize, to: usize) {
        let [rows, columns] = values.shape();
        let (count, is_table) = (PANEL.min(to - first), values.is_table());
        let (levels, scales) = values.parts();
        if is_table {
            let blocks = columns.div_ceil(BLOCK);
            for j in 0..count {
                let own = levels[(first + j) * columns..][..columns].chunks_mut(BLOCK);
                let scales = &mut scales[(first + j) * blocks..][..blocks];
                for ((block, levels), scale) in self.blocks.iter().zip(own).zip(scales) {
                    *scale = block.scales[j];
                    for (channel, level) in levels.iter_mut().enumerate() {
                        *level = block.level(channel, j);
                    }
                }
            }
            return;
        }
        for (channel, row) in levels.chunks_exact_mut(columns).enumerate().take(rows) {
            let block = &self.blocks[channel / BLOCK];
            for (j, level) in row[first..][..count].iter_mut().enumerate() {
                *level = block.level(channel % BLOCK, j);
            }
        }
        for (block, row) in self.blocks.iter().zip(scales.chunks_exact_mut(columns)) {
            row[first..][..count].copy_from_slice(&block.scales[..count]);
        }
    }
}

/// The scales of columns, and each weight as a multiple of its own.
#[inline(always)]
fn quantize_block(rows: &[[f32; PANEL]; BLOCK], block: &mut Block) {
    let mut most = [0.0f32; PANEL];
    for row in rows {
        for (most, weight) in most.iter_mut().zip(row) {
            // Not `max`, which would lose a NaN.
            *most = if weight.abs() <= *most || most.is_nan() { *most } else { weight.abs() };
        }
    }
    let mut per_level = [0.0; PANEL];
    for ((per_level, bits), most) in per_level.iter_mut().zip(&mut block.scales).zip(&most) {
        *bits = scale_bits(most / LEVELS);
        let scale = int8::scale(*bits);
        *per_level = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    }
    for (channel, row) in rows.iter().enumerate() {
        for (j, (exact, per_level)) in row.iter().zip(&per_level).enumerate() {
            // The f16 may be a little smaller than a 127th, and much below the smallest normal one.
            let level = (exact * per_level).clamp(-LEVELS, LEVELS);
            block.set_level(channel, j, nearest(level) as i8);
        }
    }
}
