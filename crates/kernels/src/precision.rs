//! What products are computed in.

#[cfg(feature = "settings")]
use schemars::JsonSchema;
#[cfg(feature = "settings")]
use serde::{Deserialize, Serialize};

use crate::simd::{
    Simd,
    bf16::{self, Means},
    gemm::{self, Matrix},
    matmul::Matmul,
};

/// What products of matrices are computed in. Sums are f32 either way, as is everything that is no product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "settings", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "settings", serde(rename_all = "lowercase"))]
pub enum Precision {
    /// f32.
    #[default]
    F32,
    /// Both factors rounded to bf16: AMX or AVX512-BF16 multiply them faster than f32, other processors do not.
    Bf16,
}

impl Precision {
    /// The instructions that multiply in less than f32, if this machine has any; f32 needs none.
    pub fn means(self) -> Option<&'static str> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Means::detect().name(),
        }
    }

    /// What decides the bits of this machine's results: its instruction set, whether large products run on AMX, and what
    /// multiplies bf16.
    pub fn instructions(self) -> String {
        let simd = Simd::instructions();
        match self.means() {
            Some(means) if !simd.ends_with(means) => format!("{simd} and {means}"),
            _ => simd,
        }
    }

    /// `out = a · b`, or `out += a · b`; `[a.rows, b.columns]`, row-major.
    pub(crate) fn product(self, out: &mut [f32], adds: bool, a: Matrix, b: Matrix) {
        match self {
            Self::F32 => gemm::product(out, adds, a, b),
            Self::Bf16 => Means::detect().product(out, adds, a, b),
        }
    }

    /// A small product on one thread.
    #[inline]
    pub(crate) fn small_product(self, simd: Simd, product: Matmul) {
        match self {
            Self::F32 => simd.run(product),
            Self::Bf16 => bf16::small_product(simd, product),
        }
    }
}
