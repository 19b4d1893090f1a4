//! Products of whole matrices on AMX tiles: with the precision of f32, or of values rounded to bf16.
//!
//! Tiles multiply bf16 sixteen times as fast as AVX-512 multiplies f32, and add in f32. Three bf16 hold an f32: its
//! leading 8 bits, the next 8 and the rest, `x = h + m + l`. Of the nine products of two such sums, six are taken, small
//! ones first: `h·l' + h·m' + m·m' + m·h' + l·h' + h·h'`. What is left out is below 2⁻²⁶ of `x·y`, less than f32 loses by
//! rounding it. Infinite values make NaN, and values below 2⁻¹²⁶ count as 0.
//!
//! A block of 32 × 32 is made in four tiles.

#![expect(unsafe_code, reason = "tiles exist in assembly only, vectors load from pointers")]

#[cfg(test)]
mod tests;
mod tile;

use std::{
    arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count},
    },
    sync::OnceLock,
};

pub(super) use tile::{Exact, Rounded};

use super::{
    gemm::{Matrix, Out},
    panels,
};

/// Smaller products take as long to pack as tiles save: fewer rows or columns, fewer terms, fewer multiplications.
const NARROW: usize = 128;
const SHALLOW: usize = 256;
const SMALL: usize = 1 << 26;

/// Whether tiles are there, and a product of these sizes is faster with them.
pub(super) fn pays(rows: usize, columns: usize, inner: usize) -> bool {
    rows.min(columns) >= NARROW
        && inner >= SHALLOW
        && rows * columns * inner >= SMALL
        && is_available()
}

/// Whether processor and system let this process use tiles.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
            && has_tiles()
            && permit()
    })
}

fn has_tiles() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    let wanted = BF16 | TILES;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & wanted == wanted
}

/// Asks Linux for the tiles' state; the answer holds for all threads of the process.
fn permit() -> bool {
    const ARCH_PRCTL: isize = 158;
    const REQUEST_PERMISSION: isize = 0x1023;
    const TILE_DATA: isize = 18;
    let result: isize;
    // SAFETY: the call changes nothing but what the process may use; registers are listed as the system's convention says.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result == 0
}

/// `out = a · b`, or `out += a · b`, as in `gemm::product`, which has checked the sizes.
///
/// # Safety
/// [`is_available`]; `out` begins `a.rows · b.columns` values that nobody else touches meanwhile.
pub(super) unsafe fn product(out: Out, adds: bool, a: Matrix, b: Matrix) {
    // SAFETY: as the caller promises; where tiles are, AVX512-BF16 is.
    unsafe { panels::product::<Exact>(out, adds, a, b) };
}
