//! Scaling: how rotary reaches further than it was trained, by other frequencies.
//!
//! With L the trained length, s the factor, D the rotated width and θ_i = base^{−2i/D}:
//! linear θ/s; ntk base·s^{D/(D−2)}; dynamic_ntk the same with a factor that follows the length; yarn between linear (long
//! waves) and unchanged (short waves), with a factor on cosine and sine; llama3 the same idea with other bounds.

use std::f64::consts::TAU;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use crate::Error;

/// How the frequencies of rotary are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scaling {
    /// As trained.
    #[default]
    None,
    /// Position interpolation, Chen et al. 2023, <https://arxiv.org/abs/2306.15595>: every angle divided by the factor.
    Linear {
        /// Target length over trained length; no default.
        factor: f64,
    },
    /// NTK-aware: the base grows so that the slowest pair is scaled by the factor and the fastest not at all.
    Ntk {
        /// Target length over trained length; no default.
        factor: f64,
    },
    /// NTK-aware beyond the trained length only, by the length at hand, as transformers computes it:
    /// `base · (factor·l/L − (factor − 1))^{D/(D−2)}`.
    DynamicNtk {
        /// At length L·factor the slowest pair is scaled by factor² − factor + 1; no default.
        factor: f64,
        /// Trained length L; no default.
        length: usize,
    },
    /// YaRN, Peng et al. 2023, <https://arxiv.org/abs/2309.00071>, with the ramp of its published code and of transformers:
    /// linear in the pair's index between the pairs that turn `fast` and `slow` times within L (the paper's is linear in
    /// the number of turns).
    Yarn {
        /// Target length over trained length; no default.
        factor: f64,
        /// Trained length L; no default.
        length: usize,
        /// Turns above which a pair stays unchanged, transformers' `beta_fast`; default 32.
        #[serde(default = "fast")]
        fast: f64,
        /// Turns below which a pair is divided by the factor, `beta_slow`; default 1.
        #[serde(default = "slow")]
        slow: f64,
    },
    /// Llama 3's: waves shorter than L/high unchanged, longer than L/low divided by the factor, smooth between.
    Llama3 {
        /// Target length over trained length, 8 in Llama 3.1; no default.
        factor: f64,
        /// Trained length L, 8192 in Llama 3.1; no default.
        length: usize,
        /// Waves longer than L/low are divided by the factor; default 1.
        #[serde(default = "slow")]
        low: f64,
        /// Waves shorter than L/high stay unchanged; default 4.
        #[serde(default = "high")]
        high: f64,
    },
}

fn fast() -> f64 {
    32.0
}
fn slow() -> f64 {
    1.0
}
fn high() -> f64 {
    4.0
}

impl Scaling {
    /// Frequencies for pairs of `width` channels at a sequence of `length` places, and the factor on cosine and sine.
    pub fn frequencies(&self, base: f64, width: usize, length: usize) -> (Vec<f64>, f64) {
        let d = width as f64;
        let plain = |base: f64| (0..width / 2).map(move |i| base.powf(-2.0 * i as f64 / d));
        let grown = |factor: f64| base * factor.powf(d / (d - 2.0).max(1.0));
        match *self {
            Scaling::None => (plain(base).collect(), 1.0),
            Scaling::Linear { factor } => (plain(base).map(|f| f / factor).collect(), 1.0),
            Scaling::Ntk { factor } => (plain(grown(factor)).collect(), 1.0),
            Scaling::DynamicNtk { factor, length: trained } => {
                let reached = length.max(trained) as f64 / trained as f64;
                (plain(grown(factor * reached - (factor - 1.0))).collect(), 1.0)
            }
            Scaling::Yarn { factor, length: trained, fast, slow } => {
                // The pair that turns `turns` times within the trained length.
                let pair =
                    |turns: f64| d * (trained as f64 / (turns * TAU)).ln() / (2.0 * base.ln());
                let low = pair(fast).floor().max(0.0);
                let high = pair(slow).ceil().min(d - 1.0);
                let high = if low == high { high + 0.001 } else { high };
                let frequencies = plain(base).enumerate().map(|(i, f)| {
                    let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * ramp + f * (1.0 - ramp)
                });
                let amplitude = if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 };
                (frequencies.collect(), amplitude)
            }
            Scaling::Llama3 { factor, length: trained, low, high } => {
                let frequencies = plain(base).map(|f| {
                    let turns = trained as f64 * f / TAU;
                    let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - smooth) * f / factor + smooth * f
                });
                (frequencies.collect(), 1.0)
            }
        }
    }

    /// Whether frequencies depend on the length at hand, so that a cache must keep keys as they were before rotation.
    pub fn follows_length(&self) -> bool {
        matches!(self, Scaling::DynamicNtk { .. })
    }

    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        let (factor, length) = match *self {
            Scaling::None => return Ok(()),
            Scaling::Linear { factor } | Scaling::Ntk { factor } => (factor, 1),
            Scaling::DynamicNtk { factor, length }
            | Scaling::Yarn { factor, length, .. }
            | Scaling::Llama3 { factor, length, .. } => (factor, length),
        };
        if factor.is_nan() || factor < 1.0 || factor.is_infinite() {
            return Err(Error::setting("position.scaling.factor", factor, "a factor is 1 or more"));
        }
        if length == 0 {
            return Err(Error::setting(
                "position.scaling.length",
                0,
                "the trained length is at least 1",
            ));
        }
        match *self {
            Scaling::Yarn { fast, slow, .. }
                if fast.is_nan() || slow.is_nan() || fast <= slow || slow <= 0.0 =>
            {
                Err(Error::setting(
                    "position.scaling.fast",
                    fast,
                    "expected more than slow, which is above 0",
                ))
            }
            Scaling::Llama3 { low, high, .. } if low.is_nan() || high.is_nan() || high <= low => {
                Err(Error::setting("position.scaling.high", high, "expected more than low"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntk_grows_the_base_as_published() {
        for (width, factor, want) in
            [(64, 2.0, 20_452.0), (64, 8.0, 85_550.0), (128, 4.0, 40_890.0)]
        {
            let (frequencies, _) = Scaling::Ntk { factor }.frequencies(10_000.0, width, 1);
            let base = frequencies[1].powf(-(width as f64) / 2.0);
            assert!((base / want - 1.0).abs() < 1e-4, "{width} {factor}: {base}");
        }
    }

    #[test]
    fn yarn_ramps_by_pair_index_and_grows_the_amplitude() {
        let yarn = Scaling::Yarn { factor: 4.0, length: 1024, fast: 32.0, slow: 1.0 };
        let (frequencies, amplitude) = yarn.frequencies(10_000.0, 64, 1);
        let (plain, _) = Scaling::None.frequencies(10_000.0, 64, 1);
        for (i, want) in [(0, 1.0), (8, 0.827), (12, 0.596), (31, 0.25)] {
            assert!((frequencies[i] / plain[i] - want).abs() < 5e-4, "pair {i}");
        }
        assert!((amplitude - 1.1386).abs() < 5e-5);
    }

    #[test]
    fn dynamic_ntk_sets_in_beyond_the_trained_length() {
        let dynamic = Scaling::DynamicNtk { factor: 2.0, length: 512 };
        let at = |length| dynamic.frequencies(10_000.0, 32, length).0;
        assert_eq!(at(512), Scaling::None.frequencies(10_000.0, 32, 1).0);
        assert!(at(513)[15] < at(512)[15]);
        // At the target length the factor is s² − s + 1, not s.
        assert_eq!(at(1024), Scaling::Ntk { factor: 3.0 }.frequencies(10_000.0, 32, 1).0);
    }

    #[test]
    fn factors_below_one_are_refused() {
        assert!(Scaling::Linear { factor: 0.5 }.check().is_err());
        assert!(Scaling::Linear { factor: f64::NAN }.check().is_err());
        assert!(Scaling::DynamicNtk { factor: 2.0, length: 0 }.check().is_err());
        assert_eq!(Scaling::Linear { factor: 2.0 }.check(), Ok(()));
    }
}
