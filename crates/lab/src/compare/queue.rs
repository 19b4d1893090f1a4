//! The runs of a comparison in the order they are trained, and what came of them so far.

use std::collections::VecDeque;

use whatwhere_data::Corpus;
use whatwhere_training::{RunSettings, interrupt::Interrupt};

use super::{At, Corpora, Observer, Trained};
use crate::{Error, grid::Cell, results::Outcome};

/// One run of a cell.
pub(super) struct Job<'a> {
    /// Its number in the queue.
    pub(super) number: usize,
    /// The cell's place in the grid.
    pub(super) place: usize,
    pub(super) cell: &'a Cell,
    pub(super) settings: RunSettings,
}

impl Job<'_> {
    pub(super) fn seed(&self) -> u64 {
        self.settings.seed
    }
}

/// Runs of the cells that compose, seed by seed, so that an interrupted comparison has every cell rather than every seed
/// of some.
pub(super) fn jobs(cells: &[Cell], seeds: u64) -> Vec<Job<'_>> {
    let job = |place: usize, seed| {
        let cell = &cells[place];
        let mut settings = cell.settings.clone().ok()?;
        settings.seed += seed;
        Some(Job { number: 0, place, cell, settings })
    };
    let all =
        (0..seeds).flat_map(|seed| (0..cells.len()).filter_map(move |place| job(place, seed)));
    all.enumerate().map(|(number, job)| Job { number, ..job }).collect()
}

/// What a worker is to do.
pub(super) enum Next<'a> {
    /// Train this run.
    Run(Box<Job<'a>>),
    /// Other processes hold all that is left.
    Wait,
    /// Nothing more.
    End,
}

/// What runs side by side share.
pub(super) struct Queue<'a> {
    corpora: &'a mut Corpora,
    observer: &'a mut dyn Observer,
    outcomes: Vec<Outcome>,
    jobs: VecDeque<Job<'a>>,
    /// Runs that other processes had when it was their turn.
    held: Vec<Job<'a>>,
    runs: usize,
    finished: usize,
    interrupted: bool,
}

impl<'a> Queue<'a> {
    pub(super) fn new(
        cells: &'a [Cell],
        jobs: Vec<Job<'a>>,
        corpora: &'a mut Corpora,
        observer: &'a mut dyn Observer,
    ) -> Self {
        let mut outcomes = Vec::with_capacity(cells.len());
        for cell in cells {
            outcomes.push(match &cell.settings {
                Ok(_) => Outcome::Trained { runs: Vec::new() },
                Err(reason) => {
                    observer.failed(cell, reason);
                    Outcome::Refused { reason: reason.clone() }
                }
            });
        }
        let (runs, jobs) = (jobs.len(), jobs.into());
        let held = Vec::new();
        Self { corpora, observer, outcomes, jobs, held, runs, finished: 0, interrupted: false }
    }

    /// The next run; cells of which one failed are left alone.
    pub(super) fn take(&mut self) -> Next<'a> {
        if self.interrupted {
            return Next::End;
        }
        while let Some(job) = self.jobs.pop_front() {
            if matches!(self.outcomes[job.place], Outcome::Trained { .. }) {
                return Next::Run(Box::new(job));
            }
        }
        if self.held.is_empty() {
            return Next::End;
        }
        self.observer.waits(self.held.len());
        Next::Wait
    }

    /// Comes back to the runs that others had.
    pub(super) fn come_back(&mut self) {
        self.jobs.extend(self.held.drain(..));
    }

    /// The corpus of a run; one that was not read before is told of.
    pub(super) fn corpus(
        &mut self,
        settings: &RunSettings,
        interrupt: &Interrupt,
    ) -> Result<Corpus, Error> {
        self.corpora.of_told(settings, interrupt, self.observer)
    }

    /// Tells the observer something about a run at work.
    pub(super) fn tell(&mut self, job: &Job, steps: u64, say: impl FnOnce(&mut dyn Observer, &At)) {
        let (finished, runs) = (self.finished, self.runs);
        say(self.observer, &At { cell: job.cell, seed: job.seed(), finished, runs, steps });
    }

    /// Notes what came of a run.
    pub(super) fn enter(&mut self, job: Job<'a>, result: Result<Came, Error>) {
        match result {
            Ok(Came::Interrupted) => {
                self.interrupted = true;
                return;
            }
            Ok(Came::Held) => return self.held.push(job),
            Ok(Came::Ended { trained, was_there }) => {
                self.tell(&job, trained.steps, |observer, at| {
                    observer.finished(at, &trained, was_there);
                });
                self.found(job.place, *trained);
            }
            Err(e) => {
                let reason = e.to_string();
                self.observer.failed(job.cell, &reason);
                self.outcomes[job.place] = Outcome::Failed { reason };
            }
        }
        self.finished += 1;
    }

    /// Notes an outcome that stands.
    pub(super) fn found(&mut self, place: usize, trained: Trained) {
        if let Outcome::Trained { runs } = &mut self.outcomes[place] {
            runs.push(trained);
        }
    }

    /// Places of the cells of which a run failed.
    pub(super) fn failed(&self) -> Vec<usize> {
        let is_failed = |place: &usize| matches!(self.outcomes[*place], Outcome::Failed { .. });
        (0..self.outcomes.len()).filter(is_failed).collect()
    }

    /// A cell that failed here has all its runs after all.
    pub(super) fn revive(&mut self, place: usize, runs: Vec<Trained>) {
        self.outcomes[place] = Outcome::Trained { runs };
    }

    /// Stops handing out runs.
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// One outcome for each cell; nothing if interrupted.
    pub(super) fn outcomes(mut self) -> Option<Vec<Outcome>> {
        for outcome in &mut self.outcomes {
            if let Outcome::Trained { runs } = outcome {
                runs.sort_by_key(|run| run.seed); // side by side they end in any order
            }
        }
        (!self.interrupted).then_some(self.outcomes)
    }
}

/// What came of a run.
pub(super) enum Came {
    /// It is trained and measured.
    Ended {
        trained: Box<Trained>,
        /// Whether an earlier call, or another process, did it.
        was_there: bool,
    },
    /// Another process has it.
    Held,
    /// It was stopped, and can go on.
    Interrupted,
}
