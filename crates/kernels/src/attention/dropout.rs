//! Dropout on the weights by a counter-based generator: whether a weight is kept is a hash of the seed,
//! the batch, the head and the two positions, so nothing has to be stored or drawn in order.

use whatwhere_random::mix;

use crate::attention::{Dropout, pattern::Pair};

/// The mask of one row of scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowMask {
    keys: (u32, u32),
    threshold: u32,
    /// Factor on the weights that are kept.
    pub(crate) growth: f32,
}

impl Dropout {
    /// The factor on the weight of a pair: 0, or `1/(1 − rate)`.
    pub fn factor(&self, pair: Pair) -> f32 {
        self.row(pair.batch, pair.head, pair.query).factor(pair.key as u32)
    }

    /// The mask of the row of `query` (a position) in `head` of sequence `batch`.
    pub(crate) fn row(&self, batch: usize, head: usize, query: usize) -> RowMask {
        let mut state = self.seed;
        for part in [batch, head, query] {
            state = mix(state ^ part as u64);
        }
        RowMask {
            keys: (state as u32, (state >> 32) as u32),
            threshold: (f64::from(self.rate) * 4_294_967_296.0) as u32,
            growth: 1.0 / (1.0 - self.rate),
        }
    }
}

impl RowMask {
    /// The factor on the weight of the key at position `key`: 0 or `growth`.
    #[inline(always)]
    pub(crate) fn factor(&self, key: u32) -> f32 {
        if mix32(key, self.keys) >= self.threshold { self.growth } else { 0.0 }
    }
}

/// Two multiply–xorshift rounds, keyed before and between them, so that rows are not shifts of each other.
#[inline(always)]
fn mix32(x: u32, keys: (u32, u32)) -> u32 {
    let mut x = x ^ keys.0;
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_add(keys.1).wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 400;
    const KEYS: usize = 500;

    fn kept(rate: f32, row: usize, key: usize) -> bool {
        Dropout { rate, seed: 7 }.row(1, 2, row).factor(key as u32) != 0.0
    }

    #[test]
    fn the_share_of_dropped_weights_is_the_rate() {
        for rate in [0.1, 0.5, 0.9] {
            let dropped = (0..ROWS * KEYS).filter(|i| !kept(rate, i / KEYS, i % KEYS)).count();
            let share = dropped as f32 / (ROWS * KEYS) as f32;
            // Five standard deviations of a binomial share.
            let bound = 5.0 * (rate * (1.0 - rate) / (ROWS * KEYS) as f32).sqrt();
            assert!((share - rate).abs() < bound, "{share} for rate {rate}");
        }
    }

    #[test]
    fn neighboring_rows_and_keys_are_independent() {
        for (rows, keys) in [(0, 1), (1, 0), (1, 1), (1, KEYS - 1)] {
            let pairs = (0..(ROWS - rows) * KEYS).map(|i| (i / KEYS, i % KEYS));
            let agree = pairs
                .clone()
                .filter(|&(r, k)| kept(0.5, r, k) == kept(0.5, r + rows, (k + keys) % KEYS))
                .count();
            let share = agree as f32 / pairs.count() as f32;
            assert!((share - 0.5).abs() < 5.0 * 0.5 / ((ROWS * KEYS) as f32).sqrt(), "{share}");
        }
    }

    #[test]
    fn every_part_of_the_counter_matters() {
        let row = |seed, batch, head, query| {
            let mask = Dropout { rate: 0.5, seed }.row(batch, head, query);
            (0..64).map(|key| mask.factor(key) != 0.0).collect::<Vec<_>>()
        };
        let base = row(1, 2, 3, 4);
        for other in [row(9, 2, 3, 4), row(1, 9, 3, 4), row(1, 2, 9, 4), row(1, 2, 3, 9)] {
            assert_ne!(base, other);
        }
    }
}
