//! Randomness as a function of keys: the same keys give the same numbers on every machine and in every version.
//!
//! One generator, SplitMix64 (Steele, Lea, Flood 2014, <https://doi.org/10.1145/2660193.2660195>), and one hash, FNV-1a;
//! tests hold both against their published vectors.
//! Start with [`Random`].

mod fingerprint;
mod random;

pub use fingerprint::Fingerprint;
pub use random::{Gumbel, Random};

/// SplitMix64's step: 2⁶⁴ over the golden ratio, odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output of SplitMix64 in state `x`: a hash of one number, for counters and for joining keys (`mix(a ^ mix(b))`).
#[inline]
pub const fn mix(x: u64) -> u64 {
    finalize(x.wrapping_add(GOLDEN))
}

/// SplitMix64's output function; it leaves 0 as it is.
#[inline]
const fn finalize(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
