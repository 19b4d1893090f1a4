//! What some seeds tell about all seeds.

use serde::{Deserialize, Serialize};

/// Mean and spread of a few values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with `count − 1` below; none for a single value.
    pub deviation: Option<f64>,
    /// Half of the 95 % confidence interval of the mean, by Student's t; none for a single value.
    pub margin: Option<f64>,
    /// The least and the greatest value.
    pub extent: (f64, f64),
}

/// What a difference against a baseline amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Below the baseline, beyond noise.
    Lower,
    /// Above the baseline, beyond noise.
    Higher,
    /// The confidence interval holds 0.
    WithinNoise,
    /// A single pair says nothing about noise.
    Unknown,
}

impl Summary {
    /// Of some values; nothing if there is none, or one is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        let margin = deviation.map(|d| student(count - 1) * d / (count as f64).sqrt());
        Some(Self { count, mean, deviation, margin, extent: extent(values) })
    }

    /// Ends of the 95 % confidence interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.margin.map(|margin| (self.mean - margin, self.mean + margin))
    }

    /// What it says as a difference to 0.
    pub fn verdict(&self) -> Verdict {
        match self.interval() {
            None => Verdict::Unknown,
            Some((_, high)) if high < 0.0 => Verdict::Lower,
            Some((low, _)) if low > 0.0 => Verdict::Higher,
            Some(_) => Verdict::WithinNoise,
        }
    }
}

/// The least and the greatest of some values; infinite where there is none.
pub fn extent(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// Differences of values that belong together pair by pair, `a − b`.
pub fn paired(a: &[f64], b: &[f64]) -> Option<Summary> {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    Summary::of(&differences)
}

/// The 97.5 % point of Student's t.
fn student(freedom: usize) -> f64 {
    const POINTS: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    // Beyond the table the first terms of Cornish and Fisher's expansion are right to three digits.
    let z: f64 = 1.959_964;
    POINTS.get(freedom - 1).copied().unwrap_or_else(|| {
        let n = freedom as f64;
        z + (z.powi(3) + z) / (4.0 * n)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_sample_has_its_known_interval() {
        let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(summary.mean, 3.0);
        assert!((summary.deviation.unwrap() - 2.5_f64.sqrt()).abs() < 1e-12);
        assert!((summary.margin.unwrap() - 2.776 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn students_table_goes_on_without_a_jump() {
        assert!((student(30) - student(31)).abs() < 0.005);
        assert!((student(60) - 2.000).abs() < 0.001);
        assert!((student(100_000) - 1.960).abs() < 0.001);
    }

    #[test]
    fn one_seed_says_nothing_about_noise() {
        assert_eq!(paired(&[1.0], &[2.0]).unwrap().verdict(), Verdict::Unknown);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }

    #[test]
    fn differences_are_judged_pair_by_pair() {
        // Seeds differ by whole units, cells by a tenth: only pairs can show it.
        let (a, b) = ([1.0, 2.0, 3.0], [1.11, 2.10, 3.09]);
        assert_eq!(paired(&a, &b).unwrap().verdict(), Verdict::Lower);
        assert_eq!(paired(&b, &a).unwrap().verdict(), Verdict::Higher);
        assert_eq!(paired(&a, &[1.5, 1.5, 3.1]).unwrap().verdict(), Verdict::WithinNoise);
    }
}
