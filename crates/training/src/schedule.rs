//! Learning-rate schedules: the rate of each update, as a share of the peak over the steps of a run.
//!
//! Updates count from 1 to `steps`. Every schedule rises in a straight line over its first `warmup` updates: the first has
//! `1 / warmup` of the peak, never 0, and update `warmup` is at the peak.

use std::f64::consts::PI;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::{Refuses, choice};

use crate::Error;

choice! {
    /// How the learning rate changes over a run; `kind` names the choice.
    #[derive(Copy)]
    Schedule {
        Cosine => "cosine",
        Linear => "linear",
        Constant => "constant",
        Noam => "noam",
        InverseSquareRoot => "inverse_square_root",
        Wsd => "wsd",
    }
}

/// Half a cosine from the peak to the floor. Loshchilov & Hutter 2017, <https://arxiv.org/abs/1608.03983>.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cosine {
    /// Updates of warm-up; default 100.
    pub warmup: u64,
    /// Rate at the last update, as a share of the peak; default 0.1.
    pub floor: f64,
}

/// A straight line from the peak to the floor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {
    /// Updates of warm-up; default 100.
    pub warmup: u64,
    /// Rate at the last update, as a share of the peak; default 0.
    pub floor: f64,
}

/// The peak throughout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Constant {
    /// Updates of warm-up; default 0.
    pub warmup: u64,
}

/// `factor · width^−½ · min(step^−½, step · warmup^−1½)`, which sets its own peak and reads no other.
/// Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Noam {
    /// Updates of warm-up; default 4000.
    pub warmup: u64,
    /// Width of the model; default 512.
    pub width: usize,
    /// Multiple of the paper's rate; default 1.
    pub factor: f64,
}

/// `peak · √(warmup / step)` after the warm-up: Noam's shape with a peak of one's choice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InverseSquareRoot {
    /// Updates of warm-up, at least 1; default 4000.
    pub warmup: u64,
}

/// Warm-up, stable, decay: the peak, and a straight line to the floor at the end.
/// Hu et al. 2024, <https://arxiv.org/abs/2404.06395>.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Wsd {
    /// Updates of warm-up; default 100.
    pub warmup: u64,
    /// Share of the run's steps spent in decay; default 0.2.
    pub decay: f64,
    /// Rate at the last update, as a share of the peak; default 0.
    pub floor: f64,
}

impl Schedule {
    /// The rate of update `step` (the first is 1) in a run of `steps`. After the last it stays where it ended.
    pub fn rate(&self, step: u64, steps: u64, peak: f64) -> f64 {
        let fall = |from: u64, floor: f64, shape: fn(f64) -> f64| {
            peak * (floor + (1.0 - floor) * shape(progress(step, from, steps)))
        };
        match *self {
            Self::Noam(Noam { warmup, width, factor }) => {
                let peak = factor / (width as f64 * warmup.max(1) as f64).sqrt();
                inverse_square_root(step, warmup, peak)
            }
            Self::InverseSquareRoot(InverseSquareRoot { warmup }) => {
                inverse_square_root(step, warmup, peak)
            }
            _ if step < self.warmup() => peak * step as f64 / self.warmup() as f64,
            Self::Constant(_) => peak,
            Self::Cosine(Cosine { warmup, floor }) => {
                fall(warmup, floor, |t| 0.5 * (1.0 + (PI * t).cos()))
            }
            Self::Linear(Linear { warmup, floor }) => fall(warmup, floor, |t| 1.0 - t),
            Self::Wsd(Wsd { warmup, decay, floor }) => {
                let stable = steps.saturating_sub((decay * steps as f64).round() as u64);
                fall(stable.max(warmup), floor, |t| 1.0 - t)
            }
        }
    }

    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        let share = |setting, found: f64| match (0.0..=1.0).contains(&found) {
            true => Ok(()),
            false => Err(Error::setting(setting, found, "a share lies between 0 and 1")),
        };
        let above_0 = |setting, found: f64| match found > 0.0 && found.is_finite() {
            true => Ok(()),
            false => Err(Error::setting(setting, found, "expected more than 0")),
        };
        match *self {
            Self::Cosine(Cosine { floor, .. }) | Self::Linear(Linear { floor, .. }) => {
                share("schedule.floor", floor)
            }
            Self::Constant(_) => Ok(()),
            Self::Noam(Noam { warmup, width, factor }) => {
                above_0("schedule.warmup", warmup as f64)?;
                above_0("schedule.width", width as f64)?;
                above_0("schedule.factor", factor)
            }
            Self::InverseSquareRoot(InverseSquareRoot { warmup }) => {
                above_0("schedule.warmup", warmup as f64)
            }
            Self::Wsd(Wsd { decay, floor, .. }) => {
                share("schedule.decay", decay)?;
                share("schedule.floor", floor)
            }
        }
    }

    /// Updates of the warm-up.
    pub fn warmup(&self) -> u64 {
        match *self {
            Self::Cosine(Cosine { warmup, .. })
            | Self::Linear(Linear { warmup, .. })
            | Self::Constant(Constant { warmup })
            | Self::Noam(Noam { warmup, .. })
            | Self::InverseSquareRoot(InverseSquareRoot { warmup })
            | Self::Wsd(Wsd { warmup, .. }) => warmup,
        }
    }
}

/// How far `step` is on the way from `from` to `to`, 0 … 1.
fn progress(step: u64, from: u64, to: u64) -> f64 {
    match to.saturating_sub(from) {
        0 => 0.0,
        way => (step.saturating_sub(from) as f64 / way as f64).min(1.0),
    }
}

fn inverse_square_root(step: u64, warmup: u64, peak: f64) -> f64 {
    let (step, warmup) = (step as f64, warmup.max(1) as f64);
    peak * (step / warmup).min((warmup / step).sqrt())
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Cosine(Cosine::default())
    }
}

impl Default for Cosine {
    fn default() -> Self {
        Self { warmup: 100, floor: 0.1 }
    }
}

impl Default for Linear {
    fn default() -> Self {
        Self { warmup: 100, floor: 0.0 }
    }
}

impl Default for Noam {
    fn default() -> Self {
        Self { warmup: 4000, width: 512, factor: 1.0 }
    }
}

impl Default for InverseSquareRoot {
    fn default() -> Self {
        Self { warmup: 4000 }
    }
}

impl Default for Wsd {
    fn default() -> Self {
        Self { warmup: 100, decay: 0.2, floor: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u64 = 1000;
    const PEAK: f64 = 3e-4;

    fn read(text: &str) -> Schedule {
        toml::from_str(text).unwrap()
    }

    fn all() -> Vec<Schedule> {
        ["cosine", "linear", "constant", "noam", "inverse_square_root", "wsd"]
            .map(|kind| read(&format!("kind = '{kind}'\nwarmup = 50")))
            .to_vec()
    }

    #[track_caller]
    fn assert_rates(schedule: &str, expected: &[(u64, f64)]) {
        let schedule = read(schedule);
        for &(step, share) in expected {
            let rate = schedule.rate(step, STEPS, PEAK);
            assert!((rate - share * PEAK).abs() < 1e-15, "{schedule:?} at {step}: {rate}");
        }
    }

    #[test]
    fn corners_are_where_they_belong() {
        let warm = [(0, 0.0), (1, 0.01), (50, 0.5), (100, 1.0)];
        let cosine = "kind = 'cosine'\nwarmup = 100\nfloor = 0.1";
        assert_rates(cosine, &warm);
        assert_rates(cosine, &[(550, 0.55), (1000, 0.1), (2000, 0.1)]);
        let linear = "kind = 'linear'\nwarmup = 100\nfloor = 0.2";
        assert_rates(linear, &warm);
        assert_rates(linear, &[(325, 0.8), (550, 0.6), (1000, 0.2), (2000, 0.2)]);
        assert_rates("kind = 'constant'", &[(0, 1.0), (1, 1.0), (1000, 1.0), (2000, 1.0)]);
        assert_rates("kind = 'constant'\nwarmup = 100", &warm);
        let root = "kind = 'inverse_square_root'\nwarmup = 100";
        assert_rates(root, &warm);
        assert_rates(root, &[(400, 0.5), (900, 1.0 / 3.0), (10_000, 0.1)]);
        let wsd = "kind = 'wsd'\nwarmup = 100\ndecay = 0.2";
        assert_rates(wsd, &warm);
        assert_rates(wsd, &[(101, 1.0), (800, 1.0), (900, 0.5), (1000, 0.0), (2000, 0.0)]);
    }

    #[test]
    fn noam_is_the_papers_formula() {
        let schedule = Schedule::Noam(Noam { warmup: 4000, width: 512, factor: 2.0 });
        for step in [1u64, 100, 3999, 4000, 4001, 100_000] {
            let s = step as f64;
            let paper = 512f64.powf(-0.5) * s.powf(-0.5).min(s * 4000f64.powf(-1.5));
            let rate = schedule.rate(step, 100_000, 1.0);
            assert!((rate / (2.0 * paper) - 1.0).abs() < 1e-12, "{step}: {rate}");
        }
    }

    #[test]
    fn no_schedule_jumps() {
        for schedule in all() {
            let rates: Vec<f64> =
                (0..=STEPS + 10).map(|step| schedule.rate(step, STEPS, PEAK)).collect();
            let top = rates.iter().copied().fold(0.0, f64::max);
            for (step, pair) in rates.windows(2).enumerate() {
                // The steepest part is the warm-up's, one fiftieth of the peak for each step.
                let change = (pair[1] - pair[0]).abs() / top;
                assert!(change <= 1.0 / 50.0 + 1e-12, "{schedule:?} at {step}: {change}");
            }
            let peak = rates[50];
            assert!(rates[..50].is_sorted() && top == peak, "{schedule:?} is not warm at 50");
            assert!(rates[50..].iter().rev().is_sorted(), "{schedule:?} rises after its peak");
        }
    }

    #[test]
    fn runs_shorter_than_their_warm_up_and_empty_ones_have_a_rate() {
        for schedule in all() {
            for steps in [0, 1, 10, 50, 51] {
                for step in 0..=60 {
                    let rate = schedule.rate(step, steps, PEAK);
                    assert!(rate.is_finite() && rate >= 0.0, "{schedule:?} {step}/{steps}: {rate}");
                }
            }
        }
    }

    #[test]
    fn written_schedules_read_back_the_same() {
        for schedule in all() {
            assert_eq!(read(&toml::to_string(&schedule).unwrap()), schedule);
        }
    }

    #[test]
    fn refusals_name_what_was_found_and_what_would_be_right() {
        let refusal = |text: &str| match toml::from_str::<Schedule>(text) {
            Ok(schedule) => schedule.check().unwrap_err().to_string(),
            Err(e) => e.to_string(),
        };
        let cases = [
            ("kind = 'cosne'", "unknown variant `cosne`, expected one of `cosine`, `linear`"),
            ("kind = 'cosine'\nwarmpu = 1", "unknown field `warmpu`"),
            ("kind = 'linear'\nfloor = 1.5", "schedule.floor = 1.5: a share lies between 0 and 1"),
            ("kind = 'wsd'\ndecay = -0.1", "schedule.decay = -0.1"),
            ("kind = 'noam'\nwidth = 0", "schedule.width = 0: expected more than 0"),
            ("kind = 'inverse_square_root'\nwarmup = 0", "schedule.warmup = 0"),
        ];
        for (text, expected) in cases {
            let message = refusal(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
