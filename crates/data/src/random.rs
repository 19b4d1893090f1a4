//! Randomness as a function of keys: the same keys give the same numbers, on every machine.
//! SplitMix64 (Steele, Lea, Flood 2014), <https://doi.org/10.1145/2660193.2660195>.

/// A generator whose whole state follows from its keys, such as seed, step and row.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15; // 2^64 / golden ratio, SplitMix64's step

impl Random {
    /// The generator of these keys; their order matters.
    pub fn new(keys: &[u64]) -> Self {
        let state = keys.iter().fold(0, |state, &key| mix(state ^ mix(key.wrapping_add(GOLDEN))));
        Self { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
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
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
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

pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A hash that stays the same over versions and machines: FNV-1a, mixed at the end.
#[derive(Clone, Debug)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::new();
        hash.add(bytes);
        hash.finish()
    }

    /// Adds bytes and their number, so that `ab, c` differs from `a, bc`.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_splitmix64() {
        // From the reference implementation with state 1234567, <https://prng.di.unimi.it/splitmix64.c>.
        let mut random = Random { state: 1_234_567 };
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
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

    #[test]
    fn chosen_items_differ() {
        let items: Vec<usize> = (0..52).collect();
        let mut chosen = Random::new(&[1]).choose(&items, 40);
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 40);
    }
}
