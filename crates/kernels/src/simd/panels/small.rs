//! Small products on one thread, as attention has them for its tiles: both matrices are packed in scratch of the thread.

use std::cell::RefCell;

use super::{
    Block, Kernel, LANES, STEP, cut,
    pack::{Packing, Source, pack, words},
};
use crate::{
    memory::scratch::Buffer,
    simd::matmul::{Accumulate, Matmul},
};

thread_local! {
    /// Panels of both matrices.
    static ROOMS: RefCell<[Buffer; 2]> = RefCell::default();
}

/// The product, of values rounded to bf16; none of its sizes is 0.
///
/// # Safety
/// The processor has the kernel's instructions and AVX512-BF16.
pub(in crate::simd) unsafe fn small_product<K: Kernel>(product: Matmul) {
    product.check();
    let Matmul { rows, cols, inner, a, a_row, a_step, b, b_row, c, c_row, old } = product;
    assert!(a_row == 1 || a_step == 1, "values lie side by side one way or the other");
    let a = Source { values: a, stride: a_row.max(a_step), by_lanes: a_step != 1, ahead: 0 };
    let b = Source { values: b, stride: b_row, by_lanes: true, ahead: 0 };
    let adds = match old {
        Accumulate::Overwrite => false,
        Accumulate::Add => true,
        Accumulate::ScaleAdd(factors) => {
            for (c, factor) in c.chunks_mut(c_row).zip(factors).take(rows) {
                c[..cols].iter_mut().for_each(|c| *c *= factor);
            }
            true
        }
    };
    let length = inner.div_ceil(STEP) * words(K::PARTS);
    ROOMS.with_borrow_mut(|[a_room, b_room]| {
        let a_panels = a_room.sized(rows.div_ceil(LANES) * length);
        let b_panels = b_room.sized(cols.div_ceil(LANES) * length);
        // SAFETY: as the caller promises.
        let _ready = unsafe {
            for (panel, lanes) in a_panels.chunks_exact_mut(length).zip(cut(0..rows, LANES)) {
                pack::<K>(panel, &a, &lanes, &(0..inner), Packing::First);
            }
            for (panel, lanes) in b_panels.chunks_exact_mut(length).zip(cut(0..cols, LANES)) {
                pack::<K>(panel, &b, &lanes, &(0..inner), Packing::Second);
            }
            K::set_up()
        };
        for (a, left) in a_panels.chunks_exact(length).zip(cut(0..rows, LANES)) {
            for (b, right) in b_panels.chunks_exact(length).zip(cut(0..cols, LANES)) {
                let out = c[left.start * c_row + right.start..].as_mut_ptr();
                let block = Block { out, columns: c_row, adds, a, b, next: a };
                // SAFETY: `check` has seen that the last of the block's rows and columns lies within the result.
                unsafe { K::make(&block, (left.len(), right.len())) };
            }
        }
    });
}
