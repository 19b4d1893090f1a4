//! Products of whole matrices from panels of bf16, added up in f32, whatever the instructions that multiply them.
//!
//! Both matrices are packed into panels of 32 lanes (rows of the first, columns of the second), 32 terms of the sum at a
//! time, each value as so many bf16 as its [`Kernel`] takes; a block of the result of 32 × 32 is made of two panels. A block
//! belongs to one task and is summed in one order, so results are the same bits on any number of threads.

#![expect(unsafe_code, reason = "blocks are written through pointers, vectors load from pointers")]

mod pack;
mod small;

use std::ops::Range;

use rayon::prelude::*;

pub(super) use pack::words;
use pack::{Packed, Packing, Source};
pub(super) use small::small_product;

use super::gemm::{Matrix, Out};
use crate::Pooled;

/// Lanes of a panel: two tiles of 16.
pub(super) const LANES: usize = 32;
/// Terms of the sum in a step: what a tile's row of 64 bytes holds as bf16.
pub(super) const STEP: usize = 32;
/// Terms that are packed at once: two blocks of 128 lanes fit the L2 cache (2 · 128 · 1024 · 6 B = 1.5 MiB of three parts).
pub(super) const DEPTH: usize = 1024;
/// Lanes that are packed at once, 12 MiB of each matrix at most.
pub(super) const SIDE: usize = 2048;
/// Columns of a task.
const CHUNK: usize = 128;
/// Tasks for each thread, if there are so many blocks. Results do not depend on how they are cut.
const TASKS: usize = 4;

/// What multiplies panels.
pub(super) trait Kernel {
    /// The bf16 that a value is packed as: one is the value rounded, three are the value.
    const PARTS: usize;
    /// What a thread sets up before it makes blocks, and gives back when it is dropped.
    type Ready;

    /// # Safety
    /// The processor has the kernel's instructions.
    unsafe fn set_up() -> Self::Ready;

    /// Makes the block, of which so many rows and columns lie within the result.
    ///
    /// # Safety
    /// The thread is set up; these rows and columns lie within the result, and nobody else touches them.
    unsafe fn make(block: &Block, size: (usize, usize));
}

/// A block of 32 × 32 of the result, and the panels it is the product of.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) out: *mut f32,
    /// From one row of the result to the next.
    pub(super) columns: usize,
    pub(super) adds: bool,
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    /// A part of a panel that is fetched meanwhile.
    pub(super) next: &'a [f32],
}

/// `out = a · b`, or `out += a · b`, as in `gemm::product`, which has checked the sizes.
///
/// # Safety
/// The processor has the kernel's instructions and AVX512-BF16; `out` begins `a.rows · b.columns` values that nobody else
/// touches meanwhile.
pub(super) unsafe fn product<K: Kernel>(out: Out, adds: bool, a: Matrix, b: Matrix) {
    let (rows, columns, inner) = (a.rows, b.columns, a.columns);
    let depth = inner.min(DEPTH).next_multiple_of(STEP);
    let room = |lanes: usize| lanes.min(SIDE).next_multiple_of(LANES) * depth * K::PARTS / 2 + 16;
    let (mut a_room, mut b_room) =
        (Pooled::uncleared(room(rows)), Pooled::uncleared(room(columns)));
    let (a_room, b_room) = (aligned(&mut a_room), aligned(&mut b_room));
    let (a, b) = (Source::rows_of(&a), Source::columns_of(&b));
    for terms in cut(0..inner, DEPTH) {
        let adds = adds || terms.start > 0;
        for right in cut(0..columns, SIDE) {
            let b = Packed::new::<K>(b_room, &b, right.clone(), &terms, Packing::Second);
            for left in cut(0..rows, SIDE) {
                let a = match rows <= SIDE && right.start > 0 {
                    true => Packed::kept::<K>(a_room, left, &terms),
                    false => Packed::new::<K>(a_room, &a, left, &terms, Packing::First),
                };
                // SAFETY: as the caller promises; rows and columns lie within the result.
                unsafe { multiply::<K>(out, columns, adds, &a, &b) };
            }
        }
    }
}

/// Ranges of at most `size`, in order.
pub(super) fn cut(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
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
/// As [`product`]; `out` begins rows of `columns` values, which nobody else touches, and the lanes lie within them.
unsafe fn multiply<K: Kernel>(out: Out, columns: usize, adds: bool, a: &Packed, b: &Packed) {
    // A task keeps some columns in the L2 cache while rows pass by: as many as leave work for all threads.
    let right: Vec<Range<usize>> = cut(0..b.panels(), CHUNK / LANES).collect();
    let parts = (TASKS * rayon::current_num_threads() / right.len()).clamp(1, a.panels());
    let left: Vec<Range<usize>> = cut(0..a.panels(), a.panels().div_ceil(parts)).collect();
    let tasks = (0..left.len() * right.len()).into_par_iter().with_max_len(1);
    tasks.for_each(|task| {
        // SAFETY: the caller has seen the kernel's instructions.
        let _ready = unsafe { K::set_up() };
        let (left, right) = (&left[task % left.len()], &right[task / left.len()]);
        for i in left.clone() {
            for j in right.clone() {
                let (row, column) = (a.lanes.start + i * LANES, b.lanes.start + j * LANES);
                let size = (LANES.min(a.lanes.end - row), LANES.min(b.lanes.end - column));
                let next = a.panel((i + 1).min(left.end - 1));
                let next = &next[next.len() / right.len() * (j - right.start)..];
                let (a, b) = (a.panel(i), b.panel(j));
                // SAFETY: the block lies within the result, no other task has it, and this thread is set up.
                unsafe {
                    let out = out.at(row * columns + column);
                    K::make(&Block { out, columns, adds, a, b, next }, size);
                }
            }
        }
    });
}
