//! How good a model is on data it has not learned from.

use serde::{Deserialize, Serialize};
use whatwhere_data::{Batch, Batches};
use whatwhere_kernels::with_busy_pool;
use whatwhere_transformer::{Model, Segments};

use crate::{
    Error,
    classification::{Classification, Tally},
    loss::{Loaded, Part},
    ranks::{
        self, Alone, Ranks,
        exchange::{self, To},
    },
    statistics,
};

/// Figures of one evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Nats per token that counts.
    pub loss: f64,
    /// e to the loss.
    pub perplexity: f64,
    /// Bits per byte of text, where tokens stand for text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bits_per_byte: Option<f64>,
    /// Share of tokens that count whose target is the likeliest.
    pub accuracy: f64,
    /// Tokens that count, or texts that are told as classes.
    pub tokens: u64,
    /// Mean of the classes' F1, where classes are told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub macro_f1: Option<f64>,
    /// Expected calibration error, where classes are told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration_error: Option<f64>,
}

/// Evaluates on at most `limit` batches, all if absent. `bytes_per_token` makes bits per byte of the loss.
pub fn evaluate(
    model: &Model,
    batches: &Batches,
    limit: Option<usize>,
    bytes_per_token: Option<f64>,
) -> Result<Evaluation, Error> {
    evaluate_among(&Alone, model, batches, limit, bytes_per_token)
}

/// [`evaluate`] by all ranks together, which take turns and add what all have found in the batches' order.
pub(crate) fn evaluate_among(
    ranks: &dyn Ranks,
    model: &Model,
    batches: &Batches,
    limit: Option<usize>,
    bytes_per_token: Option<f64>,
) -> Result<Evaluation, Error> {
    if model.classifier.is_some() {
        return Ok(tally(ranks, model, batches.evaluation(limit))?.evaluation());
    }
    let parts = by_position(ranks, model, batches.evaluation(limit), &[usize::MAX])?;
    Ok(parts[0].evaluation(bytes_per_token))
}

/// [`evaluate`] on batches at hand.
pub fn evaluate_batches(model: &Model, batches: &[Batch]) -> Result<Evaluation, Error> {
    let batches = batches.iter().cloned().map(Ok);
    if model.classifier.is_some() {
        return Ok(tally(&Alone, model, batches)?.evaluation());
    }
    let parts = by_position(&Alone, model, batches, &[usize::MAX])?;
    Ok(parts[0].evaluation(None))
}

/// How well a model tells the classes of these names; refuses one that knows none.
pub fn classification_of(
    model: &Model,
    batches: &Batches,
    limit: Option<usize>,
    names: &[String],
) -> Result<Classification, Error> {
    Ok(tally(&Alone, model, batches.evaluation(limit))?.figures(names))
}

fn tally(
    ranks: &dyn Ranks,
    model: &Model,
    batches: impl Iterator<Item = whatwhere_data::Result<Batch>>,
) -> Result<Tally, Error> {
    let device = model.device();
    let (rank, size, classes) = (ranks.rank(), ranks.size(), model.settings().classes);
    let each = classes + 1; // of a text: its logits, and its class
    let (mut rows, mut own) = (Vec::new(), Vec::new());
    for (at, batch) in batches.enumerate() {
        let batch = batch?;
        rows.push(batch.rows);
        if at % size == rank {
            let loaded = Loaded::new(&batch, model, &device)?;
            own.extend(with_busy_pool(|| loaded.class_logits(model))?);
        }
    }
    let texts = |rank: usize| rows.iter().skip(rank).step_by(size).sum::<usize>();
    let counts: Vec<usize> = (0..size).map(|rank| texts(rank) * each).collect();
    let all = exchange::collect(ranks, &own, &counts, To::All)?;
    // Figures are sums in the batches' order, whoever read them.
    let mut starts: Vec<usize> = (0..size).map(|rank| counts[..rank].iter().sum()).collect();
    let mut tally = Tally::new(classes);
    for (at, rows) in rows.iter().enumerate() {
        let start = &mut starts[at % size];
        for text in all[*start..*start + rows * each].chunks_exact(each) {
            tally.add(&text[..classes], text[classes] as usize);
        }
        *start += rows * each;
    }
    match tally.texts() {
        0 => Err(nothing()),
        _ => Ok(tally),
    }
}

fn nothing() -> Error {
    Error::Settings("nothing to evaluate: the split holds no batch".into())
}

/// What a model makes of some positions of every row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Positions {
    sum: Part,
}

impl Positions {
    /// Tokens that count.
    pub fn tokens(&self) -> u64 {
        self.sum.positions
    }

    /// All of them together.
    pub fn total(parts: &[Self]) -> Self {
        let mut sum = Part::default();
        parts.iter().for_each(|part| sum += part.sum);
        Self { sum }
    }

    /// The figures; not numbers if nothing counts.
    pub fn evaluation(&self, bytes_per_token: Option<f64>) -> Evaluation {
        let Part { nats, weight, right, positions } = self.sum;
        let loss = nats / weight;
        Evaluation {
            loss,
            perplexity: statistics::perplexity(nats, weight as u64),
            bits_per_byte: bytes_per_token.map(|bytes| statistics::bits_per_byte(loss, 1) / bytes),
            accuracy: right as f64 / positions as f64,
            tokens: positions,
            macro_f1: None,
            calibration_error: None,
        }
    }
}

/// [`evaluate`], apart for positions of a row below each of `ends` and not below the one before; the last takes the rest.
///
/// # Panics
/// If `ends` is empty.
pub fn loss_by_position(
    model: &Model,
    batches: &Batches,
    limit: Option<usize>,
    ends: &[usize],
) -> Result<Vec<Positions>, Error> {
    assert!(!ends.is_empty(), "positions end somewhere");
    by_position(&Alone, model, batches.evaluation(limit), ends)
}

fn by_position(
    ranks: &dyn Ranks,
    model: &Model,
    batches: impl Iterator<Item = whatwhere_data::Result<Batch>>,
    ends: &[usize],
) -> Result<Vec<Positions>, Error> {
    let device = model.device();
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut segments = (model.settings().segment_memory > 0).then(Segments::default);
    let (mut rows, mut count, mut own) = (0, 0, Vec::new());
    for batch in batches {
        let batch = batch?;
        count += 1;
        if (count - 1) % size != rank {
            continue;
        }
        // A last batch with fewer rows has no memory of its own to go on from.
        if batch.rows != std::mem::replace(&mut rows, batch.rows) && segments.is_some() {
            segments = Some(Segments::default());
        }
        let loaded = Loaded::new(&batch, model, &device)?;
        let found = with_busy_pool(|| loaded.loss_by_position(model, segments.as_mut(), ends))?;
        own.extend(found.iter().flat_map(Part::figures));
    }
    // Of each rank the batches that were its turn, each with its parts.
    let each = 4 * ends.len();
    let turns = |rank: usize| (count + size - 1 - rank) / size;
    let counts: Vec<usize> = (0..size).map(|rank| turns(rank) * each).collect();
    let all = ranks::gather(ranks, &own, &counts)?;
    let starts: Vec<usize> = (0..size).map(|rank| counts[..rank].iter().sum()).collect();
    let mut parts = vec![Positions::default(); ends.len()];
    for batch in 0..count {
        let start = starts[batch % size] + batch / size * each;
        let found = all[start..start + each].as_chunks::<4>().0;
        for (part, found) in parts.iter_mut().zip(found) {
            part.sum += Part::of(*found);
        }
    }
    if parts.iter().all(|part| part.tokens() == 0) {
        return Err(nothing());
    }
    Ok(parts)
}
