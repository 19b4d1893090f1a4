//! Matrices as panels: each value as one bf16, or in three parts.

use std::{arch::x86_64::*, ops::Range};

use rayon::prelude::*;

use super::{Kernel, LANES, STEP, cut};
use crate::simd::gemm::Matrix;

/// 32-bit words of a tile.
const TILE: usize = 256;
/// Steps that are fetched ahead while a panel is packed.
const AHEAD: usize = 2;

/// Words of a panel's step: two tiles for each part.
pub(in crate::simd) const fn words(parts: usize) -> usize {
    2 * TILE * parts
}

/// Which matrix of a product is packed: kernels want the first by rows, the second by pairs of terms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::simd) enum Packing {
    First,
    Second,
}

/// A matrix of lanes and terms in a slice.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Source<'a> {
    pub(in crate::simd) values: &'a [f32],
    /// From one lane to the next, or from one term to the next if lanes lie side by side.
    pub(in crate::simd) stride: usize,
    /// Whether lanes lie side by side, not terms.
    pub(in crate::simd) by_lanes: bool,
    /// How far ahead values are fetched while these are packed; 0 where they are at hand.
    pub(in crate::simd) ahead: usize,
}

impl<'a> Source<'a> {
    /// Rows are lanes.
    pub(super) fn rows_of(matrix: &Matrix<'a>) -> Self {
        let by_lanes = matrix.transposed;
        let stride = if by_lanes { matrix.rows } else { matrix.columns };
        let ahead = AHEAD * STEP * if by_lanes { stride } else { 1 };
        Self { values: matrix.values, stride, by_lanes, ahead }
    }

    /// Columns are lanes.
    pub(super) fn columns_of(matrix: &Matrix<'a>) -> Self {
        Self::rows_of(&matrix.transposed())
    }
}

/// Some lanes and terms of a matrix, packed.
pub(super) struct Packed<'a> {
    /// `[panels, steps, parts, 2 tiles, 16, 16 words]`.
    words: &'a [f32],
    pub(super) lanes: Range<usize>,
    /// Words of a panel.
    length: usize,
}

impl<'a> Packed<'a> {
    /// Packs.
    pub(super) fn new<K: Kernel>(
        room: &'a mut [f32],
        source: &Source,
        lanes: Range<usize>,
        terms: &Range<usize>,
        packing: Packing,
    ) -> Self {
        let length = terms.len().div_ceil(STEP) * words(K::PARTS);
        let panels = room[..lanes.len().div_ceil(LANES) * length].par_chunks_exact_mut(length);
        let starts = lanes.clone().into_par_iter().step_by(LANES);
        panels.with_max_len(1).zip(starts).for_each(|(panel, lane)| {
            let lanes = lane..lanes.end.min(lane + LANES);
            // SAFETY: the caller of `product` has seen that the vectors are there.
            unsafe { pack::<K>(panel, source, &lanes, terms, packing) };
        });
        Self::kept::<K>(room, lanes, terms)
    }

    /// What was packed before.
    pub(super) fn kept<K: Kernel>(
        room: &'a [f32],
        lanes: Range<usize>,
        terms: &Range<usize>,
    ) -> Self {
        let length = terms.len().div_ceil(STEP) * words(K::PARTS);
        Self { words: &room[..lanes.len().div_ceil(LANES) * length], lanes, length }
    }

    pub(super) fn panel(&self, panel: usize) -> &[f32] {
        &self.words[panel * self.length..][..self.length]
    }

    pub(super) fn panels(&self) -> usize {
        self.lanes.len().div_ceil(LANES)
    }
}

/// A panel of up to 32 lanes; what is missing becomes 0.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn pack<K: Kernel>(
    panel: &mut [f32],
    source: &Source,
    lanes: &Range<usize>,
    terms: &Range<usize>,
    packing: Packing,
) {
    for (step, terms) in panel.chunks_exact_mut(words(K::PARTS)).zip(cut(terms.clone(), STEP)) {
        match K::PARTS {
            1 => pack_rounded(step, source, lanes, &terms, packing),
            _ => pack_parts(step, source, lanes, &terms, packing),
        }
    }
}

/// One step of a panel of values rounded to bf16: pairs of terms are words, of which 16 × 16 turn at once where they lie the
/// other way.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_rounded(
    step: &mut [f32],
    source: &Source,
    lanes: &Range<usize>,
    terms: &Range<usize>,
    packing: Packing,
) {
    for (half, tile) in step.chunks_exact_mut(TILE).enumerate() {
        let first = lanes.start + 16 * half;
        let lanes = first..lanes.end.min(first + 16).max(first);
        if lanes.is_empty() {
            tile.fill(0.0);
            continue;
        }
        let turns = source.by_lanes == (packing == Packing::First);
        // A pair of 16 lanes, or a lane's 16 pairs.
        match source.by_lanes {
            true => {
                let rows = Rows::new(source, terms, &lanes);
                pack_words(tile, turns, |i| {
                    let words = round(rows.load(2 * i, 0), rows.load(2 * i + 1, 0));
                    _mm512_permutexvar_epi16(alternating(), words)
                });
            }
            false => {
                let rows = Rows::new(source, &lanes, terms);
                pack_words(tile, turns, |i| round(rows.load(i, 0), rows.load(i, 16)));
            }
        }
    }
}

/// 16 vectors of words as the rows of a tile, or as its columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_words(tile: &mut [f32], turns: bool, words: impl Fn(usize) -> __m512i) {
    if turns {
        let mut rows = [_mm512_setzero_ps(); 16];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = _mm512_castsi512_ps(words(i));
        }
        for (to, column) in tile.chunks_exact_mut(16).zip(turned(rows)) {
            store(to, _mm512_castps_si512(column));
        }
    } else {
        for (i, to) in tile.chunks_exact_mut(16).enumerate() {
            store(to, words(i));
        }
    }
}

/// A rectangle of a slice, up to 32 × 32.
struct Rows {
    first: *const f32,
    stride: usize,
    ahead: usize,
    count: usize,
    /// A bit for each value of a row.
    mask: u32,
}

impl Rows {
    fn new(source: &Source, rows: &Range<usize>, along: &Range<usize>) -> Self {
        let (count, width) = (rows.len(), along.len());
        assert!(count > 0 && (1..=32).contains(&width), "a step of a panel");
        let Source { values, stride, ahead, .. } = *source;
        let values = &values[rows.start * stride + along.start..][..(count - 1) * stride + width];
        Self { first: values.as_ptr(), stride, ahead, count, mask: u32::MAX >> (32 - width) }
    }

    /// 16 values of a row from one on, 0 beyond the rectangle.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(&self, row: usize, from: usize) -> __m512 {
        let mask = if row < self.count { (self.mask >> from) as __mmask16 } else { 0 };
        let values = self.first.wrapping_add(row * self.stride + from);
        // SAFETY: `new` has seen all that the masks let through; a prefetch may point anywhere.
        unsafe {
            if self.ahead > 0 {
                _mm_prefetch::<_MM_HINT_T0>(values.wrapping_add(self.ahead).cast());
            }
            _mm512_maskz_loadu_ps(mask, values)
        }
    }
}

/// Up to 16 values along a row of the slice, 0 beyond the range.
#[target_feature(enable = "avx512f")]
fn load(source: &Source, row: usize, along: &Range<usize>) -> __m512 {
    if along.is_empty() {
        return _mm512_setzero_ps();
    }
    let mask = ((1_u32 << along.len()) - 1) as __mmask16;
    let values = &source.values[row * source.stride + along.start..][..along.len()];
    // SAFETY: nothing is loaded beyond the mask, and the slice holds as many values; a prefetch may point anywhere.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().wrapping_add(source.ahead).cast());
        _mm512_maskz_loadu_ps(mask, values.as_ptr())
    }
}

/// Both as bf16, the second behind the first; to the nearest, ties to even.
#[target_feature(enable = "avx512f,avx512bf16")]
fn round(x: __m512, y: __m512) -> __m512i {
    // SAFETY: both are 512 bits without invalid values.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(y, x)) }
}

/// One step of a panel in three parts of up to 32 lanes and 32 terms.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_parts(
    step: &mut [f32],
    source: &Source,
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
            block(source, &lanes, &(terms.start..middle), packing),
            block(source, &lanes, &(middle..terms.end), packing),
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
        let words = round(x, y);
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
    source: &Source,
    lanes: &Range<usize>,
    terms: &Range<usize>,
    packing: Packing,
) -> [__m512; 16] {
    // Along what the slice is contiguous: vectors are loaded along it, one for each step across.
    let (along, across) = if source.by_lanes { (lanes, terms) } else { (terms, lanes) };
    let along = along.start..along.end.min(along.start + 16);
    let mut vectors = [_mm512_setzero_ps(); 16];
    for (vector, row) in vectors.iter_mut().zip(across.clone()) {
        *vector = load(source, row, &along);
    }
    match source.by_lanes == (packing == Packing::Second) {
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
