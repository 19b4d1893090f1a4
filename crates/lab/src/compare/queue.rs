//! The runs of a comparison in the order they are trained, and what came of them so far.

use whatwhere_data::Corpus;
use whatwhere_training::{RunSettings, interrupt::Interrupt};

use super::{At, Corpora, Observer, Trained};
use crate::{Error, grid::Cell, results::Outcome};

/// One run of a cell.
pub(super) struct Job<'a> {
    /// The cell's place in the grid.
    place: usize,
    pub(super) cell: &'a Cell,
    pub(super) settings: RunSettings,
}

impl Job<'_> {
    pub(super) fn seed(&self) -> u64 {
        self.settings.seed
    }
}

/// What runs side by side share.
pub(super) struct Queue<'a> {
    corpora: &'a mut Corpora,
    observer: &'a mut dyn Observer,
    outcomes: Vec<Outcome>,
    /// Runs of the cells that compose, seed by seed, so that an interrupted comparison has every cell rather than every
    /// seed of some.
    jobs: std::vec::IntoIter<Job<'a>>,
    runs: usize,
    finished: usize,
    interrupted: bool,
}

impl<'a> Queue<'a> {
    pub(super) fn new(
        cells: &'a [Cell],
        seeds: u64,
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
        let job = |place: usize, seed| {
            let cell = &cells[place];
            let mut settings = cell.settings.clone().ok()?;
            settings.seed += seed;
            Some(Job { place, cell, settings })
        };
        let jobs: Vec<Job> = (0..seeds)
            .flat_map(|seed| (0..cells.len()).filter_map(move |place| job(place, seed)))
            .collect();
        let runs = jobs.len();
        let jobs = jobs.into_iter();
        Self { corpora, observer, outcomes, jobs, runs, finished: 0, interrupted: false }
    }

    /// The next run; cells of which one failed are left alone.
    pub(super) fn take(&mut self) -> Option<Job<'a>> {
        if self.interrupted {
            return None;
        }
        let outcomes = &self.outcomes;
        self.jobs.find(|job| matches!(outcomes[job.place], Outcome::Trained { .. }))
    }

    /// The corpus of a run; one that was not read before is told of.
    pub(super) fn corpus(
        &mut self,
        settings: &RunSettings,
        interrupt: &Interrupt,
    ) -> Result<Corpus, Error> {
        let before = self.corpora.count();
        let corpus = self.corpora.of(settings, interrupt)?;
        if self.corpora.count() > before {
            self.observer.reads(&corpus.describe());
        }
        Ok(corpus)
    }

    /// Tells the observer something about a run at work.
    pub(super) fn tell(&mut self, job: &Job, steps: u64, say: impl FnOnce(&mut dyn Observer, &At)) {
        let (finished, runs) = (self.finished, self.runs);
        say(self.observer, &At { cell: job.cell, seed: job.seed(), finished, runs, steps });
    }

    /// Notes what came of a run; nothing if it was interrupted.
    pub(super) fn enter(&mut self, job: &Job, result: Result<Option<Ended>, Error>) {
        match result {
            Ok(None) => {
                self.interrupted = true;
                return;
            }
            Ok(Some(Ended { trained, was_there })) => {
                self.tell(job, trained.steps, |observer, at| {
                    observer.finished(at, &trained, was_there);
                });
                if let Outcome::Trained { runs } = &mut self.outcomes[job.place] {
                    runs.push(trained);
                }
            }
            Err(e) => {
                let reason = e.to_string();
                self.observer.failed(job.cell, &reason);
                self.outcomes[job.place] = Outcome::Failed { reason };
            }
        }
        self.finished += 1;
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

/// A run that came to its end.
pub(super) struct Ended {
    pub(super) trained: Trained,
    /// Whether an earlier call did it.
    pub(super) was_there: bool,
}
