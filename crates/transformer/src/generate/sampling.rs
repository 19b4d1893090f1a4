//! Choosing the next token from its scores.

use serde::{Deserialize, Serialize};

use crate::Error;

/// How a token is chosen. Filters act in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Scores of tokens already written are divided by it if positive, multiplied if negative; default 1, none.
    pub repetition_penalty: f32,
    /// Scores are divided by it; 0 takes the best token always. Default 0.8.
    pub temperature: f32,
    /// Only so many of the best tokens; default 0, all.
    pub top_k: usize,
    /// Only the best tokens that together have this probability; default 1, all.
    pub top_p: f32,
    /// Only tokens with this share of the best one's probability; default 0, all.
    pub min_p: f32,
    /// Seed of the draws; default 0.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            repetition_penalty: 1.0,
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Always the best token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        let refuse =
            |setting, found: f32, reason: &str| Err(Error::setting(setting, found, reason));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refuse("temperature", self.temperature, "expected 0 or more");
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return refuse("repetition_penalty", self.repetition_penalty, "expected above 0");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", self.top_p, "expected above 0, at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refuse("min_p", self.min_p, "expected between 0 and 1");
        }
        Ok(())
    }
}

/// Chooses tokens, one after the other, from one generator.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: fastrand::Rng,
}

impl Sampler {
    /// A sampler from its seed.
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, random: fastrand::Rng::with_seed(sampling.seed) }
    }

    /// The next token, from its scores and what was written before.
    pub fn pick(&mut self, logits: &mut [f32], written: &[u32]) -> u32 {
        self.penalise(logits, written);
        if self.sampling.temperature == 0.0 {
            return best(logits);
        }
        let mut tokens = self.likely(logits);
        let total: f64 = tokens.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random.f64() * total;
        let last = tokens.pop().expect("a vocabulary is not empty");
        for (token, weight) in tokens {
            if left < weight {
                return token;
            }
            left -= weight;
        }
        last.0
    }

    fn penalise(&self, logits: &mut [f32], written: &[u32]) {
        let penalty = self.sampling.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        let mut seen: Vec<u32> = written.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            let logit = &mut logits[token as usize];
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }

    /// The tokens that may be drawn and their weights relative to the best, best first.
    fn likely(&self, logits: &[f32]) -> Vec<(u32, f64)> {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let peak = f64::from(logits[best(logits) as usize]);
        let weight = |logit: f32| ((f64::from(logit) - peak) / f64::from(temperature)).exp();
        let mut tokens: Vec<(u32, f64)> = logits
            .iter()
            .enumerate()
            .map(|(token, logit)| (token as u32, weight(*logit)))
            .collect();
        // Equal weights keep the order of their tokens, so that draws do not depend on the sort.
        tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
        if top_k > 0 {
            tokens.truncate(top_k);
        }
        if top_p < 1.0 {
            let total: f64 = tokens.iter().map(|(_, weight)| weight).sum();
            let mut covered = 0.0;
            let kept = tokens.iter().take_while(|(_, weight)| {
                let open = covered < f64::from(top_p) * total;
                covered += weight;
                open
            });
            let kept = kept.count();
            tokens.truncate(kept.max(1));
        }
        if min_p > 0.0 {
            tokens.retain(|(_, weight)| *weight >= f64::from(min_p));
        }
        tokens
    }
}

/// The first of the highest.
fn best(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use std::f32::consts::LN_2;

    use super::*;

    /// ln of 0.5, 0.25, 0.125, 0.125.
    const LOGITS: [f32; 4] = [-LN_2, -2.0 * LN_2, -3.0 * LN_2, -3.0 * LN_2];

    fn counts(sampling: Sampling) -> [usize; 4] {
        let mut sampler = Sampler::new(Sampling { temperature: 1.0, ..sampling });
        let mut counts = [0; 4];
        for _ in 0..8000 {
            counts[sampler.pick(&mut LOGITS.clone(), &[]) as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let counts = counts(Sampling::default());
        for (count, expected) in counts.into_iter().zip([4000.0, 2000.0, 1000.0, 1000.0]) {
            // Four standard deviations of 8000 draws.
            assert!((count as f64 - expected).abs() < 180.0, "{counts:?}");
        }
    }

    #[test]
    fn filters_keep_the_likely_ones() {
        assert_eq!(counts(Sampling { top_k: 2, ..Default::default() })[2..], [0, 0]);
        assert_eq!(counts(Sampling { top_p: 0.6, ..Default::default() })[2..], [0, 0]);
        assert_eq!(counts(Sampling { top_p: 0.5, ..Default::default() })[1..], [0, 0, 0]);
        assert_eq!(counts(Sampling { min_p: 0.4, ..Default::default() })[2..], [0, 0]);
        assert!(counts(Sampling { min_p: 0.2, ..Default::default() })[2..].iter().all(|c| *c > 0));
    }

    #[test]
    fn greedy_takes_the_best_and_a_penalty_makes_room_for_the_next() {
        let mut greedy = Sampler::new(Sampling::greedy());
        assert_eq!(greedy.pick(&mut LOGITS.clone(), &[]), 0);
        let mut wary = Sampler::new(Sampling { repetition_penalty: 3.0, ..Sampling::greedy() });
        assert_eq!(wary.pick(&mut LOGITS.clone(), &[0]), 1);
    }

    #[test]
    fn equal_seeds_draw_equal_tokens() {
        let draw = |seed| {
            let mut sampler = Sampler::new(Sampling { seed, ..Default::default() });
            (0..50).map(|_| sampler.pick(&mut LOGITS.clone(), &[])).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for (sampling, expected) in [
            (Sampling { temperature: -1.0, ..Default::default() }, "temperature = -1"),
            (Sampling { top_p: 0.0, ..Default::default() }, "top_p = 0"),
            (Sampling { min_p: 2.0, ..Default::default() }, "min_p = 2"),
            (Sampling { repetition_penalty: 0.0, ..Default::default() }, "repetition_penalty = 0"),
        ] {
            let message = sampling.check().unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
