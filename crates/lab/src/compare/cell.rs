//! One run of a cell: trained in a run folder, measured, and its outcome kept there.

use std::{fs, io::Write, path::PathBuf};

use serde::{Deserialize, Serialize};
use whatwhere_data::{Corpus, Split};
use whatwhere_files as files;
use whatwhere_training::{
    Ending, Evaluation, Folder, Observer, Record, Run, RunSettings, Trainer, Translation, bleu,
    evaluate, interrupt::Interrupt, trainer,
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
    /// Runs that were trained at the same time, this one included.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Most memory of the process while it trained, bytes; not known of runs side by side.
    pub peak_memory: Option<u64>,
    /// Learned values.
    pub parameters: usize,
    /// Operations of a forward pass for each token.
    pub flops: Flops,
}

fn one() -> usize {
    1
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

/// How a run was trained: beside it, because only the process that trains can know it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Conditions {
    jobs: usize,
    peak_memory: Option<u64>,
}

impl Conditions {
    fn path(folder: &Folder) -> PathBuf {
        folder.path().join("conditions.json")
    }

    fn load(folder: &Folder) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(Self::path(folder)).ok()?).ok()
    }

    fn save(self, folder: &Folder) -> Result<(), Error> {
        let text = serde_json::to_string(&self).expect("numbers");
        Ok(files::replace(&Self::path(folder), |writer| writer.write_all(text.as_bytes()))?)
    }

    /// Of a run that was begun under these conditions and went on under others.
    fn then(self, later: Self) -> Self {
        let jobs = self.jobs.max(later.jobs);
        Self { jobs, peak_memory: self.peak_memory.filter(|_| jobs == 1) }
    }
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

impl Observer for Listener<'_> {
    fn updated(&mut self, record: &Record, step: u64) {
        (self.0)(record, step);
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
    let before = Conditions::load(folder).filter(|_| trainer.step() > 0);
    let ending = trainer.run(interrupt, &mut Listener(updated))?;
    let peak_memory = cost::peak_memory().filter(|_| jobs == 1);
    let now = Conditions { jobs, peak_memory };
    before.map_or(now, |before| before.then(now)).save(folder)?;
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
        Some(lengths) => lengths.measure(&run, corpus, split, |_| {})?,
        None => Vec::new(),
    };
    let records = records(folder);
    let conditions = Conditions::load(folder);
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
            jobs: conditions.map_or(1, |conditions| conditions.jobs),
            peak_memory: conditions.and_then(|conditions| conditions.peak_memory),
            parameters: run.model().size(),
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
    Ok(evaluate(run.model(), &batches, limit, corpus.bytes_per_token(split))?)
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
