//! Matrices as the tiles want them: each value in three parts of bf16.

use std::{arch::x86_64::*, ops::Range};

use rayon::prelude::*;

use super::{LANES, STEP, cut};
use crate::simd::gemm::Matrix;

/// 32-bit words of a tile.
const TILE: usize = 256;
/// Words of a panel's step: three parts of two tiles.
pub(super) const PACKED: usize = 6 * TILE;
/// Steps that are fetched ahead while a panel is packed.
const AHEAD: usize = 2;

/// Which matrix of a product is packed: tiles want the first by rows, the second by pairs of terms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    First,
    Second,
}

/// Some lanes and terms of a matrix, as the tiles want them.
pub(super) struct Packed<'a> {
    /// `[panels, steps, 3 parts, 2 tiles, 16, 16 words]`.
    words: &'a [f32],
    pub(super) lanes: Range<usize>,
    steps: usize,
}

impl<'a> Packed<'a> {
    /// Packs; the lanes are the matrix's rows, the terms its columns.
    pub(super) fn new(
        room: &'a mut [f32],
        matrix: Matrix,
        lanes: Range<usize>,
        terms: &Range<usize>,
        packing: Packing,
    ) -> Self {
        let steps = terms.len().div_ceil(STEP);
        let length = lanes.len().div_ceil(LANES) * steps * PACKED;
        let panels = room[..length].par_chunks_exact_mut(steps * PACKED).with_max_len(1);
        panels.zip(lanes.clone().into_par_iter().step_by(LANES)).for_each(|(panel, lane)| {
            let lanes = lane..lanes.end.min(lane + LANES);
            for (step, terms) in panel.chunks_exact_mut(PACKED).zip(cut(terms.clone(), STEP)) {
                // SAFETY: the caller of `product` has seen that the vectors are there.
                unsafe { pack(step, &matrix, &lanes, &terms, packing) };
            }
        });
        Self::kept(room, lanes, terms)
    }

    /// What was packed before.
    pub(super) fn kept(room: &'a [f32], lanes: Range<usize>, terms: &Range<usize>) -> Self {
        let steps = terms.len().div_ceil(STEP);
        Self { words: &room[..lanes.len().div_ceil(LANES) * steps * PACKED], lanes, steps }
    }

    pub(super) fn panel(&self, panel: usize) -> &[f32] {
        &self.words[panel * self.steps * PACKED..][..self.steps * PACKED]
    }

    pub(super) fn panels(&self) -> usize {
        self.lanes.len().div_ceil(LANES)
    }
}

/// One step of a panel: three parts of up to 32 lanes and 32 terms; what is missing becomes 0.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack(
    step: &mut [f32],
    matrix: &Matrix,
    lanes: &Range<usize>,
    terms: &Range<usize>,
    packing: Packing,
) {
    let (tiles, _) = step.as_chunks_mut::<TILE>();
    let [h, h_1, m, m_1, l, l_1] = tiles else { unreachable!("six tiles") };
    for (half, mut tiles) in [[h, m, l], [h_1, m_1, l_1]].into_iter().enumerate() {
        let first = lanes.start + 16 * half;
        let lanes = first..lanes.end.max(first);
        let middle = (terms.start + 16).min(terms.end);
        let blocks = [
            block(matrix, &lanes, &(terms.start..middle), packing),
            block(matrix, &lanes, &(middle..terms.end), packing),
        ];
        for row in 0..16 {
            // By rows: a lane's 32 terms. By pairs: two terms of 16 lanes, which alternate.
            let (x, y) = match packing {
                Packing::First => (blocks[0][row], blocks[1][row]),
                Packing::Second => {
                    let block = &blocks[row / 8];
                    (block[row % 8 * 2], block[row % 8 * 2 + 1])
                }
            };
            for (tile, words) in tiles.iter_mut().zip(parts(x, y, packing)) {
                store(&mut tile[row * 16..row * 16 + 16], words);
            }
        }
    }
}

/// The three parts of 32 values as bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn parts(mut x: __m512, mut y: __m512, packing: Packing) -> [__m512i; 3] {
    let mut parts = [_mm512_setzero_si512(); 3];
    for part in &mut parts {
        // SAFETY: both are 512 bits without invalid values.
        let words: __m512i = unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(y, x)) };
        x = _mm512_sub_ps(x, widened(_mm512_castsi512_si256(words)));
        y = _mm512_sub_ps(y, widened(_mm512_extracti64x4_epi64::<1>(words)));
        *part = match packing {
            Packing::First => words,
            Packing::Second => _mm512_permutexvar_epi16(alternating(), words),
        };
    }
    parts
}

/// bf16 as f32.
#[target_feature(enable = "avx512f")]
fn widened(words: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words)))
}

/// The words 0, 16, 1, 17, … 15, 31.
#[target_feature(enable = "avx512f")]
fn alternating() -> __m512i {
    let low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let high = _mm512_slli_epi32::<16>(_mm512_add_epi32(low, _mm512_set1_epi32(16)));
    _mm512_or_si512(low, high)
}

#[target_feature(enable = "avx512f")]
fn store(to: &mut [f32], words: __m512i) {
    assert_eq!(to.len(), 16);
    // SAFETY: there is room for 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) };
}

/// 16 lanes × 16 terms: one vector for each lane (first packing) or for each term (second); 0 beyond the ranges.
#[target_feature(enable = "avx512f")]
fn block(
    matrix: &Matrix,
    lanes: &Range<usize>,
    terms: &Range<usize>,
    packing: Packing,
) -> [__m512; 16] {
    // Along what the slice is contiguous: vectors are loaded along it, one for each step across.
    let (along, across, stride, ahead) = match matrix.transposed {
        false => (terms, lanes, matrix.columns, AHEAD * STEP),
        true => (lanes, terms, matrix.rows, AHEAD * STEP * matrix.rows),
    };
    let count = along.len().min(16);
    if count == 0 {
        return [_mm512_setzero_ps(); 16];
    }
    let mask = ((1_u32 << count) - 1) as __mmask16;
    let mut vectors = [_mm512_setzero_ps(); 16];
    for (vector, row) in vectors.iter_mut().zip(across.clone()) {
        let values = &matrix.values[row * stride + along.start..][..count];
        // SAFETY: nothing is loaded beyond the mask, and the slice holds as many values; a prefetch may point anywhere.
        *vector = unsafe {
            _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().wrapping_add(ahead).cast());
            _mm512_maskz_loadu_ps(mask, values.as_ptr())
        };
    }
    match matrix.transposed == (packing == Packing::Second) {
        true => vectors,
        false => turned(vectors),
    }
}

/// The transpose of 16 × 16 values.
#[target_feature(enable = "avx512f")]
fn turned(rows: [__m512; 16]) -> [__m512; 16] {
    let mut pairs = rows;
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let mut fours = pairs;
    for i in (0..16).step_by(4) {
        for j in 0..2 {
            let (x, y) = (_mm512_castps_pd(pairs[i + j]), _mm512_castps_pd(pairs[i + j + 2]));
            fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    // fours[4 g + c] holds, in each quarter q, column 4 q + c of the rows 4 g to 4 g + 3.
    let mut columns = fours;
    for c in 0..4 {
        let [p, q, r, s] = [fours[c], fours[4 + c], fours[8 + c], fours[12 + c]];
        let (low, high) = (_mm512_shuffle_f32x4::<0x88>(p, q), _mm512_shuffle_f32x4::<0x88>(r, s));
        columns[c] = _mm512_shuffle_f32x4::<0x88>(low, high);
        columns[8 + c] = _mm512_shuffle_f32x4::<0xDD>(low, high);
        let (low, high) = (_mm512_shuffle_f32x4::<0xDD>(p, q), _mm512_shuffle_f32x4::<0xDD>(r, s));
        columns[4 + c] = _mm512_shuffle_f32x4::<0x88>(low, high);
        columns[12 + c] = _mm512_shuffle_f32x4::<0xDD>(low, high);
    }
    columns
}
