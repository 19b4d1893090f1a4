//! Products with block-quantized weights: inputs of 16 bits (int16), weights of 8 (int8) with a scale for each block of
//! channels, sums of 32 bits within a block and of f32 beyond.
//!
//! A column's blocks are added in their order, whatever else is computed beside it: a row has the same result alone and
//! among others.

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
use pulp::Arch;
use pulp::{Simd, WithSimd};

/// Columns that lie together: their sums stay in registers while weights are read in order.
pub(crate) const PANEL: usize = 64;
/// Channels of a column that lie side by side, as vectors multiply and add them.
pub(crate) const PAIR: usize = 2;
/// Channels of a column that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Rows that go through a block at once.
pub(crate) const ROWS: usize = 6;

pub(super) const PAIRS: usize = BLOCK / PAIR;

/// The channels of a row that meet one block.
pub(crate) type Levels = [[i16; PAIR]; PAIRS];

/// Some channels of a panel's columns.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Block {
    /// Pairs of channels, column by column.
    pub(crate) weights: [[[i8; PAIR]; PANEL]; PAIRS],
    /// Of each column, as the bits of an f16.
    pub(crate) scales: [u16; PANEL],
}

impl Block {
    /// Nothing but zeros.
    pub(crate) const ZERO: Self = Self { weights: [[[0; PAIR]; PANEL]; PAIRS], scales: [0; PANEL] };
}

/// The sums of up to [`ROWS`] rows over some panels: `out[panel][row][j] += Σ_blocks scale[j] · Σ_c x[row][c] · weight[c][j]`.
/// Panels are read in turns, since memory gives more where several places of it are.
///
/// # Panics
/// If a panel has fewer blocks than a row, or an out is missing.
pub(crate) fn add_products(
    simd: super::Simd,
    rows: &[&[Levels]],
    panels: &[&[Block]],
    outs: &mut [[[f32; PANEL]; ROWS]],
) {
    match *rows {
        [] => {}
        [a] => add::<1>(simd, [a], panels, outs),
        [a, b] => add::<2>(simd, [a, b], panels, outs),
        [a, b, c] => add::<3>(simd, [a, b, c], panels, outs),
        [a, b, c, d] => add::<4>(simd, [a, b, c, d], panels, outs),
        [a, b, c, d, e] => add::<5>(simd, [a, b, c, d, e], panels, outs),
        [a, b, c, d, e, f] => add::<6>(simd, [a, b, c, d, e, f], panels, outs),
        _ => panic!("found {} rows, expected at most {ROWS}", rows.len()),
    }
}

fn add<const R: usize>(
    simd: super::Simd,
    rows: [&[Levels]; R],
    panels: &[&[Block]],
    outs: &mut [[[f32; PANEL]; ROWS]],
) {
    match simd.arch {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(v4) if simd.has_vnni => super::vnni::add(v4, rows, panels, outs),
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Arch::V4(v4) => v4.vectorize(
            #[inline(always)]
            || in_turns(rows, panels, outs, |x, block, out| avx512(v4, x, block, out)),
        ),
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Arch::V3(v3) => v3.vectorize(
            #[inline(always)]
            || {
                in_turns(rows, panels, outs, |x, block, out| match R {
                    1 => avx2::<R, 8>(v3, x, block, out),
                    2 => avx2::<R, 4>(v3, x, block, out),
                    _ => avx2::<R, 2>(v3, x, block, out),
                });
            },
        ),
        _ => simd.run(Plain { rows, panels, outs }),
    }
}

/// Every block of every panel, the panels in turns.
#[inline(always)]
fn in_turns<const R: usize>(
    rows: [&[Levels]; R],
    panels: &[&[Block]],
    outs: &mut [[[f32; PANEL]; ROWS]],
    mut step: impl FnMut([&Levels; R], &Block, &mut [[f32; PANEL]; ROWS]),
) {
    for block in 0..rows[0].len() {
        let x = rows.map(|row| &row[block]);
        for (panel, out) in panels.iter().zip(&mut *outs) {
            step(x, &panel[block], out);
        }
    }
}

/// An f16 that is not infinite, times 2¹¹²: its bits at their places in an f32.
#[inline(always)]
fn small(scale: u16) -> u32 {
    (u32::from(scale & 0x8000) << 16) | (u32::from(scale & 0x7fff) << 13)
}

/// What makes up for it.
const LARGE: f32 = f32::from_bits((127 + 112) << 23);

/// The value of an f16 that is not infinite.
pub(crate) fn scale(bits: u16) -> f32 {
    f32::from_bits(small(bits)) * LARGE
}

/// Left to the compiler.
struct Plain<'a, const R: usize> {
    rows: [&'a [Levels]; R],
    panels: &'a [&'a [Block]],
    outs: &'a mut [[[f32; PANEL]; ROWS]],
}

impl<const R: usize> WithSimd for Plain<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        in_turns(self.rows, self.panels, self.outs, |x, block, out| {
            for (x, out) in x.iter().zip(out) {
                let mut sums = [0; PANEL];
                for (x, columns) in x.iter().zip(&block.weights) {
                    let [x, y] = x.map(i32::from);
                    for (sum, [v, w]) in sums.iter_mut().zip(columns) {
                        *sum += x * i32::from(*v) + y * i32::from(*w);
                    }
                }
                for ((out, sum), bits) in out.iter_mut().zip(sums).zip(block.scales) {
                    *out += sum as f32 * scale(bits);
                }
            }
        });
    }
}

/// Pairs multiplied and added by one instruction, which the compiler does not find by itself; `V` vectors of columns at once.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[inline(always)]
fn avx2<const R: usize, const V: usize>(
    v3: pulp::x86::V3,
    x: [&Levels; R],
    block: &Block,
    out: &mut [[f32; PANEL]; ROWS],
) {
    use pulp::{bytemuck::cast, f32x8, i8x16};

    const LANES: usize = 8;
    for first in (0..PANEL / LANES).step_by(V) {
        let mut sums = [[v3.splat_i32x8(0); V]; R];
        for (pair, columns) in block.weights.iter().enumerate() {
            let (columns, _) = columns.as_chunks::<LANES>();
            let weights: [_; V] = std::array::from_fn(|v| {
                v3.convert_i8x16_to_i16x16(cast::<_, i8x16>(columns[first + v]))
            });
            for (sums, x) in sums.iter_mut().zip(x) {
                let x = cast(v3.splat_i32x8(cast(x[pair])));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    let products = v3.multiply_wrapping_add_adjacent_i16x16(weights, x);
                    *sum = v3.wrapping_add_i32x8(*sum, products);
                }
            }
        }
        let (scales, _) = block.scales.as_chunks::<LANES>();
        for (v, scales) in scales[first..first + V].iter().enumerate() {
            let scales: f32x8 = cast(scales.map(small));
            let scales = v3.mul_f32x8(scales, v3.splat_f32x8(LARGE));
            for (sums, out) in sums.iter().zip(&mut *out) {
                let (outs, _) = out.as_chunks_mut::<LANES>();
                let out = &mut outs[first + v];
                let sum = v3.convert_i32x8_to_f32x8(sums[v]);
                *out = cast(v3.mul_add_f32x8(sum, scales, cast(*out)));
            }
        }
    }
}

/// The same with vectors twice as wide, all columns at once.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[inline(always)]
fn avx512<const R: usize>(
    v4: pulp::x86::V4,
    x: [&Levels; R],
    block: &Block,
    out: &mut [[f32; PANEL]; ROWS],
) {
    use pulp::{bytemuck::cast, f32x16, i8x32};

    const LANES: usize = 16;
    const V: usize = PANEL / LANES;
    let mut sums = [[v4.splat_i32x16(0); V]; R];
    for (pair, columns) in block.weights.iter().enumerate() {
        let weights: [i8x32; V] = cast(*columns);
        let weights = weights.map(|weights| v4.convert_i8x32_to_i16x32(weights));
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = cast(v4.splat_i32x16(cast(x[pair])));
            for (sum, weights) in sums.iter_mut().zip(weights) {
                let products = v4.multiply_wrapping_add_adjacent_i16x32(weights, x);
                *sum = v4.wrapping_add_i32x16(*sum, products);
            }
        }
    }
    let (scales, _) = block.scales.as_chunks::<LANES>();
    for (v, scales) in scales.iter().enumerate() {
        let scales: f32x16 = cast(scales.map(small));
        let scales = v4.mul_f32x16(scales, v4.splat_f32x16(LARGE));
        for (sums, out) in sums.iter().zip(&mut *out) {
            let (outs, _) = out.as_chunks_mut::<LANES>();
            let out = &mut outs[v];
            let sum = v4.convert_i32x16_to_f32x16(sums[v]);
            *out = cast(v4.mul_add_f32x16(sum, scales, cast(*out)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(i: usize, most: i64) -> i64 {
        i as i64 * 7919 % (2 * most + 1) - most
    }

    fn row(blocks: usize, seed: usize) -> Vec<Levels> {
        let level = |i: usize| number(seed + i, 32767) as i16;
        let pair = |b, p| std::array::from_fn(|k| level((b * PAIRS + p) * PAIR + k));
        (0..blocks).map(|b| std::array::from_fn(|p| pair(b, p))).collect()
    }

    fn panel(blocks: usize, seed: usize) -> Vec<Block> {
        let mut panel = vec![Block::ZERO; blocks];
        for (b, block) in panel.iter_mut().enumerate() {
            for (i, weight) in
                block.weights.as_flattened_mut().as_flattened_mut().iter_mut().enumerate()
            {
                *weight = number(seed + b * 31 + i, 127) as i8;
            }
            for (j, scale) in block.scales.iter_mut().enumerate() {
                // From the smallest subnormal to a half, of both signs.
                *scale = [0x0001, 0x03ff, 0x0400, 0x1234, 0xb800, 0x3800][(j + b + seed) % 6];
            }
        }
        panel
    }

    /// In f64, from the definition.
    fn exact(row: &[Levels], panel: &[Block], j: usize) -> f64 {
        let blocks = row.iter().zip(panel).map(|(x, block)| {
            let pairs = x.iter().zip(&block.weights).flat_map(|(x, w)| x.iter().zip(w[j]));
            let sum: i64 = pairs.map(|(x, w)| i64::from(*x) * i64::from(w)).sum();
            sum as f64 * f64::from(scale(block.scales[j]))
        });
        blocks.sum()
    }

    #[test]
    fn scales_are_those_of_ieee() {
        // 2^-24 · mantissa below the exponents, 2^(exponent - 15) · 1.mantissa above.
        for bits in 0..0x7c00u16 {
            let (exponent, mantissa) = (i32::from(bits >> 10), f64::from(bits & 0x3ff));
            let expected = match exponent {
                0 => mantissa * 2f64.powi(-24),
                _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
            };
            assert_eq!(f64::from(scale(bits)), expected, "{bits:#x}");
            assert_eq!(f64::from(scale(bits | 0x8000)), -expected, "{bits:#x}");
        }
    }

    #[test]
    fn every_instruction_set_gives_the_sums_of_any_number_of_rows() {
        for blocks in [0, 1, 5] {
            let rows: Vec<_> = (0..ROWS).map(|r| row(blocks, r * 77)).collect();
            let panels = [panel(blocks, 3), panel(blocks, 4)];
            let panels = panels.each_ref().map(Vec::as_slice);
            for simd in super::super::Simd::available() {
                let mut alone = [[[0.0; PANEL]; ROWS]; 2];
                for (r, row) in rows.iter().enumerate() {
                    let mut outs = [[[0.0; PANEL]; ROWS]; 2];
                    add_products(simd, &[row], &panels, &mut outs);
                    for (alone, outs) in alone.iter_mut().zip(outs) {
                        alone[r] = outs[0];
                    }
                }
                for count in 0..=ROWS {
                    let some: Vec<&[Levels]> = rows[..count].iter().map(Vec::as_slice).collect();
                    let mut outs = [[[0.0; PANEL]; ROWS]; 2];
                    add_products(simd, &some, &panels, &mut outs);
                    for (p, (outs, alone)) in outs.iter().zip(&alone).enumerate() {
                        assert_eq!(outs[..count], alone[..count], "{count} rows, {}", simd.name());
                        for (r, out) in outs[..count].iter().enumerate() {
                            for (j, found) in out.iter().enumerate() {
                                let expected = exact(&rows[r], panels[p], j);
                                let error = (f64::from(*found) - expected).abs();
                                // Each block's sum is rounded, and each sum of them; the largest is 2^27 · ½.
                                let most = blocks as f64 * 2f64.powi(26 - 22);
                                assert!(error <= most, "{found} {expected}, {}", simd.name());
                            }
                        }
                    }
                }
            }
        }
    }
}
