//! Runs by their numbers, for schedulers that hand out numbers: Slurm's arrays, GNU parallel, a loop in a shell.
//!
//! A number belongs to one process, so that no locks are needed; what came of all of them is gathered afterwards.

use std::{ops::RangeInclusive, path::PathBuf, str::FromStr};

use serde::Serialize;
use whatwhere_training::interrupt::Interrupt;

use super::{
    Amount, Comparison, Corpora, Observer, Trained, cell,
    queue::{self, Queue},
};
use crate::{
    Error,
    grid::Cell,
    results::{Outcome, Results},
};

/// One number, or all from one to another, both included, as a shell's `{A..B}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(RangeInclusive<usize>);

impl Numbers {
    /// Refuses numbers that none of so many runs has.
    pub fn check(&self, runs: usize) -> Result<(), Error> {
        let (number, last) = (*self.0.end(), runs.saturating_sub(1));
        match number < runs {
            true => Ok(()),
            false => Err(Error::Request(format!(
                "--only: no run has the number {number}; there are {runs}, from 0 to {last}"
            ))),
        }
    }
}

impl FromStr for Numbers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(Error::Request(format!(
                "--only {text}: expected the number of a run, such as 3, or A..B with the lower first, such as 0..5"
            ))),
        }
    }
}

/// A run with its number in the order of training: all cells of the first seed, then all of the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Numbered {
    /// From 0.
    pub run: usize,
    /// What its cell is called.
    pub cell: String,
    /// Of weights and data order.
    pub seed: u64,
    /// How far it is.
    pub state: State,
    /// Its run folder.
    pub folder: PathBuf,
}

/// A run that was asked for by its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Which.
    pub run: Numbered,
    /// What came of it, or why nothing did.
    pub trained: Result<Trained, String>,
}

/// How far a run is, by what its folder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is nothing yet.
    Waiting,
    /// There is a run without an outcome: somebody trains it, or stopped.
    Begun,
    /// There is an outcome.
    Finished,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Begun => "begun",
            Self::Finished => "finished",
        })
    }
}

impl Comparison {
    /// All runs of the cells that compose, in the order they are trained.
    pub fn numbered(&self) -> Result<Vec<Numbered>, Error> {
        let cells = self.numbered_cells()?;
        let of = |job: &queue::Job| {
            let folder = self.run_folder(job.cell, job.seed());
            let state = match (cell::has_outcome(&folder), folder.has_run()) {
                (true, _) => State::Finished,
                (false, true) => State::Begun,
                (false, false) => State::Waiting,
            };
            let (run, cell, seed) = (job.number, job.cell.name.clone(), job.seed());
            Numbered { run, cell, seed, state, folder: folder.path().into() }
        };
        Ok(queue::jobs(&cells, self.seeds).iter().map(of).collect())
    }

    /// Cells whose runs are known before any of them is trained.
    fn numbered_cells(&self) -> Result<Vec<Cell>, Error> {
        if self.search.is_some() {
            return Err(Error::Request(
                "--search chooses runs by what came of those before, so that they have no numbers beforehand; \
                 expected --share, with which processes search together"
                    .into(),
            ));
        }
        self.cells()
    }

    /// Trains and measures runs by their numbers, and no other; nothing if interrupted.
    pub fn run_numbers(
        &self,
        numbers: &Numbers,
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Option<Vec<Ran>>, Error> {
        let cells = self.numbered_cells()?;
        let mut jobs = queue::jobs(&cells, self.seeds);
        numbers.check(jobs.len())?;
        jobs.retain(|job| numbers.0.contains(&job.number));
        let places: Vec<usize> = jobs.iter().map(|job| job.place).collect();
        let amount = Amount::of(self, &cells);
        let queue = Queue::new(&cells, jobs, corpora, observer);
        let Some(outcomes) = self.work_off(queue, amount, interrupt)?.outcomes() else {
            return Ok(None);
        };
        let chosen = self.numbered()?.into_iter().filter(|run| numbers.0.contains(&run.run));
        let came = |(run, place): (Numbered, usize)| {
            let trained = match &outcomes[place] {
                Outcome::Trained { runs } => {
                    let trained = runs.iter().find(|found| found.seed == run.seed);
                    trained.cloned().ok_or_else(|| "it was not trained".to_owned())
                }
                Outcome::Refused { reason } | Outcome::Failed { reason } => Err(reason.clone()),
            };
            Ran { run, trained }
        };
        Ok(Some(chosen.zip(places).map(came).collect()))
    }

    /// Sums up what is there, without training, and lists the runs that are missing. Nothing if interrupted.
    pub fn gather(
        &self,
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Option<(Results, Vec<Numbered>)>, Error> {
        let cells = self.numbered_cells()?;
        let amount = Amount::of(self, &cells);
        let mut queue = Queue::new(&cells, Vec::new(), corpora, observer);
        let mut missing = Vec::new();
        for (job, run) in queue::jobs(&cells, self.seeds).into_iter().zip(self.numbered()?) {
            match self.outcome(&job, amount, &mut queue, interrupt) {
                Ok(Some(trained)) => queue.found(job.place, trained),
                Ok(None) => missing.push(run),
                Err(_) if interrupt.requested() => return Ok(None),
                Err(e) => queue.enter(job, Err(e)),
            }
        }
        let outcomes = queue.outcomes().unwrap_or_default();
        Ok(Some((Results::of(self, &cells, outcomes)?, missing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_refused() {
        let read = |text: &str| text.parse::<Numbers>().map_err(|e| e.to_string());
        assert_eq!(read("3"), Ok(Numbers(3..=3)));
        assert_eq!(read("0..5"), Ok(Numbers(0..=5)));
        for text in ["", "x", "-1", "5..2", "1..", "1,2", "1...2"] {
            let reason = read(text).unwrap_err();
            assert!(reason.contains("expected the number of a run"), "{text}: {reason}");
        }
    }
}
