//! Fine-tuning: a run that starts from the weights of another, and trains all of them, some, or adapters.

pub(crate) mod adapter_file;
pub(crate) mod lora;
mod merge;
pub(crate) mod names;

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    io::Write,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use whatwhere_data::{Corpus, Objective, Tokenizer, settings::Classify};
use whatwhere_files as files;
use whatwhere_settings::Refuses;
use whatwhere_transformer::{Model, Parameter, ParameterView, Role};

pub use lora::Lora;
pub use merge::merge;

use crate::{Error, Folder, Run, RunSettings, TrainingSettings, imported::Imported};
use lora::Adapters;

/// The run whose weights another starts from.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its folder.
    pub path: PathBuf,
    /// Whether the vectors of tokens are drawn anew, because the tokens are others.
    pub new_embeddings: bool,
}

/// What became of the parameters of a run that started from another; `transfer.json` in its folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// The folder of the other run.
    pub from: PathBuf,
    /// Parameters with the other run's values.
    pub taken: Vec<String>,
    /// Those of them that have more rows here, for special tokens that the other run did not know; these were drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grown: Vec<Reason>,
    /// Parameters with first values of their own.
    pub drawn: Vec<Reason>,
    /// Parameters of the other run that were not taken.
    pub left_out: Vec<Reason>,
}

/// A parameter, and why it was not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The parameter.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl Base {
    /// Settings that go on where the other run ended: the same model, tokens and recipe, to be changed by the caller.
    pub fn settings(&self) -> Result<RunSettings, Error> {
        let mut settings = Folder::new(&self.path).load_settings()?;
        // What it was adapted by is in its weights.
        settings.training.lora = None;
        settings.training.freeze = Vec::new();
        // Classes follow from the data, which may be others.
        settings.model.classes = 0;
        settings.model.pooling = None;
        if let Some(Objective::Classify(Classify { classes, .. })) = &mut settings.data.objective {
            classes.clear();
        }
        if self.new_embeddings {
            settings.model.vocabulary = 0;
        } else if self.share_tokenizer(&mut settings)? {
            // As many as the tokenizer has: data of several documents add a token that ends one.
            let tokens = Tokenizer::load(&Folder::new(&self.path).tokenizer())?.vocabulary();
            settings.model.vocabulary = Some(settings.model.vocabulary)
                .filter(|vocabulary| *vocabulary > tokens)
                .unwrap_or(0);
        }
        Ok(settings)
    }

    /// Has the data cut into the other run's tokens, where tokens do not follow from the data; whether they are.
    pub fn share_tokenizer(&self, settings: &mut RunSettings) -> Result<bool, Error> {
        let folder = Folder::new(&self.path);
        let is_shared = settings.data.source.takes_tokens() && folder.tokenizer().is_file();
        if is_shared {
            settings.data.tokenizer = Some(Imported::tokens_of(&folder)?.into());
        }
        Ok(is_shared)
    }

    /// Refuses data of other tokens than the other run's.
    pub(crate) fn check_tokens(&self, corpus: &Corpus) -> Result<(), Error> {
        let folder = Folder::new(&self.path);
        if !folder.has_run() {
            return Err(Error::NoRun { folder: self.path.clone() });
        }
        if self.new_embeddings {
            return Ok(());
        }
        let (path, run) = (folder.tokenizer(), self.path.display());
        let drawn = "--new-embeddings draws the vectors of tokens anew";
        if !path.is_file() {
            return Err(Error::Settings(format!(
                "{run}: it came without a tokenizer, so nobody knows what its tokens are; {drawn}"
            )));
        }
        if begins_with(corpus.tokenizer(), &Tokenizer::load(&path)?)? {
            return Ok(());
        }
        Err(Error::Settings(format!(
            "{run}: it has another tokenizer; use its own tokens, --set 'data.tokenizer={{kind=\"file\",path=\"{}\"}}', or {drawn}",
            path.display()
        )))
    }

    /// The model with what the other run has of it: everything whose name and shape agree.
    pub(crate) fn give(&self, model: Model, corpus: &Corpus) -> Result<(Model, Transfer), Error> {
        let run = Run::open(&self.path)?;
        let other_classes = match run.settings.data.objective() {
            Objective::Classify(classify) => classify.classes != corpus.classes(),
            _ => true,
        };
        let of_tokens =
            |role| self.new_embeddings && matches!(role, Role::Embedding | Role::Output);
        let tokens = [run.settings.model.vocabulary, model.settings().vocabulary];
        let mut given: BTreeMap<String, ParameterView> =
            run.model().views().into_iter().map(|view| (view.name.clone(), view)).collect();
        let mut transfer = Transfer { from: self.path.clone(), ..Transfer::default() };
        let mut parameters = Vec::new();
        for view in model.views() {
            let (name, shape) = (view.name.clone(), view.shape.clone());
            let found = given.remove(&name);
            let reason = match &found {
                None => Some("the other run has none of this name".to_owned()),
                Some(_) if of_tokens(view.role) => Some("vectors of tokens are new".to_owned()),
                Some(_) if name.starts_with("classifier.") && other_classes => {
                    Some("its classes are others".to_owned())
                }
                Some(found) if found.shape != shape => {
                    if let (Some(more), false) = (grown(found, &view, tokens), self.new_embeddings)
                    {
                        let reason = said_of_tokens(corpus, tokens);
                        transfer.taken.push(name.clone());
                        transfer.grown.push(Reason { name: name.clone(), reason });
                        parameters.push(Parameter { name, shape, values: more });
                        continue;
                    }
                    Some(format!("shape {:?} there, {shape:?} here", found.shape))
                }
                Some(_) => None,
            };
            let values = match (reason, &found) {
                (None, Some(found)) => {
                    transfer.taken.push(name.clone());
                    found.values().to_vec()
                }
                (reason, found) => {
                    let reason = reason.unwrap_or_default();
                    if found.is_some() {
                        transfer
                            .left_out
                            .push(Reason { name: name.clone(), reason: reason.clone() });
                    }
                    transfer.drawn.push(Reason { name: name.clone(), reason });
                    view.values().to_vec()
                }
            };
            parameters.push(Parameter { name, shape, values });
        }
        let reason = "this model has none of this name";
        transfer
            .left_out
            .extend(given.into_keys().map(|name| Reason { name, reason: reason.into() }));
        if transfer.taken.is_empty() {
            let first = transfer.drawn.first();
            let example = first.map_or(String::new(), |drawn| {
                format!(", for example {}: {}", drawn.name, drawn.reason)
            });
            return Err(Error::Settings(format!(
                "{}: none of its parameters has the name and shape of one of this model{example}; use settings of the same family and width",
                self.path.display()
            )));
        }
        let model = model.with_parameters(parameters)?;
        Ok((model, transfer))
    }
}

impl Base {
    /// Gives a run the other's `import.json`, if it has one: special tokens and the chat template go along.
    pub(crate) fn hand_down_import(&self, folder: &Folder) -> Result<(), Error> {
        let path = Folder::new(&self.path).import();
        if !path.is_file() {
            return Ok(());
        }
        let bytes = fs::read(&path).map_err(Error::file(&path, "read"))?;
        Ok(files::replace(&folder.import(), |out| out.write_all(&bytes))?)
    }
}

/// Whether a tokenizer has the tokens of another, made by the same rules, and perhaps special ones behind them.
fn begins_with(tokenizer: &Tokenizer, other: &Tokenizer) -> Result<bool, Error> {
    let model = |tokenizer: &Tokenizer| -> Result<serde_json::Value, Error> {
        let json: serde_json::Value = serde_json::from_str(&tokenizer.to_json()?)
            .map_err(|e| Error::Settings(format!("tokenizer: {e}")))?;
        Ok(serde_json::json!([json["model"], json["pre_tokenizer"], json["normalizer"]]))
    };
    let known = other.vocabulary() as u32;
    let agree = || (0..known).all(|id| tokenizer.name(id) == other.name(id));
    let are_special = || (known..tokenizer.vocabulary() as u32).all(|id| tokenizer.is_special(id));
    Ok(tokenizer.vocabulary() >= other.vocabulary()
        && model(tokenizer)? == model(other)?
        && agree()
        && are_special())
}

/// The values of a parameter that has rows or columns for more tokens than it had in the other run: that one's, and what was
/// drawn behind them. Nothing if it differs otherwise.
fn grown(there: &ParameterView, here: &ParameterView, tokens: [usize; 2]) -> Option<Vec<f32>> {
    let [before, now] = tokens;
    if now <= before || !matches!(here.role, Role::Embedding | Role::Output | Role::Bias) {
        return None;
    }
    let mut values = here.values().to_vec();
    match (&there.shape[..], &here.shape[..]) {
        ([old, rest @ ..], [new, same @ ..]) if [*old, *new] == [before, now] && rest == same => {
            values[..there.values().len()].copy_from_slice(there.values());
        }
        ([from, old], [same, new]) if [*old, *new] == [before, now] && from == same => {
            for (row, known) in values.chunks_mut(*new).zip(there.values().chunks(*old)) {
                row[..*old].copy_from_slice(known);
            }
        }
        _ => return None,
    }
    Some(values)
}

/// The tokens that another run did not know, in words.
fn said_of_tokens(corpus: &Corpus, [before, now]: [usize; 2]) -> String {
    let names: Vec<String> =
        (before as u32..now as u32).map(|id| corpus.tokenizer().token(id)).collect();
    format!("drawn for {}", names.join(", "))
}

impl Transfer {
    /// In one line: how much was taken.
    pub fn summary(&self) -> String {
        let all = self.taken.len() + self.drawn.len();
        let mut words = format!("{} of {all} parameters taken", self.taken.len());
        if let Some(grown) = self.grown.first() {
            words += &format!(
                ", {} with more rows ({}: {})",
                self.grown.len(),
                grown.name,
                grown.reason
            );
        }
        if let Some(drawn) = self.drawn.first() {
            words += &format!(", {} drawn ({}: {})", self.drawn.len(), drawn.name, drawn.reason);
        }
        if let Some(left) = self.left_out.first() {
            words +=
                &format!(", {} left out ({}: {})", self.left_out.len(), left.name, left.reason);
        }
        words
    }

    pub(crate) fn save(&self, folder: &Folder) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("words can be written");
        Ok(files::replace(&folder.transfer(), |out| writeln!(out, "{text}"))?)
    }
}

/// Which parameters learn, and by what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trainable {
    /// Neither updated nor remembered by the optimizer.
    frozen: HashSet<String>,
    pub(crate) adapters: Option<Adapters>,
}

impl Trainable {
    pub(crate) fn new(views: &[ParameterView], training: &TrainingSettings, seed: u64) -> Self {
        let is_frozen = |name: &str| match &training.lora {
            Some(lora) => !names::fits_any(&lora.also, name),
            None => names::fits_any(&training.freeze, name),
        };
        Self {
            frozen: views.iter().map(|v| v.name.clone()).filter(|name| is_frozen(name)).collect(),
            adapters: training.lora.as_ref().map(|lora| Adapters::new(lora, views, seed)),
        }
    }

    /// Refuses patterns that fit nothing, and a run in which nothing would learn.
    pub(crate) fn check(views: &[ParameterView], training: &TrainingSettings) -> Result<(), Error> {
        let all: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
        names::check("training.freeze", &training.freeze, &all)?;
        match &training.lora {
            Some(lora) => lora.check_names(views),
            None if all.iter().all(|name| names::fits_any(&training.freeze, name)) => {
                let found = format!("{:?}", training.freeze);
                let reason = "freezes every parameter; leave some to learn";
                Err(Error::setting("training.freeze", found, reason))
            }
            None => Ok(()),
        }
    }

    /// Refuses parameters that were drawn and would never learn.
    pub(crate) fn check_drawn(&self, transfer: &Transfer) -> Result<(), Error> {
        let stuck = transfer.drawn.iter().find(|drawn| !self.is_updated(&drawn.name));
        let Some(Reason { name, reason }) = stuck else { return Ok(()) };
        let way = match self.adapters {
            Some(_) => "name it in training.lora.also",
            None => "leave it out of training.freeze",
        };
        Err(Error::Settings(format!(
            "{name} was drawn ({reason}) and would never learn, because it is frozen; {way}"
        )))
    }

    /// Whether the gradient of a parameter is of use.
    pub(crate) fn needs_gradient(&self, name: &str) -> bool {
        self.is_updated(name)
            || self.adapters.as_ref().is_some_and(|all| all.by_name.contains_key(name))
    }

    /// Whether a parameter itself is updated.
    pub(crate) fn is_updated(&self, name: &str) -> bool {
        !self.frozen.contains(name)
    }
}
