//! Products of values rounded to bf16, added up in f32: on AMX tiles, by AVX512-BF16, or by plain code.
//!
//! Values are rounded to the nearest bf16, ties to even; those below 2⁻¹²⁶ count as 0, infinite ones and NaN stay what they
//! are, and what is larger than the largest bf16 becomes infinite. Plain code rounds copies of both matrices and multiplies
//! them in f32: the same products, added up in another order.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "instructions are chosen by what the processor has")
)]

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vectors;

use std::{cell::RefCell, sync::OnceLock};

use pulp::WithSimd;
use rayon::prelude::*;

use super::{
    Simd,
    gemm::{self, Matrix},
    matmul::Matmul,
};
use crate::{Pooled, memory::scratch::Buffer};

/// Values that a task rounds.
const CHUNK: usize = 1 << 14;

/// What multiplies bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// Rounded copies, multiplied in f32.
    Plain,
    /// `vdpbf16ps`.
    #[cfg(target_arch = "x86_64")]
    Vectors,
    /// `tdpbf16ps`.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles,
}

impl Means {
    /// The best of this machine.
    pub(crate) fn detect() -> Self {
        static BEST: OnceLock<Means> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().copied().unwrap_or(Self::Plain))
    }

    /// All that this machine can run, the plain one first.
    pub(crate) fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "nothing to add"))]
        let mut means = vec![Self::Plain];
        #[cfg(target_arch = "x86_64")]
        if vectors::are_available() {
            means.push(Self::Vectors);
        }
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if super::amx::is_available() {
            means.push(Self::Tiles);
        }
        means
    }

    /// Its name; plain code has none.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            #[cfg(target_arch = "x86_64")]
            Self::Vectors => Some("AVX512-BF16"),
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles => Some("AMX"),
        }
    }

    /// `out = a · b`, or `out += a · b`, as in [`gemm::product`], of rounded values.
    pub(crate) fn product(self, out: &mut [f32], adds: bool, a: Matrix, b: Matrix) {
        let (rows, columns, inner) = (a.rows, b.columns, a.columns);
        assert_eq!(inner, b.rows, "inner sizes agree");
        assert_eq!(out.len(), rows * columns, "the result has room");
        if rows == 0 || columns == 0 || inner == 0 {
            if !adds {
                out.fill(0.0);
            }
            return;
        }
        // SAFETY: the processor has these instructions, or the means would not have been offered; `out` has room for the
        // product and is borrowed exclusively.
        match self {
            Self::Plain => {
                let (x, y) = (rounded(a.values), rounded(b.values));
                gemm::by_vectors(out, adds, Matrix { values: &x, ..a }, Matrix { values: &y, ..b });
            }
            #[cfg(target_arch = "x86_64")]
            Self::Vectors => unsafe {
                super::panels::product::<vectors::Vectors>(gemm::Out::new(out), adds, a, b);
            },
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles => unsafe {
                super::panels::product::<super::amx::Rounded>(gemm::Out::new(out), adds, a, b);
            },
        }
    }
}

/// A product on one thread, of values rounded to bf16. An instruction set that was forced is kept to.
pub(crate) fn small_product(simd: Simd, product: Matmul) {
    let means = if simd == Simd::detect() { Means::detect() } else { Means::Plain };
    means.small_product(simd, product);
}

impl Means {
    fn small_product(self, simd: Simd, product: Matmul) {
        let Matmul { rows, cols, inner, .. } = product;
        if rows == 0 || cols == 0 {
            return;
        }
        if inner == 0 {
            return simd.run(product);
        }
        match self {
            Self::Plain => plain(simd, product),
            // SAFETY: the processor has these instructions, or the means would not have been offered.
            #[cfg(target_arch = "x86_64")]
            Self::Vectors => unsafe {
                super::panels::small_product::<vectors::Vectors>(product);
            },
            // SAFETY: as above.
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles => unsafe {
                super::panels::small_product::<super::amx::Rounded>(product);
            },
        }
    }
}

/// The product of rounded copies in f32.
fn plain(simd: Simd, product: Matmul) {
    thread_local! {
        static COPIES: RefCell<[Buffer; 2]> = RefCell::default();
    }
    let Matmul { rows, cols, inner, a, a_row, a_step, b, b_row, c, c_row, old } = product;
    let a = &a[..a.len().min((rows - 1) * a_row + (inner - 1) * a_step + 1)];
    let b = &b[..b.len().min((inner - 1) * b_row + cols)];
    COPIES.with_borrow_mut(|[x, y]| {
        let (x, y) = (x.sized(a.len()), y.sized(b.len()));
        for (copy, values) in [(&mut *x, a), (&mut *y, b)] {
            copy.iter_mut().zip(values).for_each(|(copy, value)| *copy = round(*value));
        }
        simd.run(Matmul { rows, cols, inner, a: x, a_row, a_step, b: y, b_row, c, c_row, old });
    });
}

/// A copy, every value rounded to bf16.
fn rounded(values: &[f32]) -> Pooled {
    let mut copy = Pooled::uncleared(values.len());
    copy.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(|(copy, values)| {
        copy.iter_mut().zip(values).for_each(|(copy, value)| *copy = round(*value));
    });
    copy
}

/// Values rounded to bf16.
pub(crate) struct Round<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) copy: &'a mut [f32],
}

impl WithSimd for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.copy.iter_mut().zip(self.values).for_each(|(copy, value)| *copy = round(*value));
    }
}

/// The nearest bf16, as the instructions round: ties to even, what is below 2⁻¹²⁶ to 0.
#[inline(always)]
pub(super) fn round(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    let kept = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
    let is_small = value.abs() < f32::MIN_POSITIVE;
    f32::from_bits(if is_small { bits & 0x8000_0000 } else { kept } & 0xffff_0000)
}
