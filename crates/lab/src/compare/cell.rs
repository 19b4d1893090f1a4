//! One run of a cell: trained in a run folder, measured, and its outcome kept there.

use std::{fs, io::Write, path::PathBuf};

use serde::{Deserialize, Serialize};
use whatwhere_data::{Corpus, Split};
use whatwhere_training::{
    Ending, Evaluation, Folder, Record, Run, RunSettings, Trainer, Translation, Watcher, bleu,
    evaluate, files, interrupt::Interrupt, trainer,
};

use crate::{
    Error,
    budget::tokens_per_step,
    compare::Comparison,
    cost::{self, Flops},
    extrapolate::{AtLength, Lengths},
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
    /// At the trained length.
    pub quality: Evaluation,
    /// BLEU of translations with beam 4, where asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bleu: Option<f64>,
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
    /// Validation loss.
    pub loss: f64,
    /// Share of targets that are the likeliest token.
    pub accuracy: f64,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Of training, the median over its records.
    pub tokens_per_second: f64,
    /// Most memory of the process while it trained, bytes.
    pub peak_memory: Option<u64>,
    /// Learned values.
    pub parameters: usize,
    /// Operations of a forward pass for each token.
    pub flops: Flops,
}

/// Tokens of a sample.
const SAMPLE: usize = 64;

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
    lengths: Option<Lengths>,
    bleu: bool,
}

fn outcome(folder: &Folder) -> PathBuf {
    folder.path().join("outcome.json")
}

/// Beside the run, because only the process that trains can know it.
fn memory(folder: &Folder) -> PathBuf {
    folder.path().join("memory.json")
}

/// The outcome of a run that was finished before; an error if the folder holds another run.
pub(super) fn load(
    folder: &Folder,
    settings: &RunSettings,
    corpus: &Corpus,
    comparison: &Comparison,
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
    let asked = asked(comparison, kept.trained.length, corpus.tokens(split(corpus)).is_some());
    Ok((kept.asked == asked).then_some(kept.trained))
}

fn asked(comparison: &Comparison, trained: usize, is_text: bool) -> Asked {
    let lengths = comparison.lengths.clone().unwrap_or_else(|| Lengths::multiples(trained));
    let lengths = Lengths { lengths, tokens: comparison.tokens, scalings: true };
    Asked {
        lengths: Some(lengths).filter(|lengths| is_text && !lengths.lengths.is_empty()),
        bleu: comparison.bleu,
    }
}

struct Listener<'a>(&'a mut dyn FnMut(&Record, u64));

impl Watcher for Listener<'_> {
    fn updated(&mut self, record: &Record, step: u64) {
        (self.0)(record, step);
    }
}

/// Trains, or goes on.
pub(super) fn train(
    folder: &Folder,
    settings: RunSettings,
    corpus: &Corpus,
    interrupt: &Interrupt,
    updated: &mut dyn FnMut(&Record, u64),
) -> Result<Ending, Error> {
    cost::reset_peak();
    let mut trainer = match folder.has_run() {
        true => Trainer::resume(settings, corpus.clone(), folder.clone())?,
        false => Trainer::start(settings, corpus.clone(), folder.clone())?,
    };
    let is_new = trainer.step() == 0;
    let ending = trainer.run(interrupt, &mut Listener(updated))?;
    if is_new || !memory(folder).exists() {
        let text = serde_json::to_string(&cost::peak_memory()).expect("a number");
        files::replace(&memory(folder), |writer| writer.write_all(text.as_bytes()))?;
    }
    Ok(ending)
}

/// Measures a trained run and keeps the outcome.
pub(super) fn measure(
    folder: &Folder,
    corpus: &Corpus,
    comparison: &Comparison,
) -> Result<Trained, Error> {
    let run = Run::open(folder.path())?;
    let split = split(corpus);
    if !corpus.has(split) {
        let reason = "nothing is held out; set data.valid_share above 0, or name a file for it";
        return Err(Error::Request(reason.into()));
    }
    let asked = asked(comparison, run.settings.training.length, corpus.tokens(split).is_some());
    let lengths = match &asked.lengths {
        Some(lengths) => lengths.measure(folder, corpus, split, |_| {})?,
        None => Vec::new(),
    };
    let records = records(folder);
    let trained = Trained {
        seed: run.settings.seed,
        steps: run.settings.training.steps,
        length: run.settings.training.length,
        split: split.name().into(),
        quality: quality(&run, corpus, split, comparison.tokens)?,
        bleu: if asked.bleu { bleu(&run, corpus, split)? } else { None },
        sample: sample(&run, corpus, split)?,
        curve: records.iter().filter_map(point).collect(),
        lengths,
        cost: Cost {
            tokens_per_second: median(records.iter().filter_map(speed).collect()),
            peak_memory: fs::read_to_string(memory(folder))
                .ok()
                .and_then(|text| serde_json::from_str(&text).ok())
                .flatten(),
            parameters: run.model.size(),
            flops: Flops::of(&run.settings, corpus.vocabulary())?,
        },
    };
    let kept = Kept { asked, fingerprint: corpus.fingerprint(), trained };
    let text = serde_json::to_string(&kept).map_err(|e| Error::Request(e.to_string()))?;
    files::replace(&outcome(folder), |writer| writer.write_all(text.as_bytes()))?;
    Ok(kept.trained)
}

/// What is held out the longest.
fn split(corpus: &Corpus) -> Split {
    if corpus.has(Split::Test) { Split::Test } else { Split::Valid }
}

/// The figures at the trained length, of at least as many batches as an evaluation while training.
fn quality(run: &Run, corpus: &Corpus, split: Split, tokens: usize) -> Result<Evaluation, Error> {
    let batches = trainer::batches(&run.settings, corpus, split)?;
    let each = tokens_per_step(&run.settings) / run.settings.training.accumulate;
    let limit = tokens.div_ceil(each as usize).max(run.settings.training.evaluate_batches);
    let limit = Some(limit).filter(|_| run.settings.training.evaluate_batches > 0);
    Ok(evaluate(&run.model, &batches, limit, corpus.bytes_per_token(split))?)
}

/// The first held-out tokens as text.
fn sample(run: &Run, corpus: &Corpus, split: Split) -> Result<String, Error> {
    let batches = trainer::batches(&run.settings, corpus, split)?;
    let Some(batch) = batches.evaluation(Some(1)).next().transpose()? else {
        return Ok(String::new());
    };
    let length = batch.lengths.first().map_or(0, |length| (*length).min(SAMPLE));
    Ok(run.tokenizer.decode(&batch.tokens[..length]))
}

fn bleu(run: &Run, corpus: &Corpus, split: Split) -> Result<Option<f64>, Error> {
    let Some(pairs) = corpus.pairs(split) else { return Ok(None) };
    let sources: Vec<&str> = pairs.iter().map(|pair| pair.source_text.as_str()).collect();
    let references: Vec<Vec<&str>> =
        pairs.iter().map(|pair| vec![pair.target_text.as_str()]).collect();
    let targets = run.translate(&sources, &Translation::default())?;
    Ok(Some(bleu::Settings::default().corpus(&targets, &references)?.score))
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
