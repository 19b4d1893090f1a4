//! One update: batches in, better weights out. Neither files nor records; the trainer has those.

use std::sync::Arc;

use burn::tensor::Device;
use whatwhere_data::Batch;
use whatwhere_kernels::with_busy_pool;
use whatwhere_transformer::{Mode, Model, Parameter, Segments};

use crate::{
    Error, TrainingSettings,
    finetune::Trainable,
    loss::Loaded,
    optimizer::{GradientBuffers, OptimizerState},
    ranks::{
        self, Alone, Ranks, exchange,
        layout::{Layout, Learning},
        tree::{self, Sums},
    },
};

/// A model that learns, and what is remembered for it between updates.
pub struct Learner {
    /// Absent only while it is updated: a second owner of its weights would make the update a copy.
    pub(crate) model: Option<Model>,
    pub(crate) optimizer: OptimizerState,
    /// The segments before, where the model remembers them.
    pub(crate) segments: Option<Segments>,
    smoothing: f64,
    clip: f64,
    device: Device,
    pub(crate) trainable: Trainable,
    accumulated: Accumulated,
    /// All gradients since the last update, after [`Self::finish`].
    summed: GradientBuffers,
    pub(crate) ranks: Arc<dyn Ranks>,
    pub(crate) layout: Layout,
    /// Batches of an update, where ranks share them.
    batches: usize,
}

/// What this rank has read since the last update.
struct Accumulated {
    gradients: Sums<GradientBuffers>,
    /// Nats, weight and tokens of each batch.
    figures: Vec<[f64; 3]>,
}

impl Accumulated {
    fn from_batch(first: usize) -> Self {
        Self { gradients: Sums::from_leaf(first), figures: Vec::new() }
    }
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
        Self::among(Arc::new(Alone), model, training, 0)
    }

    /// [`Self::new`] as one of several ranks, with the seed of its adapters' first values.
    pub(crate) fn among(
        ranks: Arc<dyn Ranks>,
        model: Model,
        training: &TrainingSettings,
        seed: u64,
    ) -> Self {
        let remembers = model.settings().segment_memory > 0;
        let trainable = Trainable::new(&model.views(), training, seed);
        let mut learner = Self {
            optimizer: OptimizerState::new(training.optimizer.clone()),
            segments: remembers.then(Segments::default),
            smoothing: training.label_smoothing,
            clip: training.clip,
            device: model.device(),
            accumulated: Accumulated::from_batch(0),
            summed: GradientBuffers::default(),
            layout: Layout::new(&model, &trainable, &training.optimizer, ranks.size()),
            trainable,
            ranks,
            batches: training.accumulate as usize,
            model: Some(model.with_precision(training.precision)),
        };
        learner.accumulated = learner.nothing();
        learner
    }

    /// Before the first batch of an update.
    fn nothing(&self) -> Accumulated {
        Accumulated::from_batch(self.own_batches().start)
    }

    /// Which batches of an update this rank reads.
    pub(crate) fn own_batches(&self) -> tree::Node {
        tree::held(self.batches, self.ranks.rank(), self.ranks.size())
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

    /// Reads one batch; its gradients are added to those since the last update, as the next leaf of the update's tree.
    /// The seed is that of dropout.
    pub fn accumulate(&mut self, batch: &Batch, seed: u64) -> Result<(), Error> {
        with_busy_pool(|| self.accumulate_batch(batch, seed))
    }

    fn accumulate_batch(&mut self, batch: &Batch, seed: u64) -> Result<(), Error> {
        let model = self.model.as_ref().expect("there between updates");
        let loaded = Loaded::new(batch, model, &self.device)?;
        let mode = Mode { seed: Some(seed), ..Mode::default() };
        let segments = self.segments.as_mut();
        let batch_loss = loaded.batch_loss(model, segments, mode, self.smoothing)?;
        let Accumulated { gradients, figures } = &mut self.accumulated;
        figures.push([batch_loss.nats, loaded.weight, loaded.read as f64]);
        gradients.leaf().add(model, batch_loss.loss.backward(), &self.trainable);
        gradients.settle(GradientBuffers::merge);
        Ok(())
    }

    /// Figures of what was read, not numbers if there was nothing; [`Self::update`] follows or the next reading starts anew.
    pub fn finish(&mut self) -> StepStats {
        self.share_gradients().expect("a learner by itself exchanges nothing")
    }

    /// Figures of what all ranks have read, and the gradients of what this one owns.
    pub(crate) fn share_gradients(&mut self) -> Result<StepStats, Error> {
        let nothing = self.nothing();
        let Accumulated { gradients, figures } = std::mem::replace(&mut self.accumulated, nothing);
        let (ranks, size) = (&*self.ranks, self.ranks.size());
        let batches = if size == 1 { gradients.next() } else { self.batches };
        let own = with_busy_pool(|| gradients.close(batches, GradientBuffers::merge));
        let mut gradients = exchange::reduce(ranks, &self.layout, batches, own)?;
        let counts: Vec<usize> = (0..size).map(|rank| figures_of(batches, rank, size)).collect();
        let figures = ranks::gather(ranks, figures.as_flattened(), &counts)?;
        let (mut nats, mut weight, mut tokens) = (0.0, 0.0, 0);
        for of_batch in figures.as_chunks::<3>().0 {
            nats += of_batch[0];
            weight += of_batch[1];
            tokens += of_batch[2] as u64;
        }
        if let Some(adapters) = &self.trainable.adapters {
            gradients.adapt(adapters);
        }
        gradients.scale(1.0 / weight);
        let grad_norm = self.norm(&gradients)?;
        self.summed = gradients;
        Ok(StepStats { loss: nats / weight, grad_norm, tokens })
    }

    /// The length of all ranks' gradients together: squares of each chunk, summed by parameter, then over parameters.
    fn norm(&self, gradients: &GradientBuffers) -> Result<f64, Error> {
        let (ranks, layout) = (&*self.ranks, &self.layout);
        let parameters = 0..layout.len();
        let count = |rank: usize| parameters.clone().map(|at| layout.chunks(rank, at)).sum();
        let counts: Vec<usize> = (0..ranks.size()).map(count).collect();
        let own = with_busy_pool(|| gradients.squares());
        let squares = ranks::gather(ranks, &own, &counts)?;
        let mut rest = squares.as_slice();
        let of_parameter = |at: usize| {
            let chunks = (0..ranks.size()).map(|rank| layout.chunks(rank, at)).sum();
            let (own, after) = rest.split_at(chunks);
            rest = after;
            own.iter().sum::<f64>()
        };
        let sum = parameters.clone().map(of_parameter).sum::<f64>();
        Ok((sum + self.adapted_squares(gradients)?).sqrt() * gradients.factor)
    }

    /// The same of adapters, in the order of their names.
    fn adapted_squares(&self, gradients: &GradientBuffers) -> Result<f64, Error> {
        let (ranks, layout) = (&*self.ranks, &self.layout);
        let is_adapted = |at: &usize| matches!(layout.learning(*at), Learning::Adapted(_));
        let adapted: Vec<usize> = (0..layout.len()).filter(is_adapted).collect();
        if adapted.is_empty() {
            return Ok(0.0);
        }
        let owned = |rank| adapted.iter().filter(|at| !layout.part(rank, **at).is_empty()).count();
        let counts: Vec<usize> = (0..ranks.size()).map(|rank| 2 * owned(rank)).collect();
        let squares = ranks::gather(ranks, &gradients.adapted_squares(), &counts)?;
        let names = adapted.iter().map(|at| layout.name(*at));
        let mut named: Vec<_> = names.zip(squares.as_chunks::<2>().0).collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        Ok(named.into_iter().flat_map(|(_, squares)| squares).sum())
    }

    /// Updates the weights by what was accumulated. `step` counts from 1.
    pub fn update(&mut self, stats: &StepStats, lr: f64, step: u64) {
        self.update_shard(stats, lr, step);
    }

    /// Updates the weights of this rank's shard; those of others are as they were.
    pub(crate) fn update_shard(&mut self, stats: &StepStats, lr: f64, step: u64) {
        let mut gradients = std::mem::take(&mut self.summed);
        if self.clip > 0.0 && stats.grad_norm > self.clip {
            gradients.scale(self.clip / stats.grad_norm);
        }
        let model = self.model.take().expect("there between updates");
        let (optimizer, trainable) = (&mut self.optimizer, &mut self.trainable);
        self.model =
            Some(with_busy_pool(|| optimizer.update(model, &gradients, trainable, lr, step)));
    }
}

/// Figures of the batches that a rank reads.
fn figures_of(batches: usize, rank: usize, ranks: usize) -> usize {
    3 * tree::held(batches, rank, ranks).len()
}
