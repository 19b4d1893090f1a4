//! Figures a run reports, from sums of losses in nats.

use serde::{Deserialize, Serialize};

/// Perplexity: how many tokens the model hesitates between, `exp(nats / tokens)`.
pub fn perplexity(nats: f64, tokens: u64) -> f64 {
    (nats / tokens as f64).exp()
}

/// Bits per byte of text, which compares models with different tokenizers: `nats / (ln 2 · bytes)`.
pub fn bits_per_byte(nats: f64, bytes: u64) -> f64 {
    nats / (std::f64::consts::LN_2 * bytes as f64)
}

/// A mean in which each value counts `decay` times as much as the one after it; smooths a printed loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExponentialMean {
    decay: f64,
    sum: f64,
    weight: f64,
}

impl ExponentialMean {
    /// An empty mean.
    ///
    /// # Panics
    /// If `decay` is not at least 0 and below 1.
    pub fn new(decay: f64) -> Self {
        assert!((0.0..1.0).contains(&decay), "decay = {decay}: at least 0 and below 1");
        Self { decay, sum: 0.0, weight: 0.0 }
    }

    /// Takes in the next value.
    pub fn add(&mut self, value: f64) {
        self.sum = self.decay * self.sum + (1.0 - self.decay) * value;
        self.weight = self.decay * self.weight + (1.0 - self.decay);
    }

    /// The mean, from the first value on without a pull towards 0; none before it.
    pub fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_guess_among_n_has_perplexity_n() {
        let nats = 10.0 * 32f64.ln();
        assert!((perplexity(nats, 10) - 32.0).abs() < 1e-12);
        // 10 guesses of 5 bits over 25 bytes.
        assert!((bits_per_byte(nats, 25) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_mean_of_equal_values_is_that_value_from_the_start() {
        let mut mean = ExponentialMean::new(0.98);
        assert_eq!(mean.value(), None);
        for _ in 0..5 {
            mean.add(3.0);
            assert!((mean.value().unwrap() - 3.0).abs() < 1e-12);
        }
    }

    #[test]
    fn later_values_weigh_more() {
        let mut mean = ExponentialMean::new(0.5);
        [0.0, 3.0].into_iter().for_each(|value| mean.add(value));
        assert!((mean.value().unwrap() - 2.0).abs() < 1e-12); // (0.25·0 + 0.5·3) / 0.75
    }
}
