//! One update: batches in, better weights out. Neither files nor records; the trainer has those.

use burn::tensor::Device;
use whatwhere_data::Batch;
use whatwhere_kernels::with_busy_pool;
use whatwhere_transformer::{Mode, Model, Parameter, Segments};

use crate::{
    Error, TrainingSettings,
    finetune::Trainable,
    loss::Loaded,
    optimizer::{GradientBuffers, OptimizerState},
};

/// A model that learns, and what is remembered for it between updates.
pub struct Learner {
    /// Absent only while it is updated: a second owner of its weights would make the update a copy.
    model: Option<Model>,
    pub(crate) optimizer: OptimizerState,
    /// The segments before, where the model remembers them.
    pub(crate) segments: Option<Segments>,
    smoothing: f64,
    clip: f64,
    device: Device,
    pub(crate) trainable: Trainable,
    accumulated: Accumulated,
}

/// What has been read since the last update.
#[derive(Default)]
struct Accumulated {
    gradients: GradientBuffers,
    nats: f64,
    weight: f64,
    tokens: u64,
}

/// What an update is going to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepStats {
    /// Nats per token that counts.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens read, padding included.
    pub tokens: u64,
}

impl Learner {
    /// A learner on the model's device, which must be one with autodiff.
    pub fn new(model: Model, training: &TrainingSettings) -> Self {
        Self::with_seed(model, training, 0)
    }

    /// [`Self::new`] with the seed of its adapters' first values.
    pub fn with_seed(model: Model, training: &TrainingSettings, seed: u64) -> Self {
        let remembers = model.settings().segment_memory > 0;
        Self {
            optimizer: OptimizerState::new(training.optimizer.clone()),
            segments: remembers.then(Segments::default),
            smoothing: training.label_smoothing,
            clip: training.clip,
            device: model.device(),
            accumulated: Accumulated::default(),
            trainable: Trainable::new(&model.views(), training, seed),
            model: Some(model),
        }
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        self.model.as_ref().expect("there between updates")
    }

    /// Computes with adapters whose values were replaced.
    pub(crate) fn merge_adapters(&mut self) {
        let (Some(model), Some(adapters)) = (self.model.take(), &self.trainable.adapters) else {
            return;
        };
        let parameters = model.parameters().into_iter().map(|parameter| Parameter {
            values: adapters.merged(&parameter.name).unwrap_or(parameter.values),
            ..parameter
        });
        let parameters = parameters.collect();
        self.model = Some(model.with_parameters(parameters).expect("the model's own parameters"));
    }

    /// Reads one batch; its gradients are added to those since the last update. The seed is that of dropout.
    pub fn accumulate(&mut self, batch: &Batch, seed: u64) -> Result<(), Error> {
        with_busy_pool(|| self.accumulate_batch(batch, seed))
    }

    fn accumulate_batch(&mut self, batch: &Batch, seed: u64) -> Result<(), Error> {
        let model = self.model.as_ref().expect("there between updates");
        let loaded = Loaded::new(batch, model, &self.device)?;
        let mode = Mode { seed: Some(seed), ..Mode::default() };
        let segments = self.segments.as_mut();
        let batch_loss = loaded.batch_loss(model, segments, mode, self.smoothing)?;
        self.accumulated.nats += batch_loss.nats;
        self.accumulated.weight += loaded.weight;
        self.accumulated.tokens += loaded.read;
        self.accumulated.gradients.add(model, batch_loss.loss.backward(), &self.trainable);
        Ok(())
    }

    /// Figures of what was read, not numbers if there was nothing; [`Self::update`] follows or the next reading starts anew.
    pub fn finish(&mut self) -> StepStats {
        let Accumulated { gradients, nats, weight, tokens } = &mut self.accumulated;
        if let Some(adapters) = &self.trainable.adapters {
            gradients.adapt(adapters);
        }
        gradients.scale(1.0 / *weight);
        let grad_norm = with_busy_pool(|| gradients.norm());
        StepStats { loss: *nats / *weight, grad_norm, tokens: *tokens }
    }

    /// Updates the weights by what was accumulated. `step` counts from 1.
    pub fn update(&mut self, stats: &StepStats, lr: f64, step: u64) {
        let mut accumulated = std::mem::take(&mut self.accumulated);
        if self.clip > 0.0 && stats.grad_norm > self.clip {
            accumulated.gradients.scale(self.clip / stats.grad_norm);
        }
        let model = self.model.take().expect("there between updates");
        let (optimizer, trainable) = (&mut self.optimizer, &mut self.trainable);
        let gradients = &accumulated.gradients;
        self.model =
            Some(with_busy_pool(|| optimizer.update(model, gradients, trainable, lr, step)));
    }
}
