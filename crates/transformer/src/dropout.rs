//! Dropout on the residual stream by a counter: what is dropped is a hash of the seed and the place in the tensor, so that it
//! depends neither on threads nor on what was drawn before.

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;
use whatwhere_attention::Path;
use whatwhere_random::mix;

use crate::fused;

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
    let mut factors = vec![1.0; x.shape().num_elements()];
    Dropped { rate, seed }.apply(&mut factors);
    let factors = Tensor::from_data(TensorData::new(factors, x.shape()), &x.device());
    x * factors
}

/// `x + drop(y)`.
pub(crate) fn add(
    x: Tensor<3>,
    y: Tensor<3>,
    rate: f32,
    seed: Option<u64>,
    path: Path,
) -> Tensor<3> {
    let Some(seed) = seed.filter(|_| rate > 0.0) else { return x + y };
    if path != Path::Composed
        && let Some(out) = fused::add_dropped(x.clone(), y.clone(), Dropped { rate, seed })
    {
        return out;
    }
    x + drop(y, rate, Some(seed))
}

/// Which values are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub(crate) rate: f32,
    pub(crate) seed: u64,
}

impl Dropped {
    /// Multiplies values by 0 or `1/(1 − rate)`.
    pub(crate) fn apply(&self, values: &mut [f32]) {
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            self.each(chunk, values.len(), |i, factor| values[i] *= factor);
        });
    }

    /// `out += y`, with what is dropped left out.
    pub(crate) fn add(&self, out: &mut [f32], y: &[f32]) {
        out.par_chunks_mut(CHUNK).zip(y.par_chunks(CHUNK)).enumerate().for_each(
            |(chunk, (out, y))| {
                self.each(chunk, out.len(), |i, factor| out[i] += factor * y[i]);
            },
        );
    }

    /// Calls `f` with the index and factor of every value of a chunk.
    #[inline(always)]
    fn each(&self, chunk: usize, length: usize, mut f: impl FnMut(usize, f32)) {
        let threshold = (f64::from(self.rate) * 4_294_967_296.0) as u32;
        let growth = 1.0 / (1.0 - self.rate);
        let base = mix(self.seed ^ mix(chunk as u64));
        for first in (0..length).step_by(2) {
            let bits = mix(base.wrapping_add(first as u64));
            let factor = |bits: u32| if bits < threshold { 0.0 } else { growth };
            f(first, factor(bits as u32));
            if first + 1 < length {
                f(first + 1, factor((bits >> 32) as u32));
            }
        }
    }
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
