//! The vector operations the kernels are made of, each written once over `pulp`'s vectors and run with the
//! best instruction set of the machine: AVX-512, AVX2, NEON, WASM's vectors, or plain scalar code.
//!
//! This folder holds all `unsafe` of the crate; its operations are safe to call with any slices.

pub(crate) mod additive;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
pub(crate) mod bands;
pub(crate) mod bf16;
pub(crate) mod feature_map;
pub(crate) mod gemm;
pub(crate) mod gemv;
pub(crate) mod int8;
pub(crate) mod logits;
pub(crate) mod lower;
pub(crate) mod math;
pub(crate) mod matmul;
#[cfg(target_arch = "x86_64")]
mod panels;
pub(crate) mod rows;
pub(crate) mod softmax;
#[cfg(target_arch = "x86_64")]
mod vnni;

use pulp::{Arch, WithSimd};

/// An instruction set to run on.
#[derive(Clone, Copy, Debug)]
pub struct Simd {
    arch: Arch,
    /// Whether there are products of integers that add as well (AVX-512 VNNI).
    #[cfg_attr(
        not(any(target_arch = "x86", target_arch = "x86_64")),
        expect(dead_code, reason = "asked on x86 alone")
    )]
    has_vnni: bool,
}

impl Simd {
    /// The best instruction set of this machine.
    pub fn detect() -> Self {
        let arch = best();
        Self { arch, has_vnni: has_vnni(arch) }
    }

    /// Plain scalar code, the same on every machine.
    pub fn scalar() -> Self {
        Self::of(Arch::Scalar)
    }

    /// Without VNNI.
    fn of(arch: Arch) -> Self {
        Self { arch, has_vnni: false }
    }

    /// Every instruction set this machine can run, the scalar one first.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::scalar()];
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        {
            sets.extend(pulp::x86::V3::try_new().map(|set| Self::of(Arch::V3(set))));
            sets.extend(pulp::x86::V4::try_new().map(|set| Self::of(Arch::V4(set))));
            sets.extend(Some(Self::detect()).filter(|set| set.has_vnni));
        }
        #[cfg(target_arch = "aarch64")]
        sets.extend(pulp::aarch64::Neon::try_new().map(|set| Self::of(Arch::Neon(set))));
        #[cfg(target_arch = "wasm32")]
        sets.extend(pulp::wasm::Simd128::try_new().map(|set| Self::of(Arch::Simd128(set))));
        sets
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self.arch {
            Arch::Scalar => "scalar",
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Arch::V3(_) => "AVX2",
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Arch::V4(_) if self.has_vnni => "AVX-512 VNNI",
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Arch::V4(_) => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            Arch::Neon(_) => "NEON",
            #[cfg(target_arch = "wasm32")]
            Arch::Simd128(_) => "SIMD128",
            _ => "other", // pulp's list may grow
        }
    }

    /// What decides the bits of this machine's results: its instruction set, and whether large products run on AMX.
    pub fn instructions() -> String {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if amx::is_available() {
            return format!("{} and AMX", Self::detect().name());
        }
        Self::detect().name().into()
    }

    #[inline(always)]
    pub(crate) fn run<O: WithSimd>(self, operation: O) -> O::Output {
        // Not pulp's `dispatch`, which has relaxed SIMD in it: a browser without it refuses the whole module.
        #[cfg(target_arch = "wasm32")]
        return match self.arch {
            Arch::Simd128(set) => pulp::Simd::vectorize(set, operation),
            _ => pulp::Simd::vectorize(pulp::Scalar, operation),
        };
        #[cfg(not(target_arch = "wasm32"))]
        self.arch.dispatch(operation)
    }
}

#[cfg(target_arch = "wasm32")]
fn best() -> Arch {
    pulp::wasm::Simd128::try_new().map_or(Arch::Scalar, Arch::Simd128)
}

#[cfg(not(target_arch = "wasm32"))]
fn best() -> Arch {
    Arch::new()
}

#[cfg(target_arch = "x86_64")]
fn has_vnni(arch: Arch) -> bool {
    matches!(arch, Arch::V4(_)) && std::arch::is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_vnni(_: Arch) -> bool {
    false
}

impl PartialEq for Simd {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Default for Simd {
    fn default() -> Self {
        Self::detect()
    }
}
