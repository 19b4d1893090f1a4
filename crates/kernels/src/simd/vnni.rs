//! Products with block-quantized weights by `vpdpbusd`: fours of 8-bit integers multiplied and added to 32-bit sums in one
//! instruction. The sums are those of `int8.rs` to the bit.

#![expect(unsafe_code, reason = "instructions of AVX-512 VNNI, which pulp's sets do not have")]

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _mm256_loadu_si256, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
    _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
};

use pulp::{bytemuck::cast, x86::V4};

use super::int8::{Block, Levels, PANEL, QUADS, ROWS};

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
    unsafe {
        match R {
            // As many vectors as there are registers for, twice: sums of a block, and of all.
            1..=3 => in_turns::<R, VECTORS>(&rows, panels, outs),
            _ => in_turns::<R, 2>(&rows, panels, outs),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")]
fn in_turns<const R: usize, const V: usize>(
    rows: &[&[Levels]; R],
    panels: &[&[Block]],
    outs: &mut [[[f32; PANEL]; ROWS]],
) {
    let count = rows[0].len();
    let together = if panels.len() == 1 { count } else { 1 };
    for first in (0..count).step_by(together.max(1)) {
        let mut x = [&rows[0][..0]; R];
        for r in 0..R {
            x[r] = &rows[r][first..first + together];
        }
        for (panel, out) in panels.iter().zip(&mut *outs) {
            for v in (0..VECTORS).step_by(V) {
                add_blocks::<R, V>(&x, &panel[first..first + together], v, out);
            }
        }
    }
}

/// Adds what some blocks have to `V` vectors of columns, the first of which is `first`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")]
fn add_blocks<const R: usize, const V: usize>(
    rows: &[&[Levels]; R],
    blocks: &[Block],
    first: usize,
    out: &mut [[f32; PANEL]; ROWS],
) {
    let mut totals: [[__m512; V]; R] = [[_mm512_setzero_ps(); V]; R];
    for r in 0..R {
        let (outs, _) = out[r].as_chunks::<LANES>();
        for v in 0..V {
            // SAFETY: 16 numbers are read where 16 are, at any address.
            totals[r][v] = unsafe { _mm512_loadu_ps(outs[first + v].as_ptr()) };
        }
    }
    for (b, block) in blocks.iter().enumerate() {
        let mut sums: [[__m512i; V]; R] = [[_mm512_setzero_si512(); V]; R];
        for r in 0..R {
            sums[r] = [_mm512_set1_epi32(rows[r][b].start); V];
        }
        for quad in 0..QUADS {
            let (columns, _) = block.weights[quad].as_chunks::<LANES>();
            let mut weights = [_mm512_setzero_si512(); V];
            for v in 0..V {
                // SAFETY: 16 fours of bytes are the 64 that are read, at any address.
                weights[v] = unsafe { _mm512_loadu_si512(columns[first + v].as_ptr().cast()) };
            }
            for r in 0..R {
                let x = _mm512_set1_epi32(cast(rows[r][b].quads[quad]));
                for v in 0..V {
                    sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], weights[v], x);
                }
            }
        }
        let (scales, _) = block.scales.as_chunks::<LANES>();
        for v in 0..V {
            let bits = scales[first + v].as_ptr().cast::<__m256i>();
            // SAFETY: 16 numbers of two bytes are the 32 that are read, at any address.
            let scale: __m512 = _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bits) });
            for r in 0..R {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(rows[r][b].scale));
                let sum = _mm512_cvtepi32_ps(sums[r][v]);
                totals[r][v] = _mm512_fmadd_ps(sum, scale, totals[r][v]);
            }
        }
    }
    for r in 0..R {
        let (outs, _) = out[r].as_chunks_mut::<LANES>();
        for v in 0..V {
            // SAFETY: 16 numbers are written where 16 are, at any address.
            unsafe { _mm512_storeu_ps(outs[first + v].as_mut_ptr(), totals[r][v]) };
        }
    }
}
