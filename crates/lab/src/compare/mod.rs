//! A comparison: every cell of a grid trained under equal conditions, for several seeds.
//!
//! Cells of one seed read the same batches in the same order, and begin with the same weights wherever name and shape of
//! a parameter agree. Everything lies in one folder: `runs/CELL/seed-N` are run folders, each with an `outcome.json` once
//! its cell is finished; the same comparison begun again in the same folder goes on where it stopped, and several
//! processes can work on it at once (`share.rs`) or on runs by their numbers (`numbers.rs`).

mod cell;
mod conditions;
mod corpora;
mod figures;
mod numbers;
mod pace;
mod queue;
mod share;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use whatwhere_data::Corpus;
use whatwhere_training::{Ending, Folder, Record, RunSettings, interrupt::Interrupt};

pub use cell::{Cost, Point, Trained};
pub use corpora::Corpora;
pub use figures::BleuByWords;
pub use numbers::{Numbered, Numbers, Ran, State};

pub(crate) use share::turn;

use cell::Amount;
use queue::{Came, Job, Next, Queue};

use crate::{
    Error,
    budget::Budget,
    grid::{self, Axis, Cell},
    results::Results,
    search::Search,
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
    /// Runs that are trained at the same time, each on its share of the threads. Small models learn faster so, but tokens
    /// per second are then those of a run beside others, and memory is not measured.
    pub jobs: usize,
    /// Whether other processes, also on other machines, work on the same folder: each takes what no other has, and all
    /// wait for one another.
    pub share: bool,
    /// Updates of each cell, by its folder, where a budget in minutes was turned into them before
    /// ([`record::claim`](crate::record::claim)).
    pub updates: BTreeMap<String, u64>,
    /// How each cell's settings are searched for before it is compared; as they are set if absent.
    pub search: Option<Search>,
    /// The command that asks for it, for the record.
    pub command: Option<String>,
    /// Where everything goes.
    pub folder: PathBuf,
}

impl Default for Comparison {
    /// One run of the default settings, in the folder one is in.
    fn default() -> Self {
        Self {
            title: String::new(),
            settings: String::new(),
            changes: Vec::new(),
            axes: Vec::new(),
            seeds: 1,
            budget: None,
            lengths: None,
            tokens: 65_536,
            bleu: false,
            baseline: None,
            jobs: 1,
            share: false,
            updates: BTreeMap::new(),
            search: None,
            command: None,
            folder: PathBuf::new(),
        }
    }
}

/// Points that a learning curve has at least, however small the budget is.
const CURVE: u64 = 8;

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

/// Who observes a comparison; runs side by side tell their news one at a time.
pub trait Observer: Send {
    /// Data are read that no run had before.
    fn reads(&mut self, _data: &whatwhere_data::Description) {}
    /// A run begins, or goes on.
    fn begins(&mut self, _at: &At) {}
    /// After every update of a run.
    fn updated(&mut self, _at: &At, _record: &Record, _step: u64) {}
    /// A run is trained and measured; `was_there` if an earlier call did it.
    fn finished(&mut self, _at: &At, _trained: &Trained, _was_there: bool) {}
    /// A run failed, or a cell was refused; the others go on.
    fn failed(&mut self, _cell: &Cell, _reason: &str) {}
    /// So many runs are left, and other processes have them all.
    fn waits(&mut self, _held: usize) {}
}

/// Nobody observes.
impl Observer for () {}

impl Comparison {
    /// All cells, checked.
    pub fn cells(&self) -> Result<Vec<Cell>, Error> {
        let cells = grid::cells(&self.settings, &self.changes, &self.axes)?;
        if self.seeds == 0 {
            return Err(Error::Request("--seeds 0: expected at least 1".into()));
        }
        if self.jobs == 0 {
            return Err(Error::Request("--jobs 0: expected at least 1".into()));
        }
        self.check_axes(&cells)?;
        if let (Some(Budget::Minutes(minutes)), true) = (self.budget, self.jobs > 1) {
            return Err(Error::Request(format!(
                "--budget minutes={minutes} with --jobs {}: runs beside each other have no minutes of their own; \
                 expected a budget of steps, tokens or flops, or --jobs 1",
                self.jobs
            )));
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

    /// Refuses cells that would be the same, though their names say otherwise.
    fn check_axes(&self, cells: &[Cell]) -> Result<(), Error> {
        let wrong = |words: String| Err(Error::Request(words));
        for (at, axis) in self.axes.iter().enumerate() {
            let key = &axis.key;
            if self.axes[..at].iter().any(|other| other.key == *key) {
                return wrong(format!("--over {key} stands twice; name all its values in one"));
            }
            if let (Some(budget), "training.steps") = (self.budget, key.as_str()) {
                return wrong(format!(
                    "--over {key} with a budget of {budget}: every cell is given the budget's; leave one of both out"
                ));
            }
            if self.seeds > 1 && key == "seed" {
                return wrong(format!(
                    "--over seed with --seeds {}: the runs of a cell have the seeds that follow its own, so that cells share runs; \
                     leave one of both out",
                    self.seeds
                ));
            }
        }
        for (at, cell) in cells.iter().enumerate() {
            if let Some(same) = cells[..at].iter().find(|other| other.is_same(cell)) {
                return wrong(format!(
                    "`{}` and `{}` have the same settings; leave one of both out",
                    same.name, cell.name
                ));
            }
        }
        Ok(())
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
        observer: &mut dyn Observer,
    ) -> Result<Option<Results>, Error> {
        match &self.search {
            Some(search) => search.run(self, corpora, interrupt, observer),
            None => self.run_cells(&self.cells()?, corpora, interrupt, observer),
        }
    }

    /// [`Self::run`] for cells that are not those of the axes.
    pub(crate) fn run_cells(
        &self,
        cells: &[Cell],
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Option<Results>, Error> {
        let amount = Amount::of(self, cells);
        let jobs = queue::jobs(cells, self.seeds);
        let mut queue =
            self.work_off(Queue::new(cells, jobs, corpora, observer), amount, interrupt)?;
        if self.share {
            self.reconsider(cells, amount, &mut queue, interrupt);
        }
        match queue.outcomes() {
            Some(outcomes) => Results::of(self, cells, outcomes).map(Some),
            None => Ok(None),
        }
    }

    /// Works on a queue until nothing is left in it.
    fn work_off<'a>(
        &self,
        queue: Queue<'a>,
        amount: Amount,
        interrupt: &Interrupt,
    ) -> Result<Queue<'a>, Error> {
        let queue = Mutex::new(queue);
        if self.jobs == 1 {
            self.work(amount, &queue, interrupt);
        } else {
            let threads = (rayon::current_num_threads() / self.jobs).max(1);
            let pools = (0..self.jobs)
                .map(|_| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|e| Error::Request(format!("--jobs {}: no threads: {e}", self.jobs)))?;
            thread::scope(|scope| {
                for pool in &pools {
                    scope.spawn(|| pool.install(|| self.work(amount, &queue, interrupt)));
                }
            });
        }
        Ok(queue.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Trains and measures one run after the other until there is none.
    fn work(&self, amount: Amount, queue: &Mutex<Queue>, interrupt: &Interrupt) {
        loop {
            let next = lock(queue).take();
            let job = match next {
                Next::Run(job) => *job,
                Next::Wait => {
                    share::pause(interrupt);
                    lock(queue).come_back();
                    continue;
                }
                Next::End => return,
            };
            if interrupt.requested() {
                return lock(queue).interrupt();
            }
            let run = AssertUnwindSafe(|| self.run_job(&job, amount, queue, interrupt));
            let result = catch_unwind(run).unwrap_or_else(|_| {
                let reason = "the run broke off by a mistake in this program";
                Err(Error::Request(reason.into()))
            });
            lock(queue).enter(job, result);
        }
    }

    fn run_job(
        &self,
        job: &Job,
        amount: Amount,
        queue: &Mutex<Queue>,
        interrupt: &Interrupt,
    ) -> Result<Came, Error> {
        let corpus = match lock(queue).corpus(&job.settings, interrupt) {
            Err(_) if interrupt.requested() => return Ok(Came::Interrupted),
            corpus => corpus?,
        };
        let settings = self.resolved(job, &corpus)?;
        let steps = settings.training.steps;
        let folder = self.run_folder(job.cell, job.seed());
        let load = || cell::load(&folder, &settings, &corpus, self, amount);
        let was_there = |trained| Came::Ended { trained: Box::new(trained), was_there: true };
        if let Some(trained) = load()? {
            return Ok(was_there(trained));
        }
        let held = match self.hold(job) {
            Err(e) if self.share && share::is_busy(&e) => return Ok(Came::Held),
            held => held?,
        };
        // Who had it until now may have finished it.
        if let (true, Some(trained)) = (self.share, load()?) {
            return Ok(was_there(trained));
        }
        lock(queue).tell(job, steps, |observer, at| observer.begins(at));
        let mut updated = |record: &Record, step| {
            lock(queue).tell(job, steps, |observer, at| observer.updated(at, record, step));
        };
        let jobs = self.jobs;
        match cell::train(&folder, settings.clone(), &corpus, jobs, interrupt, &mut updated) {
            Err(e) if self.share && share::is_busy(&e) => return Ok(Came::Held),
            Ok(Ending::Interrupted) => return Ok(Came::Interrupted),
            ending => ending?,
        };
        let trained = cell::measure(&folder, &corpus, self, amount)?;
        // Numbers that were written and read may differ in their last bit; all processes are to report the same.
        let read = if self.share { load()? } else { None };
        drop(held);
        Ok(Came::Ended { trained: Box::new(read.unwrap_or(trained)), was_there: false })
    }

    /// The settings that a run really has.
    fn resolved(&self, job: &Job, corpus: &Corpus) -> Result<RunSettings, Error> {
        let mut settings = job.settings.clone();
        settings.training.steps = self.steps(job.cell, &job.settings, corpus)?;
        // Settings that would have a curve with their own updates have one with the budget's.
        if self.budget.is_some()
            && job.settings.training.evaluate_every <= job.settings.training.steps
        {
            let training = &mut settings.training;
            let often = (training.steps / CURVE).max(1);
            training.evaluate_every = training.evaluate_every.min(often);
        }
        settings.resolve_for(corpus)?;
        Ok(settings)
    }

    /// Updates of a cell's runs. A budget that was measured once holds for all its seeds, and after a stop.
    pub(crate) fn steps(
        &self,
        cell: &Cell,
        settings: &RunSettings,
        corpus: &Corpus,
    ) -> Result<u64, Error> {
        let Some(budget) = self.budget else { return Ok(settings.training.steps) };
        if matches!(budget, Budget::Minutes(_)) {
            if let Some(updates) = self.updates.get(&cell.folder) {
                return Ok(*updates);
            }
            let first = cell.settings.as_ref().map_or(0, |settings| settings.seed);
            for seed in first..first + self.seeds {
                let folder = self.run_folder(cell, seed);
                if folder.has_run() {
                    return Ok(folder.load_settings()?.training.steps);
                }
            }
        }
        budget.steps(settings, corpus)
    }
}

fn lock<'q, 'a>(queue: &'q Mutex<Queue<'a>>) -> MutexGuard<'q, Queue<'a>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
