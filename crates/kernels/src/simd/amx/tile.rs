//! The tiles themselves: a block of the result from two panels.

use std::arch::asm;

use crate::simd::panels::{Block, Kernel, LANES, words};

/// Loads a part of the first matrix, of which the offset in bytes is given: two tiles of rows.
macro_rules! first {
    ($part:literal) => {
        concat!(
            "tileloadd tmm4, [{a} + {row} + ",
            $part,
            "]\n",
            "tileloadd tmm5, [{a} + {row} + ",
            $part,
            " + 1024]",
        )
    };
}

/// The same of the second matrix: two tiles of columns.
macro_rules! second {
    ($part:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {row} + ",
            $part,
            "]\n",
            "tileloadd tmm7, [{b} + {row} + ",
            $part,
            " + 1024]",
        )
    };
}

/// Adds the products of the parts that are loaded, and fetches four cache lines of what comes next.
macro_rules! products {
    ($line:literal) => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "prefetcht1 [{next} + ",
            $line,
            "]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "prefetcht1 [{next} + ",
            $line,
            " + 64]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "prefetcht1 [{next} + ",
            $line,
            " + 128]\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            "prefetcht1 [{next} + ",
            $line,
            " + 192]",
        )
    };
}

/// Six products of three parts, which keep what f32 keeps.
pub(in crate::simd) struct Exact;

/// One product of values rounded to bf16.
pub(in crate::simd) struct Rounded;

impl Kernel for Exact {
    const PARTS: usize = 3;
    type Ready = Tiles;

    unsafe fn set_up() -> Tiles {
        // SAFETY: as the caller promises.
        unsafe { Tiles::new() }
    }

    unsafe fn make(block: &Block, size: (usize, usize)) {
        // SAFETY: as the caller promises.
        unsafe { whole_or_edge(block, size, Self::whole) };
    }
}

impl Kernel for Rounded {
    const PARTS: usize = 1;
    type Ready = Tiles;

    unsafe fn set_up() -> Tiles {
        // SAFETY: as the caller promises.
        unsafe { Tiles::new() }
    }

    unsafe fn make(block: &Block, size: (usize, usize)) {
        // SAFETY: as the caller promises.
        unsafe { whole_or_edge(block, size, Self::whole) };
    }
}

/// The part of a block that lies within the result; at its lower or right edge by way of a block beside it.
///
/// # Safety
/// As [`Kernel::make`].
unsafe fn whole_or_edge(block: &Block, (height, width): (usize, usize), whole: unsafe fn(&Block)) {
    if (height, width) == (LANES, LANES) {
        // SAFETY: as the caller promises.
        return unsafe { whole(block) };
    }
    let mut room = [0.0; LANES * LANES];
    let inner = Block { out: room.as_mut_ptr(), columns: LANES, adds: false, ..*block };
    // SAFETY: the room holds a whole block, the result its part.
    unsafe {
        whole(&inner);
        for (row, values) in room.chunks_exact(LANES).take(height).enumerate() {
            let out = std::slice::from_raw_parts_mut(block.out.add(row * block.columns), width);
            for (out, value) in out.iter_mut().zip(values) {
                *out = if block.adds { *out + value } else { *value };
            }
        }
    }
}

/// The steps of two panels, which are equal.
fn steps(block: &Block, parts: usize) -> usize {
    let steps = block.a.len() / words(parts);
    let whole = block.a.len() == steps * words(parts) && block.b.len() == block.a.len();
    assert!(steps > 0 && whole, "panels of equal steps");
    steps
}

impl Exact {
    /// The block.
    ///
    /// # Safety
    /// Tiles are set up; the block lies within the result, and nobody else touches it.
    unsafe fn whole(block: &Block) {
        let steps = steps(block, Self::PARTS);
        let Block { out, columns, adds, a, b, next } = *block;
        // SAFETY: loads stay within the panels, loads and stores of the result within the block.
        unsafe {
            asm!(
                "test {adds:e}, {adds:e}",
                "jz 3f",
                "tileloadd tmm0, [{c} + {stride}]",
                "tileloadd tmm1, [{c} + {stride} + 64]",
                "tileloadd tmm2, [{lower} + {stride}]",
                "tileloadd tmm3, [{lower} + {stride} + 64]",
                "jmp 2f",
                "3:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                first!("0"),
                second!("4096"),
                products!("0"), // h·l'
                second!("2048"),
                products!("256"), // h·m'
                first!("2048"),
                products!("512"), // m·m'
                second!("0"),
                products!("768"), // m·h'
                first!("4096"),
                products!("1024"), // l·h'
                first!("0"),
                products!("1280"), // h·h'
                "add {next}, {fetched}",
                "add {a}, {step}",
                "add {b}, {step}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + {stride}], tmm0",
                "tilestored [{c} + {stride} + 64], tmm1",
                "tilestored [{lower} + {stride}], tmm2",
                "tilestored [{lower} + {stride} + 64], tmm3",
                next = inout(reg) next.as_ptr() => _,
                a = inout(reg) a.as_ptr() => _,
                b = inout(reg) b.as_ptr() => _,
                c = in(reg) out,
                lower = in(reg) out.add(16 * columns),
                stride = in(reg) columns * size_of::<f32>(),
                row = in(reg) 64_usize,
                steps = inout(reg) steps => _,
                adds = in(reg) u32::from(adds),
                step = const words(3) * size_of::<f32>(),
                fetched = const words(3),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }
}

impl Rounded {
    /// The block.
    ///
    /// # Safety
    /// As [`Exact::whole`].
    unsafe fn whole(block: &Block) {
        let steps = steps(block, Self::PARTS);
        let Block { out, columns, adds, a, b, next } = *block;
        // SAFETY: as above.
        unsafe {
            asm!(
                "test {adds:e}, {adds:e}",
                "jz 3f",
                "tileloadd tmm0, [{c} + {stride}]",
                "tileloadd tmm1, [{c} + {stride} + 64]",
                "tileloadd tmm2, [{lower} + {stride}]",
                "tileloadd tmm3, [{lower} + {stride} + 64]",
                "jmp 2f",
                "3:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                first!("0"),
                second!("0"),
                products!("0"),
                "prefetcht1 [{next} + 256]",
                "prefetcht1 [{next} + 320]",
                "prefetcht1 [{next} + 384]",
                "prefetcht1 [{next} + 448]",
                "add {next}, {fetched}",
                "add {a}, {step}",
                "add {b}, {step}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{c} + {stride}], tmm0",
                "tilestored [{c} + {stride} + 64], tmm1",
                "tilestored [{lower} + {stride}], tmm2",
                "tilestored [{lower} + {stride} + 64], tmm3",
                next = inout(reg) next.as_ptr() => _,
                a = inout(reg) a.as_ptr() => _,
                b = inout(reg) b.as_ptr() => _,
                c = in(reg) out,
                lower = in(reg) out.add(16 * columns),
                stride = in(reg) columns * size_of::<f32>(),
                row = in(reg) 64_usize,
                steps = inout(reg) steps => _,
                adds = in(reg) u32::from(adds),
                step = const words(1) * size_of::<f32>(),
                fetched = const words(1),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }
}

/// The tiles of this thread, set up to 16 rows of 64 bytes each; their state is given back in the end.
pub(in crate::simd) struct Tiles;

impl Tiles {
    /// # Safety
    /// [`is_available`](super::is_available).
    unsafe fn new() -> Self {
        #[repr(C, align(64))]
        struct Setup {
            palette: u8,
            start: u8,
            reserved: [u8; 14],
            bytes: [u16; 16],
            rows: [u8; 16],
        }
        let each = |size| std::array::from_fn(|tile| if tile < 8 { size } else { 0 });
        let bytes = each(64).map(u16::from);
        let setup = Setup { palette: 1, start: 0, reserved: [0; 14], bytes, rows: each(16) };
        // SAFETY: the setup is 64 bytes of the form the instruction reads.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &setup, options(nostack, readonly)) };
        Self
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: tiles were set up, so the instruction exists.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
