//! Scaling: how rotary reaches further than it was trained, by other frequencies.
//!
//! With L the trained length, s the factor, D the rotated width and θ_i = base^{−2i/D}:
//! linear θ/s; ntk base·s^{D/(D−2)}; dynamic_ntk the same with a factor that follows the length; yarn between linear (long
//! waves) and unchanged (short waves), with a factor on cosine and sine; llama3 the same idea with other bounds; longrope
//! θ divided by a list, another below L than beyond it, with a factor on cosine and sine.

use std::f64::consts::TAU;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use crate::Error;

/// How the frequencies of rotary are scaled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
        /// Factor on cosine and sine; default 0.1 ln(factor) + 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// With `mscale_all_dim`, cosine and sine are multiplied by the quotient of 0.1 · mscale · ln(factor) + 1 and the same
        /// of `mscale_all_dim`, as in DeepSeek; default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale: Option<f64>,
        /// See `mscale`; default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale_all_dim: Option<f64>,
        /// Whether the ramp begins and ends at whole pairs; default true.
        #[serde(default = "truncate")]
        truncate: bool,
    },
    /// LongRoPE, Ding et al. 2024, <https://arxiv.org/abs/2402.13753>, as Phi-3 has it: the angle of each pair divided by a
    /// number of its own, from one list up to the trained length and from another beyond it.
    Longrope {
        /// Target length over trained length; no default.
        factor: f64,
        /// Trained length L; no default.
        length: usize,
        /// A divisor for each pair, up to L; no default.
        short_factor: Vec<f64>,
        /// The same beyond L; no default.
        long_factor: Vec<f64>,
        /// Factor on cosine and sine; default √(1 + ln(factor) / ln(L)).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
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
fn truncate() -> bool {
    true
}

impl Scaling {
    /// Frequencies for pairs of `width` channels at a sequence of `length` positions, and the factor on cosine and sine.
    pub fn frequencies(&self, base: f64, width: usize, length: usize) -> (Vec<f64>, f64) {
        let d = width as f64;
        let plain = |base: f64| (0..width / 2).map(move |i| base.powf(-2.0 * i as f64 / d));
        let grown = |factor: f64| base * factor.powf(d / (d - 2.0).max(1.0));
        match self {
            Scaling::None => (plain(base).collect(), 1.0),
            Scaling::Linear { factor } => (plain(base).map(|f| f / factor).collect(), 1.0),
            Scaling::Ntk { factor } => (plain(grown(*factor)).collect(), 1.0),
            Scaling::DynamicNtk { factor, length: trained } => {
                let reached = length.max(*trained) as f64 / *trained as f64;
                (plain(grown(factor * reached - (factor - 1.0))).collect(), 1.0)
            }
            Scaling::Yarn { factor, length: trained, fast, slow, truncate, .. } => {
                // The pair that turns `turns` times within the trained length.
                let pair =
                    |turns: f64| d * (*trained as f64 / (turns * TAU)).ln() / (2.0 * base.ln());
                let (low, high) = (pair(*fast), pair(*slow));
                let (low, high) = if *truncate { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(d - 1.0));
                let high = if low == high { high + 0.001 } else { high };
                let frequencies = plain(base).enumerate().map(|(i, f)| {
                    let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * ramp + f * (1.0 - ramp)
                });
                (frequencies.collect(), self.amplitude())
            }
            Scaling::Longrope { length: trained, short_factor, long_factor, .. } => {
                let divisors = if length > *trained { long_factor } else { short_factor };
                let frequencies = plain(base).zip(divisors).map(|(f, divisor)| f / divisor);
                (frequencies.collect(), self.amplitude())
            }
            Scaling::Llama3 { factor, length: trained, low, high } => {
                let frequencies = plain(base).map(|f| {
                    let turns = *trained as f64 * f / TAU;
                    let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - smooth) * f / factor + smooth * f
                });
                (frequencies.collect(), 1.0)
            }
        }
    }

    /// The factor on cosine and sine.
    fn amplitude(&self) -> f64 {
        match self {
            Scaling::Yarn { attention_factor: Some(given), .. }
            | Scaling::Longrope { attention_factor: Some(given), .. } => *given,
            Scaling::Yarn { factor, mscale, mscale_all_dim, .. } => {
                let grown =
                    |by: f64| if *factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
                match (mscale, mscale_all_dim) {
                    (Some(over), Some(under)) => grown(*over) / grown(*under),
                    _ => grown(1.0),
                }
            }
            Scaling::Longrope { factor, length, .. } if *factor > 1.0 => {
                (1.0 + factor.ln() / (*length as f64).ln()).sqrt()
            }
            _ => 1.0,
        }
    }

    /// YaRN with the paper's bounds.
    pub fn yarn(factor: f64, length: usize) -> Self {
        Self::Yarn {
            factor,
            length,
            fast: fast(),
            slow: slow(),
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: true,
        }
    }

    /// Whether frequencies depend on the length at hand, so that a cache must keep keys as they were before rotation.
    pub fn follows_length(&self) -> bool {
        match self {
            Scaling::DynamicNtk { .. } => true,
            Scaling::Longrope { short_factor, long_factor, .. } => short_factor != long_factor,
            _ => false,
        }
    }

    /// Refuses settings out of range, for so many pairs of channels.
    pub fn check(&self, pairs: usize) -> Result<(), Error> {
        let (factor, length) = match *self {
            Scaling::None => return Ok(()),
            Scaling::Linear { factor } | Scaling::Ntk { factor } => (factor, 1),
            Scaling::DynamicNtk { factor, length }
            | Scaling::Yarn { factor, length, .. }
            | Scaling::Longrope { factor, length, .. }
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
        match self {
            Scaling::Yarn { fast, slow, .. }
                if fast.is_nan() || slow.is_nan() || fast <= slow || *slow <= 0.0 =>
            {
                let reason = "expected more than slow, which is above 0";
                Err(Error::setting("position.scaling.fast", fast, reason))
            }
            Scaling::Yarn { mscale, mscale_all_dim, .. }
                if mscale.is_some() != mscale_all_dim.is_some() =>
            {
                let found = mscale.or(*mscale_all_dim).unwrap_or_default();
                let reason = "mscale and mscale_all_dim act together; give both or none";
                Err(Error::setting("position.scaling.mscale", found, reason))
            }
            Scaling::Longrope { short_factor, long_factor, .. } => {
                for (name, list) in [
                    ("position.scaling.short_factor", short_factor),
                    ("position.scaling.long_factor", long_factor),
                ] {
                    if list.len() != pairs {
                        let reason = format!("expected {pairs} numbers, one for each pair");
                        return Err(Error::setting(
                            name,
                            format!("{} numbers", list.len()),
                            reason,
                        ));
                    }
                    if let Some(found) = list.iter().find(|f| !(**f > 0.0 && f.is_finite())) {
                        return Err(Error::setting(name, found, "a divisor is above 0"));
                    }
                }
                Ok(())
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
        let yarn = Scaling::yarn(4.0, 1024);
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
        assert!(Scaling::Linear { factor: 0.5 }.check(8).is_err());
        assert!(Scaling::Linear { factor: f64::NAN }.check(8).is_err());
        assert!(Scaling::DynamicNtk { factor: 2.0, length: 0 }.check(8).is_err());
        assert_eq!(Scaling::Linear { factor: 2.0 }.check(8), Ok(()));
    }

    /// Values of transformers 5.22's `_compute_yarn_parameters` and `_compute_longrope_parameters`.
    #[test]
    fn factors_on_cosine_and_sine_are_those_of_transformers() {
        let read = |text: &str| -> Scaling { toml::from_str(text).unwrap() };
        let amplitude = |text: &str| read(text).frequencies(10_000.0, 8, 1).1;
        let yarn = "kind = 'yarn'\nfactor = 40.0\nlength = 4096\n";
        let near = |found: f64, want: f64| assert!((found - want).abs() < 1e-9, "{found} {want}");
        near(amplitude(yarn), 1.368_887_945_411_393_7);
        near(
            amplitude(&format!("{yarn}mscale = 0.707\nmscale_all_dim = 1.0")),
            0.921_042_355_316_339_9,
        );
        near(amplitude(&format!("{yarn}attention_factor = 1.25")), 1.25);
        let long = "kind = 'longrope'\nfactor = 32.0\nlength = 4096\nshort_factor = [1, 1, 2, 4]\nlong_factor = [1, 2, 4, 8]\n";
        near(amplitude(long), 1.190_238_071_423_808_3);
        let of = |length| read(long).frequencies(10_000.0, 8, length).0;
        let plain = Scaling::None.frequencies(10_000.0, 8, 1).0;
        let divided = |by: [f64; 4]| plain.iter().zip(by).map(|(f, by)| f / by).collect::<Vec<_>>();
        assert_eq!(of(4096), divided([1.0, 1.0, 2.0, 4.0]));
        assert_eq!(of(4097), divided([1.0, 2.0, 4.0, 8.0]));
        assert!(read(long).follows_length() && read(long).check(4) == Ok(()));
        let message = read(long).check(5).unwrap_err().to_string();
        assert!(message.contains("short_factor = 4 numbers: expected 5"), "{message}");
    }

    #[test]
    fn a_ramp_that_is_not_truncated_begins_between_pairs() {
        let text = "kind = 'yarn'\nfactor = 4.0\nlength = 1024\ntruncate = false";
        let ramp = toml::from_str::<Scaling>(text).unwrap().frequencies(10_000.0, 64, 1).0;
        let plain = Scaling::None.frequencies(10_000.0, 64, 1).0;
        let whole = Scaling::yarn(4.0, 1024).frequencies(10_000.0, 64, 1).0;
        // Instead of 5 and 18.
        let (low, high) = (5.655_760_879_694_327, 17.696_960_706_253_574);
        for i in 0..32 {
            let share = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            let want = plain[i] * (share / 4.0 + 1.0 - share);
            assert!((ramp[i] / want - 1.0).abs() < 1e-6, "pair {i}");
        }
        assert_ne!(ramp, whole);
    }
}
