//! How good a model is on data it has not learned from.

use burn::tensor::Device;
use serde::Serialize;
use whatwhere_data::Batches;
use whatwhere_transformer::{Mode, Model, Segments};

use crate::{Error, loss::Loaded, statistics};

/// Figures of one evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Nats per token that counts.
    pub loss: f64,
    /// e to the loss.
    pub perplexity: f64,
    /// Bits per byte of text, where tokens stand for text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_byte: Option<f64>,
    /// Share of tokens that count whose target is the likeliest.
    pub accuracy: f64,
    /// Tokens that count.
    pub tokens: u64,
}

/// Evaluates on at most `limit` batches, all if absent. `bytes_per_token` makes bits per byte of the loss.
pub fn evaluate(
    model: &Model,
    batches: &Batches,
    limit: Option<usize>,
    bytes_per_token: Option<f64>,
) -> Result<Evaluation, Error> {
    let device = Device::flex();
    let (mut nats, mut weight, mut right, mut places) = (0.0, 0.0, 0, 0);
    let mut segments = (model.settings().memory > 0).then(Segments::default);
    let mut rows = 0;
    for batch in batches.evaluation(limit) {
        let batch = batch?;
        // A last batch with fewer rows has no memory of its own to go on from.
        if batch.rows != std::mem::replace(&mut rows, batch.rows) && segments.is_some() {
            segments = Some(Segments::default());
        }
        let loaded = Loaded::new(&batch, model, &device)?;
        let surprise = loaded.surprise(model, segments.as_mut(), Mode::default(), 0.0)?;
        nats += surprise.nats;
        right += surprise.right;
        weight += loaded.weight;
        places += loaded.places();
    }
    if places == 0 {
        return Err(Error::Settings("nothing to evaluate: the split holds no batch".into()));
    }
    let loss = nats / weight;
    Ok(Evaluation {
        loss,
        perplexity: statistics::perplexity(nats, weight as u64),
        bits_per_byte: bytes_per_token.map(|bytes| statistics::bits_per_byte(loss, 1) / bytes),
        accuracy: right as f64 / places as f64,
        tokens: places,
    })
}
