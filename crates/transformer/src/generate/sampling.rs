//! Choosing the next token from the logits.

use serde::{Deserialize, Serialize};
use whatwhere_random::{Gumbel, Random};
use whatwhere_settings::Refuses;

use crate::Error;

/// How a token is chosen. Filters act in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Logits of tokens already written are divided by it if positive, multiplied if negative; default 1, none.
    pub repetition_penalty: f32,
    /// Logits are divided by it; 0 takes the best token always. Default 0.8.
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
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
}

impl Sampler {
    /// A sampler from its seed.
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, random: Random::new(&[sampling.seed]) }
    }

    /// The next token, from the logits and what was written before.
    ///
    /// Each token draws a number of its own, and the highest sum of logit and number wins (the Gumbel-max way to draw
    /// from a softmax). Logits that differ little then nearly always give the same token, as a draft needs it.
    pub fn pick(&mut self, logits: &mut [f32], written: &[u32]) -> u32 {
        self.penalise(logits, written);
        let best = best(logits);
        if self.sampling.temperature == 0.0 {
            return best;
        }
        let draws = Random::new(&[self.random.bits()]);
        let draw = |token: u32| Gumbel(draws.at(u64::from(token)));
        let temperature = f64::from(self.sampling.temperature);
        let peak = f64::from(logits[best as usize]);
        let score = |token: u32| (f64::from(logits[token as usize]) - peak) / temperature;
        let mut winner = (best, draw(best).value());
        let mut race = |token: u32| {
            let (score, draw) = (score(token), draw(token));
            if score + draw.bound() > winner.1 && score + draw.value() > winner.1 {
                winner = (token, score + draw.value());
            }
        };
        match self.likely(logits, peak) {
            None => (0..logits.len() as u32).for_each(&mut race),
            Some(tokens) => tokens.into_iter().for_each(&mut race),
        }
        winner.0
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

    /// The tokens that may be drawn, all if nothing. `peak` is the highest logit.
    fn likely(&self, logits: &[f32], peak: f64) -> Option<Vec<u32>> {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        if top_k == 0 && top_p == 1.0 && min_p == 0.0 {
            return None;
        }
        let weight = |logit: f32| ((f64::from(logit) - peak) / f64::from(temperature)).exp();
        let weights = logits.iter().enumerate().map(|(i, logit)| (i as u32, weight(*logit)));
        let mut tokens: Vec<(u32, f64)> = weights.collect();
        // Equal weights keep the order of their tokens, so that draws do not depend on the sort.
        let best_first = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if top_k > 0 && top_k < tokens.len() {
            tokens.select_nth_unstable_by(top_k - 1, best_first);
            tokens.truncate(top_k);
        }
        if top_p < 1.0 {
            let total: f64 = tokens.iter().map(|(_, weight)| weight).sum();
            let mut wanted = f64::from(top_p) * total;
            // The fewest of the best that have it: halves are put in order until one token is left to decide.
            let (mut first, mut end) = (0, tokens.len());
            while end - first > 1 {
                let half = (end - first) / 2;
                let open = &mut tokens[first..end];
                open.select_nth_unstable_by(half, best_first);
                let better: f64 = open[..half].iter().map(|(_, weight)| weight).sum();
                if better >= wanted {
                    end = first + half;
                } else {
                    wanted -= better;
                    first += half;
                }
            }
            tokens.truncate(end);
        }
        tokens.retain(|(_, weight)| *weight >= f64::from(min_p));
        Some(tokens.into_iter().map(|(token, _)| token).collect())
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
        let both = counts(Sampling { top_k: 3, top_p: 0.9, ..Default::default() });
        assert!(both[..3].iter().all(|count| *count > 0) && both[3] == 0, "{both:?}");
    }

    #[test]
    fn greedy_takes_the_best_and_a_penalty_makes_room_for_the_next() {
        let mut greedy = Sampler::new(Sampling::greedy());
        assert_eq!(greedy.pick(&mut LOGITS.clone(), &[]), 0);
        let mut wary = Sampler::new(Sampling { repetition_penalty: 3.0, ..Sampling::greedy() });
        assert_eq!(wary.pick(&mut LOGITS.clone(), &[0]), 1);
    }

    #[test]
    fn a_nucleus_is_the_fewest_of_the_best() {
        let mut random = Random::new(&[5]);
        for (count, top_p) in [(1, 0.5), (2, 0.5), (7, 0.99), (300, 0.1), (300, 0.7), (301, 0.999)]
        {
            let logits: Vec<f32> = (0..count).map(|_| random.uniform() as f32 * 6.0).collect();
            let peak = logits.iter().copied().fold(f32::MIN, f32::max);
            let sampling = Sampling { temperature: 1.0, top_p, ..Default::default() };
            let mut found = Sampler::new(sampling).likely(&logits, f64::from(peak)).unwrap();
            let mut best: Vec<u32> = (0..count).collect();
            best.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
            let weight = |token: &u32| f64::from(logits[*token as usize] - peak).exp();
            let wanted = f64::from(top_p) * best.iter().map(weight).sum::<f64>();
            let enough = |few: &usize| best[..*few].iter().map(weight).sum::<f64>() >= wanted;
            let mut expected = best[..(1..=best.len()).find(enough).unwrap()].to_vec();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{count} tokens, {top_p}");
        }
    }

    #[test]
    fn logits_that_differ_little_draw_the_same_tokens() {
        let mut random = Random::new(&[1]);
        let (mut exact, mut near) =
            (Sampler::new(Sampling::default()), Sampler::new(Sampling::default()));
        let mut same = 0;
        for _ in 0..1000 {
            let mut logits: Vec<f32> = (0..500).map(|_| random.uniform() as f32 * 4.0).collect();
            let mut close: Vec<f32> =
                logits.iter().map(|logit| logit + (random.uniform() as f32 - 0.5) * 0.02).collect();
            same += usize::from(exact.pick(&mut logits, &[]) == near.pick(&mut close, &[]));
        }
        // Weights differ by up to 1.3 %, and so do chances.
        assert!(same > 975, "{same} of 1000");
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
