//! Products with block-quantized weights by `vpdpwssd`: pairs of 16-bit integers multiplied and added to 32-bit sums in one
//! instruction. The sums are those of `int8.rs` to the bit.

#![expect(unsafe_code, reason = "instructions of AVX-512 VNNI, which pulp's sets do not have")]

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _mm256_loadu_si256, _mm512_cvtepi8_epi16, _mm512_cvtepi32_ps,
    _mm512_cvtph_ps, _mm512_dpwssd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_storeu_ps,
};

use pulp::{bytemuck::cast, x86::V4};

use super::int8::{Block, Levels, PAIRS, PANEL, ROWS};

/// Columns of a vector of sums.
const LANES: usize = 16;
/// Vectors of a panel.
const VECTORS: usize = PANEL / LANES;

/// The products of `int8::add_products`. The caller has seen that the processor has VNNI.
pub(super) fn add<const R: usize>(
    _: V4,
    rows: [&[Levels]; R],
    panels: &[&[Block]],
    outs: &mut [[[f32; PANEL]; ROWS]],
) {
    assert!(std::arch::is_x86_feature_detected!("avx512vnni"), "a set without VNNI");
    // SAFETY: V4 is a proof of AVX-512's other features, and the assertion of this one.
    unsafe { in_turns(rows, panels, outs) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")]
fn in_turns<const R: usize>(
    rows: [&[Levels]; R],
    panels: &[&[Block]],
    outs: &mut [[[f32; PANEL]; ROWS]],
) {
    for block in 0..rows[0].len() {
        for (panel, out) in panels.iter().zip(&mut *outs) {
            let block = Row { x: each(&rows, block), block: &panel[block] };
            add_block(&block, out);
        }
    }
}

/// The channels of some rows that meet a block.
struct Row<'a, const R: usize> {
    x: [&'a Levels; R],
    block: &'a Block,
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")]
fn each<'a, const R: usize>(rows: &[&'a [Levels]; R], block: usize) -> [&'a Levels; R] {
    let mut x = [&rows[0][block]; R];
    for r in 1..R {
        x[r] = &rows[r][block];
    }
    x
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")]
fn add_block<const R: usize>(Row { x, block }: &Row<R>, out: &mut [[f32; PANEL]; ROWS]) {
    let mut sums: [[__m512i; VECTORS]; R] = [[_mm512_setzero_si512(); VECTORS]; R];
    for pair in 0..PAIRS {
        let (columns, _) = block.weights[pair].as_chunks::<LANES>();
        let mut weights = [_mm512_setzero_si512(); VECTORS];
        for v in 0..VECTORS {
            // SAFETY: 16 pairs of bytes are the 32 that are read, at any address.
            let bytes = unsafe { _mm256_loadu_si256(columns[v].as_ptr().cast::<__m256i>()) };
            weights[v] = _mm512_cvtepi8_epi16(bytes);
        }
        for r in 0..R {
            let x = _mm512_set1_epi32(cast(x[r][pair]));
            for v in 0..VECTORS {
                sums[r][v] = _mm512_dpwssd_epi32(sums[r][v], weights[v], x);
            }
        }
    }
    let (scales, _) = block.scales.as_chunks::<LANES>();
    for v in 0..VECTORS {
        // SAFETY: 16 numbers of two bytes are the 32 that are read, at any address.
        let bits = unsafe { _mm256_loadu_si256(scales[v].as_ptr().cast::<__m256i>()) };
        let scale: __m512 = _mm512_cvtph_ps(bits);
        for r in 0..R {
            let (outs, _) = out[r].as_chunks_mut::<LANES>();
            let out = outs[v].as_mut_ptr();
            // SAFETY: 16 numbers are read and written where 16 are, at any address.
            unsafe {
                let sum = _mm512_cvtepi32_ps(sums[r][v]);
                _mm512_storeu_ps(out, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(out)));
            }
        }
    }
}
