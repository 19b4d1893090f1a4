//! One run of a cell: trained in a run folder, measured, and its outcome kept there.

use std::{fs, io::Write, path::PathBuf};

use serde::{Deserialize, Serialize};
use whatwhere_data::{Corpus, Split};
use whatwhere_files as files;
use whatwhere_training::{
    Ending, Evaluation, Folder, Machine, Record, Run, RunSettings, Trainer,
    classification::Classification, interrupt::Interrupt,
};

use super::{
    conditions::Conditions,
    figures::{self, BleuByWords},
    pace::Pace,
};
use crate::{
    Error,
    budget::tokens_per_step,
    compare::Comparison,
    cost::{self, Flops, Load},
    extrapolate::{AtLength, Lengths},
    grid::Cell,
    measure::Measure,
};

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    /// Of weights and data order.
    pub seed: u64,
    /// Updates done.
    pub steps: u64,
    /// Tokens of a training window.
    pub length: usize,
    /// The split that the figures are of.
    pub split: String,
    /// What was held out, in words.
    #[serde(default)]
    pub held_out: Vec<String>,
    /// At the trained length.
    pub quality: Evaluation,
    /// Texts by their class and the class they were told as, where classes are told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub classification: Option<Classification>,
    /// BLEU of translations with beam 4, where asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bleu: Option<f64>,
    /// The same for each quarter of the pairs by the words of their sources, shortest first, where BLEU was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bleu_by_words: Vec<BleuByWords>,
    /// How much there was to read.
    #[serde(default)]
    pub data: String,
    /// The beginning of the held-out data as text, to look at attention.
    pub sample: String,
    /// Validation while it learned.
    pub curve: Vec<Point>,
    /// Without training, at other lengths.
    pub lengths: Vec<AtLength>,
    /// What it cost.
    pub cost: Cost,
}

/// A point of a learning curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Updates done.
    pub step: u64,
    /// Validation loss, nats per token.
    pub loss: f64,
    /// The same in bits per byte, where tokens stand for text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bits_per_byte: Option<f64>,
    /// Share of targets that are the likeliest token.
    pub accuracy: f64,
}

/// What a run cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Of training, the median over its stretches.
    pub tokens_per_second: f64,
    /// Tokens per second of each stretch of the run; none where it was too short to have any.
    #[serde(default)]
    pub stretches: Vec<f64>,
    /// What other programs did to the machine meanwhile; not known everywhere.
    #[serde(default)]
    pub load: Option<Load>,
    /// Runs that were trained at the same time, this one included.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Most memory of the process while it trained, bytes; not known of runs side by side.
    pub peak_memory: Option<u64>,
    /// Learned values.
    pub parameters: usize,
    /// Operations of a forward pass for each token.
    pub flops: Flops,
    /// What it was trained on; not known of runs of before.
    #[serde(default)]
    pub machines: Vec<Machine>,
}

fn one() -> usize {
    1
}

/// How much of the held-out data a quality is of: the same for all cells of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Amount {
    /// All there is.
    All,
    /// So many tokens.
    Tokens(usize),
    /// So many bytes of text, for cells that cut it into other tokens.
    Bytes(usize),
}

impl Amount {
    /// At least as much as a comparison asks for, and as any cell evaluates while it trains.
    pub(super) fn of(comparison: &Comparison, cells: &[Cell]) -> Self {
        let mut most = comparison.tokens;
        for settings in cells.iter().filter_map(|cell| cell.settings.as_ref().ok()) {
            let training = &settings.training;
            if training.evaluate_batches == 0 {
                return Self::All;
            }
            let each = tokens_per_step(settings) / training.accumulate;
            most = most.max(each as usize * training.evaluate_batches);
        }
        match Measure::of_cells(cells) {
            Ok(Measure::BitsPerByte) => Self::Bytes(most),
            _ => Self::Tokens(most),
        }
    }

    /// In tokens of a corpus; nothing for all.
    pub(super) fn tokens(self, corpus: &Corpus, split: Split) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Tokens(tokens) => Some(tokens),
            Self::Bytes(bytes) => {
                let each = corpus.bytes_per_token(split).unwrap_or(1.0);
                Some(((bytes as f64 / each) as usize).max(1))
            }
        }
    }
}

/// What must not change for an outcome to hold.
#[derive(Serialize, Deserialize)]
struct Kept {
    asked: Asked,
    /// Of the corpus.
    fingerprint: u64,
    trained: Trained,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Asked {
    amount: Amount,
    lengths: Option<Lengths>,
    bleu: bool,
}

fn outcome(folder: &Folder) -> PathBuf {
    folder.path().join("outcome.json")
}

/// Whether a run has an outcome, whatever was asked for.
pub(super) fn has_outcome(folder: &Folder) -> bool {
    outcome(folder).is_file()
}

/// The outcome of a run that was finished before; an error if the folder holds another run.
pub(super) fn load(
    folder: &Folder,
    settings: &RunSettings,
    corpus: &Corpus,
    comparison: &Comparison,
    amount: Amount,
) -> Result<Option<Trained>, Error> {
    if !folder.has_run() {
        return Ok(None);
    }
    if folder.load_settings()? != *settings {
        return Err(Error::Request(format!(
            "{} holds a run with other settings; choose another --out, or remove it",
            folder.path().display()
        )));
    }
    let Ok(text) = fs::read_to_string(outcome(folder)) else { return Ok(None) };
    let Ok(kept) = serde_json::from_str::<Kept>(&text) else { return Ok(None) };
    if kept.fingerprint != corpus.fingerprint() {
        let folder = folder.path().into();
        return Err(whatwhere_training::Error::DataChanged { folder }.into());
    }
    let asked = asked(comparison, amount, kept.trained.length, corpus);
    Ok((kept.asked == asked).then_some(kept.trained))
}

fn asked(comparison: &Comparison, amount: Amount, trained: usize, corpus: &Corpus) -> Asked {
    let split = figures::split(corpus);
    let is_text = corpus.tokens(split).is_some();
    let lengths = comparison.lengths.clone().unwrap_or_else(|| Lengths::multiples(trained));
    let tokens = match amount {
        Amount::Bytes(_) => Amount::Bytes(comparison.tokens).tokens(corpus, split),
        _ => None,
    };
    let tokens = tokens.unwrap_or(comparison.tokens);
    let lengths = Lengths { lengths, tokens, scalings: true };
    Asked {
        amount,
        lengths: Some(lengths).filter(|lengths| is_text && !lengths.lengths.is_empty()),
        bleu: comparison.bleu,
    }
}

/// Trains, or goes on.
pub(super) fn train(
    folder: &Folder,
    settings: RunSettings,
    corpus: &Corpus,
    jobs: usize,
    interrupt: &Interrupt,
    updated: &mut dyn FnMut(&Record, u64),
) -> Result<Ending, Error> {
    cost::reset_peak();
    let mut trainer = match folder.has_run() {
        true => Trainer::resume(settings, corpus.clone(), folder.clone())?,
        false => Trainer::start(settings, corpus.clone(), folder.clone())?,
    };
    let steps = trainer.settings().training.steps;
    if trainer.step() >= steps {
        return Ok(Ending::Done); // another process trained it, and could not measure it any more
    }
    // Written before the first update as well: whoever goes on after a kill has to know where the run began.
    let begun = match Conditions::load(folder).filter(|_| trainer.step() > 0) {
        Some(before) => before.then(Conditions::begun(jobs)),
        None => Conditions::begun(jobs),
    };
    begun.save(folder)?;
    let (mut pace, clock) = (Pace::new(steps, updated), cost::Clock::start());
    let ending = trainer.run(interrupt, &mut pace)?;
    let stretches = std::mem::take(&mut pace.stretches);
    let load = clock.and_then(|clock| clock.load());
    let peak_memory = cost::peak_memory().filter(|_| jobs == 1);
    let now = Conditions { stretches, load, peak_memory, ..Conditions::begun(jobs) };
    begun.then(now).save(folder)?;
    Ok(ending)
}

/// Measures a trained run and keeps the outcome.
pub(super) fn measure(
    folder: &Folder,
    corpus: &Corpus,
    comparison: &Comparison,
    amount: Amount,
) -> Result<Trained, Error> {
    let run = Run::open(folder.path())?;
    let split = figures::split(corpus);
    if !corpus.has(split) {
        let reason = "nothing is held out; set data.valid_share above 0, or name a file for it";
        return Err(Error::Request(reason.into()));
    }
    let asked = asked(comparison, amount, run.settings.training.length, corpus);
    let lengths = match &asked.lengths {
        Some(lengths) => lengths.measure(&run, corpus, split, |_| {})?,
        None => Vec::new(),
    };
    let records = records(folder);
    let conditions = Conditions::load(folder);
    let stretches = conditions.as_ref().map_or(Vec::new(), |found| found.stretches.clone());
    let speeds = match stretches.is_empty() {
        true => records.iter().filter_map(speed).collect(),
        false => stretches.clone(),
    };
    let (quality, classification) = figures::of(&run, corpus, split, amount)?;
    let translated = if asked.bleu { figures::bleu(&run, corpus, split)? } else { None };
    let (bleu, bleu_by_words) =
        translated.map_or((None, Vec::new()), |(all, each)| (Some(all), each));
    let trained = Trained {
        seed: run.settings.seed,
        steps: run.settings.training.steps,
        length: run.settings.training.length,
        split: split.name().into(),
        held_out: corpus.describe().held_out(),
        quality,
        classification,
        bleu,
        bleu_by_words,
        data: corpus.describe().to_string(),
        sample: figures::sample(&run, corpus, split)?,
        curve: records.iter().filter_map(point).collect(),
        lengths,
        cost: Cost {
            tokens_per_second: median(speeds),
            stretches,
            load: conditions.as_ref().and_then(|found| found.load),
            jobs: conditions.as_ref().map_or(1, |found| found.jobs),
            peak_memory: conditions.as_ref().and_then(|found| found.peak_memory),
            machines: conditions.map_or(Vec::new(), |found| found.machines),
            parameters: run.model().size(),
            flops: Flops::of(&run.settings, corpus.vocabulary())?,
        },
    };
    let kept = Kept { asked, fingerprint: corpus.fingerprint(), trained };
    let text = serde_json::to_string(&kept).map_err(|e| Error::Request(e.to_string()))?;
    files::replace(&outcome(folder), |writer| writer.write_all(text.as_bytes()))?;
    Ok(kept.trained)
}

fn records(folder: &Folder) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.metrics()).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn point(record: &serde_json::Value) -> Option<Point> {
    let valid = record.get("valid")?;
    Some(Point {
        step: record.get("step")?.as_u64()?,
        loss: valid.get("loss")?.as_f64()?,
        bits_per_byte: valid.get("bits_per_byte").and_then(serde_json::Value::as_f64),
        accuracy: valid.get("accuracy")?.as_f64()?,
    })
}

fn speed(record: &serde_json::Value) -> Option<f64> {
    record.get("tokens_per_second")?.as_f64().filter(|speed| *speed > 0.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
