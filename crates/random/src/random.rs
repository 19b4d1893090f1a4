//! A generator of random numbers, and the distributions made of it.

use std::f64::consts::{LN_2, TAU};

use crate::{GOLDEN, finalize};

/// A generator whose whole state follows from its keys, such as seed, step and row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of these keys; their order matters.
    pub fn new(keys: &[u64]) -> Self {
        let join = |state, &key: &u64| finalize(state ^ finalize(key.wrapping_add(GOLDEN)));
        Self { state: keys.iter().fold(0, join) }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        finalize(self.state)
    }

    /// The bits that the call of [`Self::bits`] after `index` others would return.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        finalize(self.state.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// A number in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing is below 0");
        // The bias of the multiplication is under bound / 2^64.
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A number in `low..=high`.
    ///
    /// # Panics
    /// If `low` is above `high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        assert!(low <= high, "{low} is above {high}");
        low + self.below(high - low + 1)
    }

    /// A number in `0.0..1.0`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the normal distribution with mean 0 and variance 1 (Box and Muller's transform).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// `len` numbers, uniform in −1 to 1 without the ends.
    pub fn signed(mut self, len: usize) -> Vec<f32> {
        let draw = || ((self.bits() >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0;
        std::iter::repeat_with(draw).take(len).collect()
    }

    /// Puts the items into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `count` different items, in random order.
    ///
    /// # Panics
    /// If there are fewer items than `count`.
    pub fn choose<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut items = items.to_vec();
        for i in 0..count {
            let other = self.between(i, items.len() - 1);
            items.swap(i, other);
        }
        items.truncate(count);
        items
    }
}

/// A draw of Gumbel's distribution, made of random bits when it is asked for: the highest sum of log-weight and draw is
/// a draw from the softmax of the weights.
#[derive(Clone, Copy, Debug)]
pub struct Gumbel(pub u64);

impl Gumbel {
    /// `−ln(−ln(1 − u))` for a `u` between 0 and 1.
    pub fn value(self) -> f64 {
        let u = ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -(-(-u).ln_1p()).ln()
    }

    /// At least [`Self::value`], without a logarithm: `−ln(−ln(1 − u)) ≤ −ln u`, and `u` has so many zeros in front.
    pub fn bound(self) -> f64 {
        f64::from(self.0.leading_zeros() + 1) * LN_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The reference implementation with state 1234567, <https://prng.di.unimi.it/splitmix64.c>.
        let mut random = Random { state: 1_234_567 };
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(mix(1_234_567), expected[0]);
        assert_eq!([0, 1, 2, 3, 4].map(|index| random.at(index)), expected);
        assert_eq!(expected.map(|_| random.bits()), expected);
    }

    #[test]
    fn every_key_and_its_place_matter() {
        let first = |keys: &[u64]| Random::new(keys).bits();
        let all = [first(&[]), first(&[0]), first(&[0, 0]), first(&[0, 1]), first(&[1, 0])];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[..i].contains(a));
        }
    }

    #[test]
    fn numbers_below_a_bound_are_equally_frequent() {
        let mut random = Random::new(&[7]);
        let mut counts = [0usize; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        // Five standard deviations of a count: 5 · sqrt(70000 · 6/49) = 463.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 463), "{counts:?}");
    }

    /// Mean and variance of 40 000 draws.
    fn moments(mut draw: impl FnMut(u64) -> f64) -> (f64, f64) {
        const COUNT: u64 = 40_000;
        let draws: Vec<f64> = (0..COUNT).map(&mut draw).collect();
        let mean = draws.iter().sum::<f64>() / COUNT as f64;
        (mean, draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / COUNT as f64)
    }

    #[test]
    fn distributions_have_their_mean_and_variance() {
        let (mut uniform, mut normal) = (Random::new(&[1]), Random::new(&[2]));
        let (gumbel, signed) = (Random::new(&[3]), Random::new(&[4]).signed(40_000));
        let of = [
            (moments(|_| uniform.uniform()), (0.5, 1.0 / 12.0)),
            (moments(|_| normal.normal()), (0.0, 1.0)),
            (moments(|i| f64::from(signed[i as usize])), (0.0, 1.0 / 3.0)),
            // Euler's constant, and π²/6.
            (moments(|i| Gumbel(gumbel.at(i)).value()), (0.577_216, 1.644_934)),
        ];
        for ((mean, variance), expected) in of {
            // Five standard errors of a mean; the variance of the squares is at most 5.4 times the variance's square.
            let error = 5.0 * (expected.1 / 40_000.0_f64).sqrt();
            assert!((mean - expected.0).abs() < error, "mean {mean}, expected {}", expected.0);
            let error = 5.0 * expected.1 * (5.4 / 40_000.0_f64).sqrt();
            assert!((variance - expected.1).abs() < error, "{variance}, expected {}", expected.1);
        }
    }

    #[test]
    fn the_bound_of_a_draw_is_one() {
        for bits in [0, 1, 1 << 11, u64::MAX, u64::MAX >> 1, 1 << 63, 0x0123_4567_89ab_cdef] {
            assert!(Gumbel(bits).value() <= Gumbel(bits).bound(), "{bits:x}");
        }
        let random = Random::new(&[7]);
        let mut draws = (0..1000).map(|i| Gumbel(random.at(i)));
        assert!(draws.all(|draw| draw.value() <= draw.bound()));
    }

    #[test]
    fn chosen_items_differ() {
        let items: Vec<usize> = (0..52).collect();
        let mut chosen = Random::new(&[1]).choose(&items, 40);
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 40);
    }
}
