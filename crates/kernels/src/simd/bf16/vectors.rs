//! Blocks of a product by `vdpbf16ps`, which multiplies 16 pairs of bf16 and adds them to 16 sums in f32.

use std::arch::x86_64::*;

use crate::simd::panels::{Block, Kernel, LANES, words};

/// Rows whose sums stay in registers: with two vectors of columns 16 sums, more than the instruction takes cycles.
const ROWS: usize = 8;
/// Lanes of a tile of a panel, and the pairs of terms in each of its rows.
const TILE_LANES: usize = 16;
const PAIRS: usize = 16;
/// Words of a cache line.
const LINE: usize = 16;

/// The kernel.
pub(super) struct Vectors;

/// Whether the processor has the instruction, and those that pack for it.
pub(super) fn are_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16")
}

impl Kernel for Vectors {
    const PARTS: usize = 1;
    type Ready = ();

    unsafe fn set_up() {}

    unsafe fn make(block: &Block, (height, width): (usize, usize)) {
        let Block { a, b, .. } = *block;
        assert!(height <= LANES && width <= LANES && a.len() == b.len(), "panels of a block");
        for row in (0..height).step_by(ROWS) {
            // SAFETY: as the caller promises; rows and columns beyond these are not written.
            unsafe { make_rows(block, row, ROWS.min(height - row), width) };
        }
    }
}

/// Some rows of a block, `count` of which lie within the result.
///
/// # Safety
/// As [`Kernel::make`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn make_rows(block: &Block, row: usize, count: usize, width: usize) {
    let tile = row / TILE_LANES * TILE_LANES * PAIRS;
    let mut a = &block.a[tile + row % TILE_LANES * PAIRS..];
    let mut b = block.b;
    let mut next = block.next.as_ptr().wrapping_add(row / ROWS * LINE);
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    while b.len() >= words(1) {
        // SAFETY: both hold a step, of which the last row of `a` is 16 words long; a prefetch may point anywhere.
        unsafe {
            let (a, b) = (a[..(ROWS - 1) * PAIRS + PAIRS].as_ptr(), b.as_ptr());
            _mm_prefetch::<_MM_HINT_T1>(next.cast());
            _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(LANES / ROWS * LINE).cast());
            for pair in 0..PAIRS {
                let columns = [
                    pairs(_mm512_loadu_ps(b.add(pair * LINE))),
                    pairs(_mm512_loadu_ps(b.add(words(1) / 2 + pair * LINE))),
                ];
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = pairs(_mm512_set1_ps(*a.add(r * PAIRS + pair)));
                    sums[0] = _mm512_dpbf16_ps(sums[0], x, columns[0]);
                    sums[1] = _mm512_dpbf16_ps(sums[1], x, columns[1]);
                }
            }
        }
        next = next.wrapping_add(2 * LANES / ROWS * LINE);
        b = &b[words(1)..];
        a = a.get(words(1)..).unwrap_or_default();
    }
    let masks = [mask(width.min(LINE)), mask(width.saturating_sub(LINE))];
    for (r, sums) in sums.iter().enumerate().take(count) {
        for (v, (sum, mask)) in sums.iter().zip(masks).enumerate() {
            // SAFETY: the row lies within the result, as do the columns of the mask.
            unsafe {
                let out = block.out.add((row + r) * block.columns).wrapping_add(v * LINE);
                let old = match block.adds {
                    true => _mm512_maskz_loadu_ps(mask, out),
                    false => _mm512_setzero_ps(),
                };
                _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(old, *sum));
            }
        }
    }
}

/// The first lanes of a vector.
fn mask(count: usize) -> __mmask16 {
    ((1_u32 << count) - 1) as __mmask16
}

/// Words as pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn pairs(words: __m512) -> __m512bh {
    // SAFETY: both are 512 bits without invalid values.
    unsafe { std::mem::transmute(words) }
}
