//! What every cell may spend: updates, tokens, minutes or arithmetic.

use std::{str::FromStr, time::Instant};

use serde::{Deserialize, Serialize};
use whatwhere_data::{BatchSize, Corpus};
use whatwhere_training::{Folder, Observer, Record, RunSettings, Trainer, interrupt::Interrupt};

use crate::{Error, cost};

/// What a run may spend. It becomes a number of updates before the run begins, so that schedules know their end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Updates of the weights.
    Steps(u64),
    /// Tokens read in training.
    Tokens(u64),
    /// Minutes of training on this machine, by the speed of some updates before the run.
    Minutes(f64),
    /// Floating-point operations of training, as [`cost`] predicts them.
    Flops(f64),
}

/// Updates that are timed, after as many that are not.
const TIMED: u64 = 5;

impl FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Request(format!(
                "--budget {text}: expected steps=800, tokens=2e6, minutes=5 or flops=1e13"
            ))
        };
        let (kind, amount) = text.split_once('=').ok_or_else(wrong)?;
        let amount: f64 = amount.trim().replace('_', "").parse().map_err(|_| wrong())?;
        if !(amount > 0.0 && amount.is_finite()) {
            return Err(wrong());
        }
        let whole = || if amount >= 1.0 { Ok(amount as u64) } else { Err(wrong()) };
        match kind.trim() {
            "steps" => whole().map(Self::Steps),
            "tokens" => whole().map(Self::Tokens),
            "minutes" => Ok(Self::Minutes(amount)),
            "flops" => Ok(Self::Flops(amount)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "{steps} updates"),
            Self::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Self::Minutes(minutes) => write!(f, "{minutes} minutes"),
            Self::Flops(flops) => write!(f, "{flops:.2e} floating-point operations"),
        }
    }
}

impl Budget {
    /// Updates that a run with these settings can afford, at least one.
    pub fn steps(&self, settings: &RunSettings, corpus: &Corpus) -> Result<u64, Error> {
        let steps = match *self {
            Self::Steps(steps) => steps,
            Self::Tokens(tokens) => tokens / tokens_per_step(settings),
            Self::Minutes(minutes) => (minutes * 60.0 / seconds_per_step(settings, corpus)?) as u64,
            Self::Flops(flops) => {
                let forward = cost::Flops::of(settings, corpus.vocabulary())?;
                (flops / (forward.training() * tokens_per_step(settings) as f64)) as u64
            }
        };
        Ok(steps.max(1))
    }
}

/// Tokens of one update, with padding.
pub(crate) fn tokens_per_step(settings: &RunSettings) -> u64 {
    let training = &settings.training;
    let batch = match training.batch {
        BatchSize::Rows(rows) => (rows * training.length) as u64,
        BatchSize::Tokens { tokens } => tokens as u64,
    };
    batch * training.accumulate
}

/// The time of an update, from a short run in a folder of its own.
fn seconds_per_step(settings: &RunSettings, corpus: &Corpus) -> Result<f64, Error> {
    let folder = tempfile::tempdir()
        .map_err(|e| Error::Request(format!("no temporary folder could be made: {e}")))?;
    let mut settings = settings.clone();
    settings.training.evaluate_every = u64::MAX;
    settings.training.log_every = u64::MAX;
    settings.training.evaluate_batches = 1;
    settings.training.steps = 2 * TIMED + 1;
    let folder = Folder::new(folder.path().join("run"));
    let mut trainer = Trainer::start(settings, corpus.clone(), folder)?;
    let mut ends = Ends::default();
    trainer.run(&Interrupt::default(), &mut ends)?;
    Ok(ends.median().max(1e-6))
}

/// When updates ended.
#[derive(Default)]
struct Ends(Vec<Instant>);

impl Observer for Ends {
    fn updated(&mut self, _record: &Record, _step: u64) {
        self.0.push(Instant::now());
    }
}

impl Ends {
    /// Seconds of an update, the middle one of the last: other programs hold up one or the other.
    fn median(&self) -> f64 {
        let mut taken: Vec<f64> =
            self.0.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mut taken = taken.split_off(taken.len().saturating_sub(TIMED as usize));
        taken.sort_by(f64::total_cmp);
        taken.get(taken.len() / 2).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn budgets_are_read_and_refused() {
        assert_eq!("steps=800".parse::<Budget>().unwrap(), Budget::Steps(800));
        assert_eq!("tokens=2e6".parse::<Budget>().unwrap(), Budget::Tokens(2_000_000));
        assert_eq!("minutes=0.5".parse::<Budget>().unwrap(), Budget::Minutes(0.5));
        for text in ["800", "steps=0", "steps=-3", "hours=1", "flops=many", "steps=0.2"] {
            assert!(
                text.parse::<Budget>().unwrap_err().to_string().contains("expected steps=800"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_update_takes_what_the_middle_one_of_the_last_took() {
        let begin = Instant::now();
        let mut now = begin;
        let taken = [900, 800, 70, 60, 50, 10, 12, 500, 11, 13];
        let mut ends = Ends(vec![begin]);
        for milliseconds in taken {
            now += Duration::from_millis(milliseconds);
            ends.0.push(now);
        }
        assert!((ends.median() - 0.012).abs() < 1e-9, "{}", ends.median());
    }

    #[test]
    fn tokens_and_arithmetic_become_updates() {
        let settings = RunSettings::read(
            "[data]\nsource='copy'\n[model]\nwidth=32\nlayers=1\n[training]\nbatch=4\nlength=100",
            &["model.attention.heads=2".into()],
        )
        .unwrap();
        let corpus = Corpus::load(&settings.data).unwrap();
        assert_eq!(Budget::Tokens(4000).steps(&settings, &corpus).unwrap(), 10);
        let once = cost::Flops::of(&settings, corpus.vocabulary()).unwrap().training() * 400.0;
        assert_eq!(Budget::Flops(once * 7.5).steps(&settings, &corpus).unwrap(), 7);
    }
}
