//! The loss: how surprised a model is by the tokens that count.

use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use whatwhere_data::Batch;
use whatwhere_transformer::{Mode, Model, Segments, Sequences};

use crate::Error;

/// A batch on a device.
pub(crate) struct Loaded {
    tokens: Sequences,
    source: Option<Sequences>,
    /// Places that count, as indices into `rows · length`; nothing if all do.
    counted: Option<Tensor<1, Int>>,
    /// Targets of those places.
    targets: Tensor<1, Int>,
    /// Their weights; nothing if all are 1.
    weights: Option<Tensor<1>>,
    /// The sum of the weights.
    pub(crate) weight: f64,
    /// Tokens read, padding included.
    pub(crate) read: u64,
}

/// What a pass over a batch gives.
pub(crate) struct Surprise {
    /// The sum of the weighed losses, in nats, with label smoothing, `[1]`.
    pub(crate) loss: Tensor<1>,
    /// Log-probabilities of all tokens at the places that count, `[places, vocabulary]`.
    pub(crate) log_probabilities: Tensor<2>,
}

impl Loaded {
    pub(crate) fn new(batch: &Batch, model: &Model, device: &Device) -> Result<Self, Error> {
        let vocabulary = model.settings().vocabulary;
        let ids = |tokens: &[u32], rows: usize, length: usize| {
            let ids: Vec<i32> = tokens.iter().map(|id| *id as i32).collect();
            Tensor::<2, Int>::from_data(TensorData::new(ids, [rows, length]), device)
        };
        if let Some(token) = batch.tokens.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::Settings(format!(
                "token {token} is unknown to the model, whose vocabulary has {vocabulary}"
            )));
        }
        let all = batch.weights.iter().all(|weight| *weight == 1.0);
        let places: Vec<usize> =
            (0..batch.targets.len()).filter(|place| batch.weights[*place] != 0.0).collect();
        if places.is_empty() {
            return Err(Error::Settings("a batch without a target that counts".into()));
        }
        let ints = |values: Vec<i32>| Tensor::<1, Int>::from_data(values.as_slice(), device);
        let even = places.iter().all(|place| batch.weights[*place] == 1.0);
        let weights: Vec<f32> = places.iter().map(|place| batch.weights[*place]).collect();
        let mut tokens = Sequences::new(ids(&batch.tokens, batch.rows, batch.length));
        tokens.lengths = Some(batch.lengths.clone());
        Ok(Self {
            tokens,
            source: batch.source.as_ref().map(|source| {
                let mut sequences = Sequences::new(ids(&source.tokens, batch.rows, source.length));
                sequences.lengths = Some(source.lengths.clone());
                sequences
            }),
            counted: (!all).then(|| ints(places.iter().map(|place| *place as i32).collect())),
            targets: ints(places.iter().map(|place| batch.targets[*place] as i32).collect()),
            weight: weights.iter().map(|weight| f64::from(*weight)).sum(),
            weights: (!even).then(|| Tensor::from_data(weights.as_slice(), device)),
            read: (batch.tokens.len() + batch.source.as_ref().map_or(0, |s| s.tokens.len())) as u64,
        })
    }

    /// The loss of the batch, with the segments before it where a model remembers them.
    pub(crate) fn surprise(
        &self,
        model: &Model,
        segments: Option<&mut Segments>,
        mode: Mode,
        smoothing: f64,
    ) -> Result<Surprise, Error> {
        let hidden = match segments {
            Some(segments) => model.segment(&self.tokens, segments, mode)?,
            None => model.hidden(self.source.as_ref(), &self.tokens, mode)?,
        };
        let [rows, length, width] = hidden.dims();
        let hidden = hidden.reshape([rows * length, width]);
        let hidden = match &self.counted {
            None => hidden,
            Some(places) => hidden.select(0, places.clone()),
        };
        let logits = model.logits(hidden.unsqueeze_dim(0)).squeeze_dim::<2>(0); // [places, vocabulary]
        let log_probabilities = activation::log_softmax(logits, 1);
        let targets = self.targets.clone().unsqueeze_dim(1);
        let right = log_probabilities.clone().gather(1, targets).squeeze_dim::<1>(1);
        let mut each = right.neg();
        if smoothing > 0.0 {
            let even = log_probabilities.clone().mean_dim(1).squeeze_dim::<1>(1).neg();
            each = each * (1.0 - smoothing) + even * smoothing;
        }
        if let Some(weights) = &self.weights {
            each = each * weights.clone();
        }
        Ok(Surprise { loss: each.sum(), log_probabilities })
    }

    /// How many of the places that count have their target as the likeliest token.
    pub(crate) fn right(&self, surprise: &Surprise) -> u64 {
        let best = surprise.log_probabilities.clone().argmax(1).squeeze_dim::<1>(1);
        let right = best.equal(self.targets.clone()).int().sum();
        right.into_scalar::<i64>() as u64
    }

    /// Places that count.
    pub(crate) fn places(&self) -> u64 {
        self.targets.dims()[0] as u64
    }
}
