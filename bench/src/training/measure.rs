//! One case: do both sides agree, and how long does each take when they take turns?

use std::{collections::BTreeMap, path::PathBuf, thread, time::Duration};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use whatwhere_bench::{place::Place, talk::text};
use whatwhere_kernels::Precision;

use crate::{
    cases::{Case, Job, Rival},
    rival::Side,
    table::Row,
};

/// Steps before any that counts; their losses must agree.
const WARM: usize = 3;
/// Steps of one turn.
const TURN: usize = 2;
/// Between turns: torch's threads spin for some milliseconds after a step.
const SETTLE: Duration = Duration::from_millis(30);
/// Largest relative difference of a loss. Three steps of Adam, whose first update is a sign, spread rounding errors.
const TOLERANCE: f64 = 1e-3;
/// The same with products of bf16, whose factors are off by 2⁻⁹ on each side, and whose outputs torch rounds once more.
const TOLERANCE_OF_BF16: f64 = 1e-2;

/// What all cases share.
pub(crate) struct Session<'p> {
    pub(crate) place: &'p Place,
    pub(crate) python: PathBuf,
    pub(crate) threads: usize,
    pub(crate) rounds: usize,
    pub(crate) quick: bool,
    /// Another build of this program, in place of Python's ways.
    pub(crate) against: Option<PathBuf>,
    /// What our products are computed in, and torch's under `autocast`.
    pub(crate) precision: Precision,
}

impl Session<'_> {
    /// Versions of the other side.
    pub(crate) fn versions(&self) -> Result<String> {
        let mut worker = Side::worker(self.place, &self.python, self.threads)?;
        text(&worker.ask(&json!({ "do": "hello" }))?["versions"])
    }

    pub(crate) fn measure(&self, case: &Case) -> Result<Row> {
        let (mut ours, parameters) =
            Side::ours(self.place, self.threads, &case.ours, self.precision)?;
        let tolerance = match self.precision {
            Precision::F32 => TOLERANCE,
            Precision::Bf16 => TOLERANCE_OF_BF16,
        };
        let expected = ours.warm(WARM)?;
        let mut error = 0.0f64;
        let mut rivals = BTreeMap::new();
        for (name, mut side) in self.rivals(case, &parameters)? {
            let found = side.warm(WARM)?;
            if self.against.is_none() && matches!(case.rival, Rival::Python) {
                error = error.max(difference(&expected, &found)?);
                eprintln!("  {name}: largest difference {error:.1e}");
                if error > tolerance {
                    bail!("{name} and ours disagree: found {found:?}, ours {expected:?}");
                }
            }
            rivals.insert(name, side);
        }
        for _ in 0..self.rounds {
            thread::sleep(SETTLE);
            ours.turn(TURN)?;
            for side in rivals.values_mut() {
                thread::sleep(SETTLE);
                side.turn(TURN)?;
            }
        }
        let listed: Vec<String> = rivals
            .iter()
            .map(|(name, side)| format!("{name} {:.0} ms, {:.0} MiB", side.best, side.peak))
            .collect();
        let (ms, mib) = (ours.best, ours.peak);
        eprintln!("  ours {ms:.0} ms, {mib:.0} MiB; {}", listed.join("; "));
        Ok(Row::new(case, &ours, &rivals))
    }

    /// Every way the rival has, ready to step.
    fn rivals(&self, case: &Case, parameters: &Value) -> Result<Vec<(String, Side)>> {
        if let Some(program) = &self.against {
            // Another build may draw other first weights, so its losses are its own.
            let (side, _) =
                Side::build(program, self.place, self.threads, &case.ours, self.precision)?;
            return Ok(vec![("the other build".to_owned(), side)]);
        }
        let ways: &[&str] = match (&case.rival, &case.ours) {
            (Rival::Ours(name, job), _) => {
                // In f32: a rival of ours differs in the job, or in the precision alone.
                let (side, _) = Side::ours(self.place, self.threads, job, Precision::F32)?;
                return Ok(vec![((*name).to_owned(), side)]);
            }
            (Rival::Python, Job::Write(_)) => &["transformers"],
            (Rival::Python, Job::Train(_)) if self.quick => &["torch eager"],
            (Rival::Python, Job::Train(_)) => &["torch eager", "torch compiled"],
        };
        let (place, python, threads) = (self.place, &self.python, self.threads);
        ways.iter()
            .map(|way| {
                let way_of = (*way, self.precision);
                let side = Side::python(place, python, threads, &case.ours, parameters, way_of)?;
                Ok(((*way).to_owned(), side))
            })
            .collect()
    }
}

/// The largest relative difference of losses; tokens that differ are as bad as can be.
fn difference(expected: &[Value], found: &[Value]) -> Result<f64> {
    let mut worst = 0.0f64;
    for (expected, found) in expected.iter().zip(found) {
        worst = worst.max(match (expected.as_f64(), found.as_f64()) {
            (Some(expected), Some(found)) => (expected - found).abs() / expected.abs(),
            _ if expected == found => 0.0,
            _ => 1.0,
        });
    }
    if expected.len() != found.len() {
        bail!("found {} results, expected {}", found.len(), expected.len());
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_differ_by_their_share_and_tokens_altogether() {
        let difference = |a: Value, b: Value| difference(&[a], &[b]).unwrap();
        assert!((difference(json!(2.0), json!(2.1)) - 0.05).abs() < 1e-9);
        assert_eq!(difference(json!([1, 2]), json!([1, 2])), 0.0);
        assert_eq!(difference(json!([1, 2]), json!([1, 3])), 1.0);
    }
}
