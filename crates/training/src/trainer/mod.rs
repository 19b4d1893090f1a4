//! The loop: batches in, a run folder out.
//!
//! A batch is a function of seed and step, dropout too, and the file to go on from holds everything else; so a run that
//! was killed and resumed has the same bits as one that never stopped. `saving.rs` writes that file and reads it again.
//!
//! Ranks go through the loop together. Whatever it branches on is the same for all: figures that all have gathered, and
//! whether any of them was asked to stop. Rank 0 alone has files (`records.rs`).

mod records;
mod rows;
pub(crate) mod saving;

use std::{sync::Arc, time::Instant};

use burn::{module::Module, tensor::Device};
use serde::Serialize;
use whatwhere_data::{Batches, Corpus, Split};
use whatwhere_random::Random;
use whatwhere_transformer::{Model, Segments};

use crate::{
    Error, Evaluation, Folder, RunSettings,
    evaluate::evaluate_among,
    finetune::{Base, Trainable, Transfer},
    interrupt::Interrupt,
    journal::Past,
    learner::{Learner, StepStats},
    lock::Lock,
    memory::Memory,
    ranks::{self, Alone, Ranks, sharing::broadcast_model},
    statistics::ExponentialMean,
    tensorboard,
};
use records::Records;
pub use rows::batches;
use rows::splits;

/// Losses above this multiple of the first one have exploded.
const EXPLODED: f64 = 4.0;

/// Who observes a run.
pub trait Observer {
    /// After every update.
    fn updated(&mut self, _record: &Record, _step: u64) {}

    /// After an evaluation; `model` writes samples, if asked.
    fn evaluated(&mut self, _evaluation: &Evaluation, _step: u64, _best: bool, _model: &Model) {}
}

/// Nobody observes.
impl Observer for () {}

/// What one update was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Record {
    /// Nats per token that counts.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens read per second by all ranks, padding included, over the last updates.
    pub tokens_per_second: f64,
    /// Tokens read so far.
    pub tokens: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All updates are done.
    Done,
    /// No better loss for as long as `patience` allows.
    EarlyStopped,
    /// Stopped from outside; it can be resumed.
    Interrupted,
}

/// A run at work.
pub struct Trainer {
    settings: RunSettings,
    folder: Folder,
    corpus: Corpus,
    learner: Learner,
    batches: Batches,
    valid: Option<Batches>,
    progress: Progress,
    /// Of rank 0.
    records: Option<Records>,
    device: Device,
    ranks: Arc<dyn Ranks>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    step: u64,
    tokens: u64,
    first_loss: Option<f64>,
    best: Option<f64>,
    /// Evaluations since the best one.
    stale: u64,
}

impl Trainer {
    /// Begins a run in a folder that has none.
    pub fn start(settings: RunSettings, corpus: Corpus, folder: Folder) -> Result<Self, Error> {
        Ok(Self::start_from(settings, corpus, folder, None)?.0)
    }

    /// [`Self::start`], with the weights of another run where their names and shapes agree.
    pub fn start_from(
        settings: RunSettings,
        corpus: Corpus,
        folder: Folder,
        base: Option<&Base>,
    ) -> Result<(Self, Option<Transfer>), Error> {
        Self::start_among(Arc::new(Alone), settings, corpus, folder, base)
    }

    /// [`Self::start_from`] as one of several ranks, of which only the first needs folder and base. All come to the same
    /// end: where one cannot go on, the others return [`Error::Rank`].
    pub fn start_among(
        ranks: Arc<dyn Ranks>,
        mut settings: RunSettings,
        corpus: Corpus,
        folder: Folder,
        base: Option<&Base>,
    ) -> Result<(Self, Option<Transfer>), Error> {
        let is_first = ranks.rank() == 0;
        let base = base.filter(|_| is_first);
        let found = Found::new(&ranks, &mut settings, &corpus, &folder, base);
        let Found { model, transfer, batches, valid, device } = ranks::agree(&*ranks, found)?;
        ranks::compare(&*ranks, corpus.fingerprint(), settings.training.precision)?;
        let records = is_first.then(|| {
            let lock = Lock::acquire(folder.path())?;
            let board = tensorboard::Writer::create(folder.path())?;
            let tokenizer = folder.save_tokenizer(corpus.tokenizer())?;
            folder.save_data(&corpus.describe())?;
            Records::new(&folder, board, tokenizer, lock)
        });
        let records = ranks::agree(&*ranks, records.transpose())?;
        let model = broadcast_model(&*ranks, model)?;
        let learner = Learner::among(ranks.clone(), model, &settings.training, settings.seed);
        let progress = Progress::default();
        let mut trainer = Self {
            settings,
            folder,
            corpus,
            learner,
            batches,
            valid,
            progress,
            records,
            device,
            ranks,
        };
        // Rank 0 alone writes, and all hear whether it could.
        let saved = trainer.save_first(base.zip(transfer.as_ref()));
        ranks::agree(&*trainer.ranks, saved)?;
        Ok((trainer, transfer))
    }

    /// The settings, resolved.
    pub fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        self.learner.model()
    }

    /// The model as it is now without its gradients, to write with.
    pub fn plain_model(&self) -> Model {
        self.model().valid()
    }

    /// Updates done.
    pub fn step(&self) -> u64 {
        self.progress.step
    }

    /// The losses recorded so far; rank 0 has them.
    pub fn past(&self) -> Result<Vec<Past>, Error> {
        match self.records {
            Some(_) => Past::read(&self.folder.metrics()),
            None => Ok(Vec::new()),
        }
    }

    /// The best validation figure so far: the loss, or what `training.best_by` asks for.
    pub fn best(&self) -> Option<f64> {
        self.progress.best
    }

    /// Trains to the end, or until any rank is asked to stop; either way everything is saved.
    pub fn run(
        &mut self,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Ending, Error> {
        let training = self.settings.training.clone();
        // Taken up again after it had stopped early, it is as far as it was to go.
        if training.patience > 0 && self.progress.stale >= training.patience {
            return Ok(Ending::EarlyStopped);
        }
        let mut speed = Speed::new();
        while self.progress.step < training.steps {
            if ranks::any(&*self.ranks, interrupt.requested())? {
                self.save()?;
                return Ok(Ending::Interrupted);
            }
            let mut record = self.update()?;
            let step = self.progress.step;
            record.tokens_per_second = speed.after(record.tokens);
            observer.updated(&record, step);
            if (step.is_multiple_of(training.log_every) || step == training.steps)
                && let Some(records) = &mut self.records
            {
                records.updated(&record, step)?;
            }
            if step.is_multiple_of(training.evaluate_every) || step == training.steps {
                self.evaluate(observer)?;
                self.save()?;
                if training.patience > 0 && self.progress.stale >= training.patience {
                    return Ok(Ending::EarlyStopped);
                }
                speed.pause(record.tokens);
            } else if training.checkpoint_every > 0
                && step.is_multiple_of(training.checkpoint_every)
            {
                self.save()?;
            }
        }
        Ok(Ending::Done)
    }

    /// One update. A loss that is not a number, or has exploded, leaves model and files as they were.
    fn update(&mut self) -> Result<Record, Error> {
        let training = &self.settings.training;
        let step = self.progress.step + 1;
        for part in self.learner.own_batches() {
            let at = (step - 1) * training.accumulate + part as u64;
            if self.learner.segments.is_some() && self.batches.begins_anew(at) {
                self.learner.segments = Some(Segments::default());
            }
            let seed = self.dropout_seed(at);
            self.learner.accumulate(&self.batches.get(at)?, seed)?;
        }
        let stats = self.learner.share_gradients()?;
        let StepStats { loss, grad_norm, tokens } = stats;
        let first = *self.progress.first_loss.get_or_insert(loss);
        if !loss.is_finite() || !grad_norm.is_finite() || loss > EXPLODED * first.max(1.0) {
            return Err(Error::Diverged {
                step,
                loss,
                grad_norm,
                folder: self.folder.path().into(),
            });
        }
        let lr = training.schedule.rate(step, training.steps, training.lr);
        self.learner.update_shard(&stats, lr, step);
        self.learner.share_weights()?;
        self.progress.step = step;
        self.progress.tokens += tokens;
        Ok(Record { loss, lr, grad_norm, tokens_per_second: 0.0, tokens: self.progress.tokens })
    }

    /// The seed of a batch's dropout: other numbers than the data's of the same seed.
    fn dropout_seed(&self, batch: u64) -> u64 {
        const DROPOUT: u64 = 0xD5;
        Random::new(&[self.settings.seed, DROPOUT]).at(batch)
    }

    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let step = self.progress.step;
        let model = self.learner.model().valid();
        let Some(valid) = &self.valid else { return self.keep(&model) };
        let limit = Some(self.settings.training.evaluate_batches).filter(|limit| *limit > 0);
        let bytes = self.corpus.bytes_per_token(Split::Valid);
        let evaluation = evaluate_among(&*self.ranks, &model, valid, limit, bytes)?;
        let by = self.settings.training.best_by;
        let figure = by.of(&evaluation);
        let best = self.progress.best.is_none_or(|best| by.is_better(figure, best));
        if best {
            self.progress.best = Some(figure);
            self.progress.stale = 0;
            self.keep(&model)?;
        } else {
            self.progress.stale += 1;
        }
        if let Some(records) = &mut self.records {
            records.evaluated(evaluation, step)?;
        }
        observer.evaluated(&evaluation, step, best, &model);
        Ok(())
    }
}

/// What a rank finds out before anything is written.
struct Found {
    model: Model,
    transfer: Option<Transfer>,
    batches: Batches,
    valid: Option<Batches>,
    device: Device,
}

impl Found {
    fn new(
        ranks: &Arc<dyn Ranks>,
        settings: &mut RunSettings,
        corpus: &Corpus,
        folder: &Folder,
        base: Option<&Base>,
    ) -> Result<Self, Error> {
        if let Some(base) = base {
            base.check_tokens(corpus)?;
        }
        settings.resolve_for(corpus)?;
        if ranks.rank() == 0 && folder.has_run() {
            return Err(Error::RunExists { folder: folder.path().into() });
        }
        ranks::check(settings, ranks.size())?;
        // Before the folder is made: what cannot be trained leaves none.
        Memory::of_rank(settings, ranks.size())?.check()?;
        let (batches, valid) = splits(settings, corpus)?;
        let device = settings.device().autodiff();
        let mut model = settings.model.build(settings.seed, &device)?;
        Trainable::check(&model.views(), &settings.training)?;
        let mut transfer = None;
        if let Some(base) = base {
            let (given, what) = base.give(model, corpus)?;
            let trainable = Trainable::new(&given.views(), &settings.training, settings.seed);
            trainable.check_drawn(&what)?;
            (model, transfer) = (given, Some(what));
        }
        Ok(Self { model, transfer, batches, valid, device })
    }
}

/// Tokens per second over the last updates.
struct Speed {
    since: Instant,
    tokens: u64,
    mean: ExponentialMean,
}

impl Speed {
    fn new() -> Self {
        Self { since: Instant::now(), tokens: 0, mean: ExponentialMean::new(0.9) }
    }

    fn after(&mut self, tokens: u64) -> f64 {
        let seconds = self.since.elapsed().as_secs_f64().max(1e-9);
        if self.tokens > 0 {
            self.mean.add((tokens - self.tokens) as f64 / seconds);
        }
        self.pause(tokens);
        self.mean.value().unwrap_or(0.0)
    }

    /// Does not count the time since the last update.
    fn pause(&mut self, tokens: u64) {
        self.since = Instant::now();
        self.tokens = tokens;
    }
}
