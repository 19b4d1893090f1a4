//! Products with block-quantized weights: inputs and weights of 8 bits (int8), each with a scale for each block of channels,
//! sums of 32 bits within a block and of f32 beyond.
//!
//! A column's blocks are added in their order, whatever else is computed beside it: a row has the same result alone and
//! among others.

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
use pulp::Arch;
use pulp::{Simd, WithSimd};

/// Columns that lie together: their sums stay in registers while weights are read in order.
pub(crate) const PANEL: usize = 64;
/// Channels of a column that lie side by side, as vectors multiply and add them.
pub(super) const QUAD: usize = 4;
/// Channels of a column that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Rows that go through a block at once.
pub(crate) const ROWS: usize = 6;

pub(super) const QUADS: usize = BLOCK / QUAD;

/// The largest level.
pub(crate) const LEVELS: f32 = 127.0;

/// What weights are stored with on top of their level: instructions multiply unsigned bytes with signed ones.
const OFFSET: u8 = 128;

/// The channels of a row that meet one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(super) quads: [[i8; QUAD]; QUADS],
    pub(super) scale: f32,
    /// What takes the weights' offset away again.
    pub(super) start: i32,
}

impl Levels {
    /// Nothing but zeros.
    pub(crate) const ZERO: Self = Self { quads: [[0; QUAD]; QUADS], scale: 0.0, start: 0 };

    /// The nearest to up to [`BLOCK`] channels. What is not a number makes the scale none.
    #[inline(always)]
    pub(crate) fn of(x: &[f32]) -> Self {
        let mut all = [0.0; BLOCK];
        all[..x.len()].copy_from_slice(x);
        let mut most = [0.0f32; LANES];
        for x in all.as_chunks::<LANES>().0 {
            for (most, x) in most.iter_mut().zip(x) {
                *most = larger(*most, x.abs());
            }
        }
        let most = most.into_iter().fold(0.0, larger);
        let scale = most / LEVELS;
        let per_level = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let (mut own, mut sum) = (Self { scale, ..Self::ZERO }, 0);
        for (level, x) in own.quads.as_flattened_mut().iter_mut().zip(all) {
            let nearest = nearest(x * per_level);
            sum += nearest;
            *level = nearest as i8;
        }
        own.start = -i32::from(OFFSET) * sum;
        own
    }
}

/// Of the widest vectors.
const LANES: usize = 16;

/// Not `max`, which would lose a NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b <= a || a.is_nan() { a } else { b }
}

/// The nearest integer, of at most 22 bits: a sum with 1.5 · 2²³ has no digits behind the point.
#[inline(always)]
pub(crate) fn nearest(value: f32) -> i32 {
    const POINTLESS: f32 = 12_582_912.0;
    (value + POINTLESS).to_bits().wrapping_sub(POINTLESS.to_bits()) as i32
}

/// Some channels of a panel's columns.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Block {
    /// Fours of channels, column by column, each with the offset.
    pub(super) weights: [[[u8; QUAD]; PANEL]; QUADS],
    /// Of each column, as the bits of an f16.
    pub(crate) scales: [u16; PANEL],
}

impl Block {
    /// Nothing but zeros.
    pub(crate) const ZERO: Self =
        Self { weights: [[[OFFSET; QUAD]; PANEL]; QUADS], scales: [0; PANEL] };

    /// The level of a channel in column `j`.
    #[inline(always)]
    pub(crate) fn level(&self, channel: usize, j: usize) -> i8 {
        (self.weights[channel / QUAD][j][channel % QUAD] ^ OFFSET) as i8
    }

    /// Sets it.
    #[inline(always)]
    pub(crate) fn set_level(&mut self, channel: usize, j: usize, level: i8) {
        self.weights[channel / QUAD][j][channel % QUAD] = level as u8 ^ OFFSET;
    }
}

/// The sums of up to [`ROWS`] rows over some panels: `out[panel][row][j] += Σ_blocks scale[row] · scale[j] · Σ_c x[row][c] ·
/// weight[c][j]`. Several panels are read in turns, since memory gives more where several places of it are; the sums of one
/// stay in registers, which is best where it is in the cache.
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
                let mut sums = [x.start; PANEL];
                for (x, columns) in x.quads.iter().zip(&block.weights) {
                    let x = x.map(i32::from);
                    for (sum, weights) in sums.iter_mut().zip(columns) {
                        let weights = weights.map(i32::from);
                        *sum += x[0] * weights[0] + x[1] * weights[1];
                        *sum += x[2] * weights[2] + x[3] * weights[3];
                    }
                }
                for ((out, sum), bits) in out.iter_mut().zip(sums).zip(block.scales) {
                    *out += sum as f32 * (scale(bits) * x.scale);
                }
            }
        });
    }
}

/// Sizes of weights multiplied with inputs that have the weights' signs: the sum of two such products is within 16 bits.
/// `V` vectors of columns at once.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[inline(always)]
fn avx2<const R: usize, const V: usize>(
    v3: pulp::x86::V3,
    x: [&Levels; R],
    block: &Block,
    out: &mut [[f32; PANEL]; ROWS],
) {
    use pulp::{bytemuck::cast, f32x8};

    const LANES: usize = 8;
    let (avx, avx2) = (v3.avx, v3.avx2);
    let (offsets, ones) = (cast([OFFSET; 4 * LANES]), cast([1i16; 2 * LANES]));
    for first in (0..PANEL / LANES).step_by(V) {
        let mut sums = [[cast([0i32; LANES]); V]; R];
        for (quad, columns) in block.weights.iter().enumerate() {
            let (columns, _) = columns.as_chunks::<LANES>();
            let weights: [_; V] =
                std::array::from_fn(|v| avx2._mm256_xor_si256(cast(columns[first + v]), offsets));
            for (sums, x) in sums.iter_mut().zip(x) {
                let x = avx._mm256_set1_epi32(cast(x.quads[quad]));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    let sizes = avx2._mm256_abs_epi8(weights);
                    let signed = avx2._mm256_sign_epi8(x, weights);
                    let pairs = avx2._mm256_maddubs_epi16(sizes, signed);
                    *sum = avx2._mm256_add_epi32(*sum, avx2._mm256_madd_epi16(pairs, ones));
                }
            }
        }
        let (scales, _) = block.scales.as_chunks::<LANES>();
        for (v, scales) in scales[first..first + V].iter().enumerate() {
            let scales: f32x8 = cast(scales.map(small));
            let scales = v3.mul_f32x8(scales, v3.splat_f32x8(LARGE));
            for ((sums, x), out) in sums.iter().zip(x).zip(&mut *out) {
                let (outs, _) = out.as_chunks_mut::<LANES>();
                let out = &mut outs[first + v];
                let sum = v3.convert_i32x8_to_f32x8(cast(sums[v]));
                let scales = v3.mul_f32x8(scales, v3.splat_f32x8(x.scale));
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
    use pulp::{bytemuck::cast, f32x16};

    const V: usize = PANEL / LANES;
    let (foundation, bytes) = (v4.avx512f, v4.avx512bw);
    let (offsets, ones) = (cast([OFFSET; 4 * LANES]), cast([1i16; 2 * LANES]));
    let zero = cast([0i32; LANES]);
    let mut sums = [[zero; V]; R];
    for (quad, columns) in block.weights.iter().enumerate() {
        let (columns, _) = columns.as_chunks::<LANES>();
        let weights: [_; V] =
            std::array::from_fn(|v| foundation._mm512_xor_si512(cast(columns[v]), offsets));
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = foundation._mm512_set1_epi32(cast(x.quads[quad]));
            for (sum, weights) in sums.iter_mut().zip(weights) {
                let sizes = bytes._mm512_abs_epi8(weights);
                let negative = bytes._mm512_movepi8_mask(weights);
                let signed = bytes._mm512_mask_sub_epi8(x, negative, zero, x);
                let pairs = bytes._mm512_maddubs_epi16(sizes, signed);
                let products = bytes._mm512_madd_epi16(pairs, ones);
                *sum = foundation._mm512_add_epi32(*sum, products);
            }
        }
    }
    let (scales, _) = block.scales.as_chunks::<LANES>();
    for (v, scales) in scales.iter().enumerate() {
        let scales: f32x16 = cast(scales.map(small));
        let scales = v4.mul_f32x16(scales, v4.splat_f32x16(LARGE));
        for ((sums, x), out) in sums.iter().zip(x).zip(&mut *out) {
            let (outs, _) = out.as_chunks_mut::<LANES>();
            let out = &mut outs[v];
            let sum = v4.convert_i32x16_to_f32x16(cast(sums[v]));
            let scales = v4.mul_f32x16(scales, v4.splat_f32x16(x.scale));
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
        let value = |b, i| number(seed + b * BLOCK + i, 127) as f32 / 32.0;
        let block = |b| Levels::of(&std::array::from_fn::<_, BLOCK, _>(|i| value(b, i)));
        (0..blocks).map(block).collect()
    }

    fn panel(blocks: usize, seed: usize) -> Vec<Block> {
        let mut panel = vec![Block::ZERO; blocks];
        for (b, block) in panel.iter_mut().enumerate() {
            for i in 0..BLOCK * PANEL {
                // Files have -128, too.
                let level = (number(seed + b * 31 + i, 128)).min(127) as i8;
                block.set_level(i % BLOCK, i / BLOCK, level);
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
            let levels = x.quads.as_flattened().iter().enumerate();
            let sum: i64 = levels.map(|(i, x)| i64::from(*x) * i64::from(block.level(i, j))).sum();
            sum as f64 * f64::from(x.scale) * f64::from(scale(block.scales[j]))
        });
        blocks.sum()
    }

    #[test]
    fn levels_are_the_nearest_and_zeros_where_nothing_is() {
        let levels = Levels::of(&[1.0, -2.0, 0.5]);
        assert_eq!(levels.quads[0], [64, -127, 32, 0]);
        assert_eq!(levels.quads[1..], [[0; QUAD]; QUADS - 1]);
        assert_eq!((levels.scale, levels.start), (2.0 / 127.0, -128 * (64 - 127 + 32)));
        assert_eq!(Levels::of(&[0.0; BLOCK]).scale, 0.0);
        for broken in [[f32::NAN, 1.0], [1.0, f32::NAN]] {
            assert!(Levels::of(&broken).scale.is_nan());
        }
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
                                // Each block's sum is rounded, and each sum of them; the largest is 2^19 · 2^-5 · ½.
                                let most = blocks as f64 * 2f64.powi(13 - 22);
                                assert!(error <= most, "{found} {expected}, {}", simd.name());
                            }
                        }
                    }
                }
            }
        }
    }
}
