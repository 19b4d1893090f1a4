//! The doctor: holds a model against logits that others computed of it, and names the convention in which the two differ.
//!
//! A hypothesis is a change of settings or of weights, such as the other layout of rotary. Each is applied to the model, the
//! logits are computed again, and the one that takes the difference down to rounding is the diagnosis. Without logits of
//! others a model is held against itself ([`examine_itself`]). Start at [`examine`]; `conventions.rs` and `weights.rs` list
//! what is tried.

mod conventions;
mod fit;
mod itself;
mod reference;
mod rotary;
mod tables;
mod weights;

use std::path::Path;

use serde::Serialize;
use whatwhere_training::{Folder, Run};
use whatwhere_transformer::{Mode, Model, ModelSettings, Parameter, Sequences};

use crate::{Error, error::Result, gguf, huggingface};

pub use itself::{Check, examine_itself};
pub use reference::Sample;

/// The largest difference, of the largest logit, that counts as rounding unless said otherwise.
pub const TOLERANCE: f64 = 1e-4;

/// Below it, of the largest logit, a change was not seen at all.
const UNSEEN: f64 = 1e-7;

/// How many of the hypotheses that come nearest are tried together with another.
const TOGETHER: usize = 3;

/// Opens whatever holds a model: a run folder, a model folder as transformers writes it, or a GGUF file.
pub fn open(path: &Path) -> Result<Model> {
    if Folder::new(path).has_run() {
        return Ok(Run::open(path)?.model().clone());
    }
    let read = match path.is_file() {
        true => gguf::read(path, &mut |_, _| {})?,
        false => huggingface::read(path, &mut |_, _| {})?,
    };
    Ok(read
        .settings
        .build_with(read.parameters, &whatwhere_training::RunSettings::default().device())?)
}

/// What came of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With it, model and reference agree.
    Agrees,
    /// Nearer than without it, but no agreement.
    Nearer,
    /// Farther than without it.
    Farther,
    /// These tokens do not tell it apart from the model as it is: they are too few, or it changes nothing.
    Unseen,
}

/// One hypothesis and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The convention, such as `rotary layout`.
    pub convention: String,
    /// What was changed, such as `interleaved instead of half_split`.
    pub change: String,
    /// The largest difference of the logits, of the largest.
    pub distance: f64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What an examination has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    /// Whether model and reference agree as they are.
    pub agrees: bool,
    /// The largest difference of their logits, of the largest.
    pub distance: f64,
    /// What counts as rounding.
    pub tolerance: f64,
    /// Conventions that explain the difference: each by itself, or, where none does, two together with `and` between them.
    pub diagnosis: Vec<String>,
    /// Every hypothesis, nearest first; none if model and reference agree.
    pub tried: Vec<Tried>,
}

/// A model that is examined.
#[derive(Clone)]
struct Patient {
    settings: ModelSettings,
    model: Model,
}

/// A hypothesis about a model: it has `convention`, and `change` would be right.
struct Hypothesis {
    convention: &'static str,
    change: String,
    cure: Cure,
}

/// What is changed.
enum Cure {
    /// Settings that leave the parameters as they are.
    Settings(Box<ModelSettings>),
    /// Parameters, with the settings they are for.
    Weights(Box<ModelSettings>, Remedy),
}

/// Changes parameters.
type Remedy = Box<dyn Fn(&mut Vec<Parameter>)>;

impl Patient {
    fn new(model: &Model) -> Self {
        Self { settings: model.settings().clone(), model: model.clone() }
    }

    /// The model as a hypothesis would have it; nothing if it cannot be built.
    fn cured(&self, hypothesis: &Hypothesis) -> Option<Self> {
        let (settings, model) = match &hypothesis.cure {
            Cure::Settings(settings) => (settings, self.model.with_settings(settings).ok()?),
            Cure::Weights(settings, change) => {
                let mut parameters = self.model.parameters();
                change(&mut parameters);
                (settings, settings.build_with(parameters, &self.model.device()).ok()?)
            }
        };
        Some(Self { settings: settings.as_ref().clone(), model })
    }

    fn logits(&self, sample: &Sample) -> Result<Vec<f32>> {
        let source = sample.source.as_ref().map(|source| Sequences::from_rows(&[source]));
        let tokens = Sequences::from_rows(&[&sample.ids]);
        logits(&self.model, source.as_ref(), &tokens)
    }

    /// The logits of all samples.
    fn answers(&self, samples: &[Sample]) -> Result<Vec<Vec<f32>>> {
        samples.iter().map(|sample| self.logits(sample)).collect()
    }
}

/// Logits, row by row.
fn logits(model: &Model, source: Option<&Sequences>, tokens: &Sequences) -> Result<Vec<f32>> {
    let logits = model.forward(source, tokens, Mode::default())?;
    Ok(logits.into_data().try_into_vec().expect("f32"))
}

/// The largest difference, of the largest value of `want`; infinite where one is no number.
fn distance<'a>(found: impl IntoIterator<Item = &'a Vec<f32>>, want: &[Vec<f32>]) -> f64 {
    let (mut far, mut largest) = (0f64, 0f64);
    for (found, want) in found.into_iter().zip(want) {
        for (found, want) in found.iter().zip(want) {
            let one = f64::from(found - want).abs();
            far = if one.is_nan() { f64::INFINITY } else { far.max(one) };
            largest = largest.max(f64::from(*want).abs());
        }
    }
    if far == 0.0 { 0.0 } else { far / largest.max(f64::MIN_POSITIVE) }
}

/// Holds a model against logits that others computed of it; `each` hears how many hypotheses of how many were tried.
pub fn examine(
    model: &Model,
    samples: &[Sample],
    tolerance: f64,
    each: &mut dyn FnMut(usize, usize),
) -> Result<Examination> {
    let patient = Patient::new(model);
    let samples = fitting(&patient, samples)?;
    let want: Vec<Vec<f32>> = samples.iter().map(|sample| sample.logits.clone()).collect();
    let as_it_is = patient.answers(&samples)?;
    let distance_now = distance(&as_it_is, &want);
    let mut found = Examination {
        agrees: distance_now <= tolerance,
        distance: distance_now,
        tolerance,
        diagnosis: Vec::new(),
        tried: Vec::new(),
    };
    if found.agrees {
        return Ok(found);
    }
    let all = conventions::all(&patient.settings);
    let mut cured: Vec<(Tried, Patient)> = Vec::new();
    for (done, hypothesis) in all.iter().enumerate() {
        each(done, all.len());
        let Some(other) = patient.cured(hypothesis) else { continue };
        let Ok(answers) = other.answers(&samples) else { continue };
        let far = distance(&answers, &want);
        let outcome = match () {
            () if far <= tolerance => Outcome::Agrees,
            () if distance(&answers, &as_it_is) <= UNSEEN => Outcome::Unseen,
            () if far < distance_now => Outcome::Nearer,
            () => Outcome::Farther,
        };
        let convention = hypothesis.convention.to_owned();
        let change = hypothesis.change.clone();
        // The models of those that are far off are not needed again.
        let tried = Tried { convention, change, distance: far, outcome };
        cured.push((tried, other));
        cured.sort_by(|a, b| a.0.distance.total_cmp(&b.0.distance));
        if let Some((dropped, _)) = (cured.len() > TOGETHER).then(|| cured.pop()).flatten() {
            found.tried.push(dropped);
        }
    }
    let agrees = |tried: &Tried| tried.outcome == Outcome::Agrees;
    if !cured.iter().any(|(tried, _)| agrees(tried)) {
        let fitted = fit::all(&patient, &samples, &want, [tolerance, distance_now]);
        if !fitted.iter().any(agrees) {
            found.tried.extend(pairs(&cured, &samples, &want, tolerance));
        }
        found.tried.extend(fitted);
    }
    found.tried.extend(cured.into_iter().map(|(tried, _)| tried));
    found.tried.sort_by(|a, b| a.distance.total_cmp(&b.distance));
    for tried in found.tried.iter().filter(|tried| tried.outcome == Outcome::Agrees) {
        if !found.diagnosis.contains(&tried.convention) {
            found.diagnosis.push(tried.convention.clone());
        }
    }
    Ok(found)
}

/// Two conventions at once: those that came nearest, each with every other.
fn pairs(
    nearest: &[(Tried, Patient)],
    samples: &[Sample],
    want: &[Vec<f32>],
    tolerance: f64,
) -> Vec<Tried> {
    let mut agreeing = Vec::new();
    for (first, patient) in nearest.iter().filter(|(tried, _)| tried.outcome == Outcome::Nearer) {
        for second in conventions::all(&patient.settings) {
            if second.convention == first.convention {
                continue;
            }
            let Some(other) = patient.cured(&second) else { continue };
            let Ok(answers) = other.answers(samples) else { continue };
            let far = distance(&answers, want);
            if far <= tolerance {
                agreeing.push(Tried {
                    convention: format!("{} and {}", first.convention, second.convention),
                    change: format!("{}; {}", first.change, second.change),
                    distance: far,
                    outcome: Outcome::Agrees,
                });
            }
        }
    }
    // Each pair is found from both of its ends.
    let mut kept: Vec<Tried> = Vec::new();
    for tried in agreeing {
        let words = |text: &str| {
            let mut words: Vec<String> = text.split(" and ").map(String::from).collect();
            words.sort();
            words
        };
        if !kept.iter().any(|other| words(&other.convention) == words(&tried.convention)) {
            kept.push(tried);
        }
    }
    kept
}

/// The samples, if they are of this model: as many logits as it gives, of tokens it knows.
fn fitting(patient: &Patient, samples: &[Sample]) -> Result<Vec<Sample>> {
    let vocabulary = patient.settings.vocabulary;
    let refused = |found: String| Err(Error::Refused(format!("reference logits: {found}")));
    if samples.is_empty() {
        return refused("found none, expected at least one sequence".into());
    }
    for (index, sample) in samples.iter().enumerate() {
        let at = index + 1;
        let all = sample.source.iter().flatten().chain(&sample.ids);
        if let Some(id) = all.into_iter().find(|id| **id as usize >= vocabulary) {
            return refused(format!(
                "sequence {at}: id {id} is outside the vocabulary, expected 0 to {}",
                vocabulary.saturating_sub(1)
            ));
        }
        let empty = sample.source.as_ref().is_some_and(Vec::is_empty) || sample.ids.is_empty();
        let expected = sample.ids.len() * vocabulary;
        if empty || sample.logits.len() != expected {
            return refused(format!(
                "sequence {at}: found {} logits for {} ids, expected {vocabulary} for each of at least 1",
                sample.logits.len(),
                sample.ids.len()
            ));
        }
    }
    Ok(samples.to_vec())
}
