//! A comparison: every cell of a grid trained under equal conditions, for several seeds.
//!
//! Cells of one seed read the same batches in the same order, and begin with the same weights wherever name and shape of
//! a parameter agree. Everything lies in one folder: `runs/CELL/seed-N` are run folders, each with an `outcome.json` once
//! its cell is finished; the same comparison begun again in the same folder goes on where it stopped.

mod cell;
mod corpora;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use whatwhere_training::{Ending, Folder, Record, RunSettings, interrupt::Interrupt};

pub use cell::{Cost, Point, Trained};
pub use corpora::Corpora;

use crate::{
    Error,
    budget::Budget,
    grid::{self, Axis, Cell},
    results::{Outcome, Results},
};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What the report is called.
    pub title: String,
    /// Settings of all cells, TOML.
    pub settings: String,
    /// Changes to them, as `--set` takes them.
    pub changes: Vec<String>,
    /// What cells differ in.
    pub axes: Vec<Axis>,
    /// Runs of every cell; their seeds follow the settings' own.
    pub seeds: u64,
    /// What each run may spend; the settings' own updates if absent.
    pub budget: Option<Budget>,
    /// Lengths to try without training; 1, 2, 4, 8 and 16 times the trained one if absent, none if empty.
    pub lengths: Option<Vec<usize>>,
    /// Tokens read at each length.
    pub tokens: usize,
    /// Whether translations are searched and scored, which takes its time.
    pub bleu: bool,
    /// The cell that others are held against, by name; the first if absent.
    pub baseline: Option<String>,
    /// Where everything goes.
    pub folder: PathBuf,
}

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The cell at work.
    pub cell: &'a Cell,
    /// Its seed.
    pub seed: u64,
    /// Runs that are finished.
    pub finished: usize,
    /// Runs in all.
    pub runs: usize,
    /// Updates of this run.
    pub steps: u64,
}

/// Who watches a comparison.
pub trait Spectator {
    /// A run begins, or goes on.
    fn begins(&mut self, _at: &At) {}
    /// After every update of a run.
    fn updated(&mut self, _at: &At, _record: &Record, _step: u64) {}
    /// A run is trained and measured; `was_there` if an earlier call did it.
    fn finished(&mut self, _at: &At, _trained: &Trained, _was_there: bool) {}
    /// A run failed, or a cell was refused; the others go on.
    fn failed(&mut self, _cell: &Cell, _reason: &str) {}
}

/// Nobody watches.
impl Spectator for () {}

/// One run of a cell.
struct Job<'a> {
    cell: &'a Cell,
    seed: u64,
    settings: RunSettings,
}

impl Comparison {
    /// All cells, checked.
    pub fn cells(&self) -> Result<Vec<Cell>, Error> {
        let cells = grid::cells(&self.settings, &self.changes, &self.axes)?;
        if self.seeds == 0 {
            return Err(Error::Request("--seeds 0: expected at least 1".into()));
        }
        if let Some(baseline) = &self.baseline
            && !cells.iter().any(|cell| cell.name == *baseline)
        {
            let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            let names = names.join("; ");
            return Err(Error::Request(format!(
                "--baseline {baseline}: no cell is called so; there are {names}"
            )));
        }
        Ok(cells)
    }

    /// The folder of one run.
    pub fn run_folder(&self, cell: &Cell, seed: u64) -> Folder {
        Folder::new(self.folder.join("runs").join(&cell.folder).join(format!("seed-{seed}")))
    }

    /// Trains and measures what is not finished yet; nothing if interrupted.
    pub fn run(
        &self,
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        spectator: &mut dyn Spectator,
    ) -> Result<Option<Results>, Error> {
        self.run_cells(&self.cells()?, corpora, interrupt, spectator)
    }

    /// [`Self::run`] for cells that are not those of the axes.
    pub(crate) fn run_cells(
        &self,
        cells: &[Cell],
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        spectator: &mut dyn Spectator,
    ) -> Result<Option<Results>, Error> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(cells.len());
        for cell in cells {
            if let Err(reason) = &cell.settings {
                spectator.failed(cell, reason);
                outcomes.push(Outcome::Refused { reason: reason.clone() });
            } else {
                outcomes.push(Outcome::Trained { runs: Vec::new() });
            }
        }
        let fitting = cells.iter().filter(|cell| cell.settings.is_ok()).count();
        let runs = fitting * self.seeds as usize;
        let mut finished = 0;
        // Seed by seed, so that an interrupted comparison has every cell rather than every seed of some.
        for seed in 0..self.seeds {
            for (cell, outcome) in cells.iter().zip(&mut outcomes) {
                let (Ok(settings), Outcome::Trained { runs: done }) =
                    (&cell.settings, &mut *outcome)
                else {
                    continue;
                };
                if interrupt.requested() {
                    return Ok(None);
                }
                let mut settings = settings.clone();
                settings.seed += seed;
                let job = Job { cell, seed: settings.seed, settings };
                let at = (finished, runs);
                let result = catch_unwind(AssertUnwindSafe(|| {
                    self.run_job(&job, at, corpora, interrupt, spectator)
                }));
                match result {
                    Ok(Ok(Some(trained))) => done.push(trained),
                    Ok(Ok(None)) => return Ok(None),
                    Ok(Err(e)) => *outcome = fail(cell, e.to_string(), spectator),
                    Err(_) => {
                        let reason = "the run broke off by a mistake in this program".to_owned();
                        *outcome = fail(cell, reason, spectator);
                    }
                }
                finished += 1;
            }
        }
        Results::of(self, cells, outcomes).map(Some)
    }

    fn run_job(
        &self,
        job: &Job,
        (finished, runs): (usize, usize),
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        spectator: &mut dyn Spectator,
    ) -> Result<Option<Trained>, Error> {
        let corpus = corpora.of(&job.settings)?;
        let mut settings = job.settings.clone();
        settings.training.steps = self.steps(job, &corpus)?;
        settings.resolve(corpus.vocabulary())?;
        let steps = settings.training.steps;
        let at = At { cell: job.cell, seed: job.seed, finished, runs, steps };
        let folder = self.run_folder(job.cell, job.seed);
        if let Some(trained) = cell::load(&folder, &settings, &corpus, self)? {
            spectator.finished(&at, &trained, true);
            return Ok(Some(trained));
        }
        spectator.begins(&at);
        let ending = cell::train(&folder, settings, &corpus, interrupt, &mut |record, step| {
            spectator.updated(&at, record, step);
        })?;
        if ending == Ending::Interrupted {
            return Ok(None);
        }
        let trained = cell::measure(&folder, &corpus, self)?;
        spectator.finished(&at, &trained, false);
        Ok(Some(trained))
    }

    /// Updates of a run. A budget that was measured once holds for all seeds of a cell, and after a stop.
    fn steps(&self, job: &Job, corpus: &whatwhere_data::Corpus) -> Result<u64, Error> {
        let Some(budget) = self.budget else { return Ok(job.settings.training.steps) };
        if matches!(budget, Budget::Minutes(_)) {
            let first = job.cell.settings.as_ref().map_or(0, |settings| settings.seed);
            for seed in first..=job.seed {
                let folder = self.run_folder(job.cell, seed);
                if folder.has_run() {
                    return Ok(folder.load_settings()?.training.steps);
                }
            }
        }
        budget.steps(&job.settings, corpus)
    }
}

fn fail(cell: &Cell, reason: String, spectator: &mut dyn Spectator) -> Outcome {
    spectator.failed(cell, &reason);
    Outcome::Failed { reason }
}
