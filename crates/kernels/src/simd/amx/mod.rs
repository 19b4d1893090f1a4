//! Products of whole matrices on AMX tiles, with the precision of f32.
//!
//! Tiles multiply bf16 sixteen times as fast as AVX-512 multiplies f32, and add in f32. Three bf16 hold an f32: its
//! leading 8 bits, the next 8 and the rest, `x = h + m + l`. Of the nine products of two such sums, six are taken, small
//! ones first: `h·l' + h·m' + m·m' + m·h' + l·h' + h·h'`. What is left out is below 2⁻²⁶ of `x·y`, less than f32 loses by
//! rounding it. Infinite values make NaN, and values below 2⁻¹²⁶ count as 0.
//!
//! Both matrices are packed into panels of 32 lanes (rows of the first, columns of the second), 32 terms of the sum at a
//! time; a block of the result of 32 × 32 is made in four tiles. A block belongs to one task and is summed in one order,
//! so results are the same bits on any number of threads.

#![expect(unsafe_code, reason = "tiles exist in assembly only, vectors load from pointers")]

mod pack;
#[cfg(test)]
mod tests;
mod tile;

use std::{
    arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count},
    },
    ops::Range,
    sync::OnceLock,
};

use rayon::prelude::*;

use pack::{Packed, Packing};
use tile::{Block, Tiles};

use super::gemm::{Matrix, Out};
use crate::Pooled;

/// Lanes of a panel: two tiles of 16.
const LANES: usize = 32;
/// Terms of the sum in a step: what a tile's row of 64 bytes holds as bf16.
const STEP: usize = 32;
/// Terms that are packed at once: two blocks of 128 lanes fit the L2 cache (2 · 128 · 1024 · 6 B = 1.5 MiB).
const DEPTH: usize = 1024;
/// Lanes that are packed at once, 12 MiB of each matrix at most.
const SIDE: usize = 2048;
/// Columns of a task.
const CHUNK: usize = 128;
/// Tasks for each thread, if there are so many blocks. Results do not depend on how they are cut.
const TASKS: usize = 4;
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
    let (rows, columns, inner) = (a.rows, b.columns, a.columns);
    let depth = inner.min(DEPTH).next_multiple_of(STEP);
    let room = |lanes: usize| lanes.min(SIDE).next_multiple_of(LANES) * depth * 3 / 2 + 16;
    let (mut a_room, mut b_room) =
        (Pooled::uncleared(room(rows)), Pooled::uncleared(room(columns)));
    let (a_room, b_room) = (aligned(&mut a_room), aligned(&mut b_room));
    for terms in cut(0..inner, DEPTH) {
        let adds = adds || terms.start > 0;
        for right in cut(0..columns, SIDE) {
            let b = Packed::new(b_room, b.transposed(), right.clone(), &terms, Packing::Second);
            for left in cut(0..rows, SIDE) {
                let a = match rows <= SIDE && right.start > 0 {
                    true => Packed::kept(a_room, left, &terms),
                    false => Packed::new(a_room, a, left, &terms, Packing::First),
                };
                // SAFETY: tiles are available, rows and columns lie within the result, and it is ours alone.
                unsafe { multiply(out, columns, adds, &a, &b) };
            }
        }
    }
}

/// Ranges of at most `size`, in order.
fn cut(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    all.clone().step_by(size).map(move |first| first..all.end.min(first + size))
}

/// From the first cache line on.
fn aligned(room: &mut [f32]) -> &mut [f32] {
    let skip = room.as_ptr().align_offset(64).min(15);
    &mut room[skip..]
}

/// Adds or writes the product of two packed parts.
///
/// # Safety
/// [`is_available`]; `out` begins rows of `columns` values, which nobody else touches, and the lanes lie within them.
unsafe fn multiply(out: Out, columns: usize, adds: bool, a: &Packed, b: &Packed) {
    // A task keeps some columns in the L2 cache while rows pass by: as many as leave work for all threads.
    let right: Vec<Range<usize>> = cut(0..b.panels(), CHUNK / LANES).collect();
    let parts = (TASKS * rayon::current_num_threads() / right.len()).clamp(1, a.panels());
    let left: Vec<Range<usize>> = cut(0..a.panels(), a.panels().div_ceil(parts)).collect();
    let tasks = (0..left.len() * right.len()).into_par_iter().with_max_len(1);
    tasks.for_each(|task| {
        // SAFETY: tiles are available.
        let _tiles = unsafe { Tiles::new() };
        let (left, right) = (&left[task % left.len()], &right[task / left.len()]);
        for i in left.clone() {
            for j in right.clone() {
                let (row, column) = (a.lanes.start + i * LANES, b.lanes.start + j * LANES);
                let height = LANES.min(a.lanes.end - row);
                let width = LANES.min(b.lanes.end - column);
                let next = a.panel((i + 1).min(left.end - 1));
                let next = &next[next.len() / right.len() * (j - right.start)..];
                let (a, b) = (a.panel(i), b.panel(j));
                // SAFETY: the block lies within the result, no other task has it, and this thread has set up its tiles.
                unsafe {
                    let out = out.at(row * columns + column);
                    let block = Block { out, columns, adds, a, b, next };
                    match (height, width) {
                        (LANES, LANES) => block.whole(),
                        size => block.edge(size),
                    }
                }
            }
        }
    });
}
