//! The loop: batches in, a run folder out.
//!
//! A batch is a function of seed and step, dropout too, and the file to go on from holds everything else; so a run that
//! was killed and resumed has the same bits as one that never stopped. `saving.rs` writes that file and reads it again.

pub(crate) mod saving;

use std::time::Instant;

use burn::{module::Module, tensor::Device};
use serde::Serialize;
use whatwhere_data::{BatchSettings, Batches, Corpus, Split};
use whatwhere_random::Random;
use whatwhere_transformer::{Model, Segments};

use crate::{
    Error, Evaluation, Folder, RunSettings,
    evaluate::evaluate,
    finetune::{Base, Trainable, Transfer},
    interrupt::Interrupt,
    journal::{Journal, Past},
    learner::{Learner, StepStats},
    lock::Lock,
    memory::Memory,
    statistics::ExponentialMean,
    tensorboard,
};

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
    /// Tokens read per second, padding included, over the last updates.
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
    journal: Journal,
    board: tensorboard::Writer,
    device: Device,
    /// The hash of the run's `tokenizer.json`.
    tokenizer: String,
    _lock: Lock,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    step: u64,
    tokens: u64,
    first_loss: Option<f64>,
    best: Option<f64>,
    /// Evaluations since the best.
    stale: u64,
}

impl Trainer {
    /// Begins a run in a folder that has none.
    pub fn start(settings: RunSettings, corpus: Corpus, folder: Folder) -> Result<Self, Error> {
        Ok(Self::start_from(settings, corpus, folder, None)?.0)
    }

    /// [`Self::start`], with the weights of another run where their names and shapes agree.
    pub fn start_from(
        mut settings: RunSettings,
        corpus: Corpus,
        folder: Folder,
        base: Option<&Base>,
    ) -> Result<(Self, Option<Transfer>), Error> {
        settings.resolve_for(&corpus)?;
        if folder.has_run() {
            return Err(Error::RunExists { folder: folder.path().into() });
        }
        // Before the folder is made: what cannot be trained leaves none.
        Memory::of(&settings)?.check()?;
        let (batches, valid) = splits(&settings, &corpus)?;
        let device = settings.device().autodiff();
        let mut model = settings.model.build(settings.seed, &device)?;
        Trainable::check(&model.views(), &settings.training)?;
        let mut transfer = None;
        if let Some(base) = base {
            let (given, what) = base.give(model, &corpus)?;
            let trainable = Trainable::new(&given.views(), &settings.training, settings.seed);
            trainable.check_drawn(&what)?;
            (model, transfer) = (given, Some(what));
        }
        let lock = Lock::acquire(folder.path())?;
        let board = tensorboard::Writer::create(folder.path())?;
        let tokenizer = folder.save_tokenizer(corpus.tokenizer())?;
        folder.save_data(&corpus.describe())?;
        let mut trainer = Self {
            learner: Learner::with_seed(model, &settings.training, settings.seed),
            journal: Journal::open(&folder.metrics())?,
            progress: Progress::default(),
            settings,
            folder,
            corpus,
            batches,
            valid,
            board,
            device,
            tokenizer,
            _lock: lock,
        };
        trainer.save()?;
        if let (Some(base), Some(transfer)) = (base, &transfer) {
            transfer.save(&trainer.folder)?;
            if !base.new_embeddings {
                base.hand_down_import(&trainer.folder)?;
            }
        }
        trainer.folder.save_format()?;
        // Last: a folder with settings is a run that can be resumed.
        trainer.folder.save_settings(&trainer.settings)?;
        trainer.journal.truncate_after(0)?;
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

    /// The losses recorded so far.
    pub fn past(&self) -> Result<Vec<Past>, Error> {
        Past::read(&self.folder.metrics())
    }

    /// The best validation loss so far.
    pub fn best(&self) -> Option<f64> {
        self.progress.best
    }

    /// Trains to the end, or until asked to stop; either way everything is saved.
    pub fn run(
        &mut self,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Ending, Error> {
        let training = self.settings.training.clone();
        let mut speed = Speed::new();
        while self.progress.step < training.steps {
            if interrupt.requested() {
                self.save()?;
                return Ok(Ending::Interrupted);
            }
            let mut record = self.update()?;
            let step = self.progress.step;
            record.tokens_per_second = speed.after(record.tokens);
            observer.updated(&record, step);
            if step.is_multiple_of(training.log_every) || step == training.steps {
                self.log(&record, step)?;
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
        for part in 0..training.accumulate {
            let at = (step - 1) * training.accumulate + part;
            if self.learner.segments.is_some() && self.batches.begins_anew(at) {
                self.learner.segments = Some(Segments::default());
            }
            let seed = self.dropout_seed(at);
            self.learner.accumulate(&self.batches.get(at)?, seed)?;
        }
        let stats = self.learner.finish();
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
        self.learner.update(&stats, lr, step);
        self.progress.step = step;
        self.progress.tokens += tokens;
        Ok(Record { loss, lr, grad_norm, tokens_per_second: 0.0, tokens: self.progress.tokens })
    }

    /// The seed of a batch's dropout: other numbers than the data's of the same seed.
    fn dropout_seed(&self, batch: u64) -> u64 {
        const DROPOUT: u64 = 0xD5;
        Random::new(&[self.settings.seed, DROPOUT]).at(batch)
    }

    fn log(&mut self, record: &Record, step: u64) -> Result<(), Error> {
        self.journal.append(step, record)?;
        let now = tensorboard::now();
        for (tag, value) in [
            ("train/loss", record.loss),
            ("train/lr", record.lr),
            ("train/grad_norm", record.grad_norm),
            ("train/tokens_per_second", record.tokens_per_second),
        ] {
            self.board.scalar(tag, step, value as f32, now)?;
        }
        self.board.flush()
    }

    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let step = self.progress.step;
        let model = self.learner.model().valid();
        let Some(valid) = &self.valid else { return self.keep(&model) };
        let limit = Some(self.settings.training.evaluate_batches).filter(|limit| *limit > 0);
        let bytes = self.corpus.bytes_per_token(Split::Valid);
        let evaluation = evaluate(&model, valid, limit, bytes)?;
        let best = self.progress.best.is_none_or(|best| evaluation.loss < best);
        if best {
            self.progress.best = Some(evaluation.loss);
            self.progress.stale = 0;
            self.keep(&model)?;
        } else {
            self.progress.stale += 1;
        }
        self.journal.append(step, &Valid { valid: evaluation })?;
        let now = tensorboard::now();
        self.board.scalar("valid/loss", step, evaluation.loss as f32, now)?;
        self.board.scalar("valid/accuracy", step, evaluation.accuracy as f32, now)?;
        if let Some(bits) = evaluation.bits_per_byte {
            self.board.scalar("valid/bits_per_byte", step, bits as f32, now)?;
        }
        self.board.flush()?;
        observer.evaluated(&evaluation, step, best, &model);
        Ok(())
    }
}

#[derive(Serialize)]
struct Valid {
    valid: Evaluation,
}

/// The batches of a split under a run's settings.
pub fn batches(settings: &RunSettings, corpus: &Corpus, split: Split) -> Result<Batches, Error> {
    let settings = BatchSettings {
        batch: settings.training.batch,
        length: settings.training.length,
        seed: settings.seed,
        is_continuous: settings.model.segment_memory > 0,
    };
    Ok(Batches::new(corpus, split, &settings)?)
}

/// The batches of a run, and those of its validation where there is text for it.
fn splits(settings: &RunSettings, corpus: &Corpus) -> Result<(Batches, Option<Batches>), Error> {
    let valid = corpus.has(Split::Valid).then(|| batches(settings, corpus, Split::Valid));
    Ok((batches(settings, corpus, Split::Train)?, valid.transpose()?))
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
