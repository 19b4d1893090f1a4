//! One update: batches in, better weights out. Neither files nor records; the trainer has those.

use burn::tensor::Device;
use whatwhere_data::Batch;
use whatwhere_transformer::{Mode, Model, Segments, with_busy_pool};

use crate::{
    Error, TrainingSettings,
    loss::Loaded,
    optimiser::{Collected, Working},
};

/// A model that learns, and what is remembered for it between updates.
pub struct Learner {
    /// Absent only while it is updated: a second owner of its weights would make the update a copy.
    model: Option<Model>,
    pub(crate) working: Working,
    /// The segments before, where the model remembers them.
    pub(crate) segments: Option<Segments>,
    smoothing: f64,
    clip: f64,
    device: Device,
    read: Read,
}

/// What has been read since the last update.
#[derive(Default)]
struct Read {
    gradients: Collected,
    nats: f64,
    weight: f64,
    tokens: u64,
}

/// What an update is going to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson {
    /// Nats per token that counts.
    pub loss: f64,
    /// Length of the gradient before it is clipped.
    pub gradient: f64,
    /// Tokens read, padding included.
    pub tokens: u64,
}

impl Learner {
    /// A learner on the model's device, which must be one with autodiff.
    pub fn new(model: Model, training: &TrainingSettings) -> Self {
        let remembers = model.settings().memory > 0;
        Self {
            working: Working::new(training.optimiser.clone()),
            segments: remembers.then(Segments::default),
            smoothing: training.label_smoothing,
            clip: training.clip,
            device: model.embedding.weight.val().device(),
            read: Read::default(),
            model: Some(model),
        }
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        self.model.as_ref().expect("there between updates")
    }

    /// Reads one batch; its gradients join those since the last update. The seed is that of dropout.
    pub fn read(&mut self, batch: &Batch, seed: u64) -> Result<(), Error> {
        with_busy_pool(|| self.read_batch(batch, seed))
    }

    fn read_batch(&mut self, batch: &Batch, seed: u64) -> Result<(), Error> {
        let model = self.model.as_ref().expect("there between updates");
        let loaded = Loaded::new(batch, model, &self.device)?;
        let mode = Mode { seed: Some(seed), ..Mode::default() };
        let segments = self.segments.as_mut();
        let surprise = loaded.surprise(model, segments, mode, self.smoothing)?;
        self.read.nats += surprise.nats;
        self.read.weight += loaded.weight;
        self.read.tokens += loaded.read;
        self.read.gradients.add(model, surprise.loss.backward());
        Ok(())
    }

    /// What was read, or nothing if there was nothing; [`Self::update`] follows or the next reading starts anew.
    pub fn lesson(&mut self) -> Lesson {
        let Read { gradients, nats, weight, tokens } = &mut self.read;
        gradients.scale(1.0 / *weight);
        let gradient = with_busy_pool(|| gradients.norm());
        Lesson { loss: *nats / *weight, gradient, tokens: *tokens }
    }

    /// Updates the weights by a lesson. `step` counts from 1.
    pub fn update(&mut self, lesson: &Lesson, lr: f64, step: u64) {
        let mut read = std::mem::take(&mut self.read);
        if self.clip > 0.0 && lesson.gradient > self.clip {
            read.gradients.scale(self.clip / lesson.gradient);
        }
        let model = self.model.take().expect("there between updates");
        let working = &mut self.working;
        self.model = Some(with_busy_pool(|| working.update(model, &read.gradients, lr, step)));
    }
}
