//! Dropout on the stream by a counter: what is dropped is a hash of the seed and the place in the tensor, so that it
//! depends neither on threads nor on what was drawn before.

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

/// Values hashed by one task.
const CHUNK: usize = 1 << 14;

/// The seeds of one pass, one for each site that drops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    next: Option<u64>,
}

impl Seeds {
    /// Seeds derived from this one; without one nothing is dropped.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { next: seed }
    }

    /// The seed of the next site.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let seed = self.next?;
        self.next = Some(mix(seed));
        Some(seed)
    }
}

/// Sets a share of the values to zero and scales the others up, if there is a seed.
pub(crate) fn drop<const D: usize>(x: Tensor<D>, rate: f32, seed: Option<u64>) -> Tensor<D> {
    let Some(seed) = seed.filter(|_| rate > 0.0) else { return x };
    let mut factors = vec![1.0 / (1.0 - rate); x.shape().num_elements()];
    let threshold = (f64::from(rate) * 4_294_967_296.0) as u32;
    factors.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, factors)| {
        let base = mix(seed ^ mix(chunk as u64));
        for (i, pair) in factors.chunks_mut(2).enumerate() {
            let bits = mix(base.wrapping_add(i as u64));
            for (factor, bits) in pair.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
                if bits < threshold {
                    *factor = 0.0;
                }
            }
        }
    });
    let factors = Tensor::from_data(TensorData::new(factors, x.shape()), &x.device());
    x * factors
}

/// SplitMix64's output function.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn the_asked_share_is_dropped_and_the_mean_stays() {
        let x = Tensor::<2>::ones([300, 500], &Device::flex());
        let out: Vec<f32> = drop(x, 0.3, Some(5)).into_data().try_to_vec().unwrap();
        let dropped = out.iter().filter(|v| **v == 0.0).count() as f32 / out.len() as f32;
        let mean = out.iter().sum::<f32>() / out.len() as f32;
        // Four standard deviations of a share of 150 000 draws.
        assert!((dropped - 0.3).abs() < 0.005, "{dropped}");
        assert!((mean - 1.0).abs() < 0.007, "{mean}");
    }

    #[test]
    fn without_a_seed_nothing_is_dropped() {
        let x = Tensor::<1>::ones([100], &Device::flex());
        assert_eq!(drop(x, 0.5, None).into_scalar_sum(), 100.0);
    }

    trait Sum {
        fn into_scalar_sum(self) -> f32;
    }

    impl Sum for Tensor<1> {
        fn into_scalar_sum(self) -> f32 {
            self.sum().into_scalar::<f32>()
        }
    }
}
