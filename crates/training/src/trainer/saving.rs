//! What a run leaves behind at every checkpoint, and how it goes on from it.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{Device, Tensor, TensorData};
use whatwhere_data::Corpus;
use whatwhere_transformer::{Model, Parameter};

use super::{Progress, Trainer};
use crate::{Error, Folder, RunSettings, checkpoint::Checkpoint, lock::Lock, tensorboard};

/// The word of a checkpoint that holds the hash of the run's `tokenizer.json`.
pub(crate) const TOKENIZER: &str = "tokenizer";

impl Trainer {
    /// Goes on from the last checkpoint of a run. The corpus must be the one it began with.
    pub fn resume(settings: RunSettings, corpus: Corpus, folder: Folder) -> Result<Self, Error> {
        let begun = folder.load_settings()?;
        let lock = Lock::acquire(folder.path())?;
        let mut settings = settings;
        settings.resolve(corpus.vocabulary())?;
        check_same(&begun, &settings)?;
        let path = folder.last();
        let mut checkpoint = Checkpoint::load(&path)?;
        let fingerprint: u64 = checkpoint.word(&path, "fingerprint")?;
        if fingerprint != corpus.fingerprint() {
            return Err(Error::DataChanged { folder: folder.path().into() });
        }
        let tokenizer = folder.check_tokenizer(checkpoint.words.get(TOKENIZER))?;
        let maybe = |key: &str| checkpoint.words.get(key).and_then(|word| word.parse().ok());
        let progress = Progress {
            step: checkpoint.word(&path, "step")?,
            tokens: checkpoint.word(&path, "tokens")?,
            first_loss: maybe("first_loss"),
            best: maybe("best"),
            stale: checkpoint.word(&path, "stale")?,
        };
        let device = Device::flex().autodiff();
        let model = settings.model.build(settings.seed, &device)?;
        let model = model.with_parameters(checkpoint.take("model."))?;
        let board = tensorboard::Writer::resume(folder.path(), progress.step)?;
        let mut trainer =
            Self::new(settings, corpus, folder, model, progress, board, tokenizer, lock)?;
        for slot in 0..trainer.learner.working.slots_each() {
            for array in checkpoint.take(&format!("slot{slot}.")) {
                trainer.learner.working.slots.entry(array.name).or_default().push(array.values);
            }
        }
        trainer.recall(checkpoint.take("memory."));
        trainer.journal.truncate_after(progress.step)?;
        trainer.folder.save_format()?;
        trainer.folder.save_settings(&trainer.settings)?;
        Ok(trainer)
    }

    /// Writes `model.safetensors`.
    pub(super) fn keep(&self, model: &Model) -> Result<(), Error> {
        let words = BTreeMap::from([
            ("step".into(), self.progress.step.to_string()),
            (TOKENIZER.into(), self.tokenizer.clone()),
        ]);
        Checkpoint { arrays: model.parameters(), words }.save(&self.folder.model())
    }

    /// Writes `last.safetensors`, and `model.safetensors` if there is none yet.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        self.journal.sync()?;
        let mut arrays = Vec::new();
        let parameters = self.learner.model().parameters();
        for parameter in &parameters {
            if let Some(slots) = self.learner.working.slots.get(&parameter.name) {
                arrays.extend(slots.iter().enumerate().map(|(slot, values)| Parameter {
                    name: format!("slot{slot}.{}", parameter.name),
                    shape: parameter.shape.clone(),
                    values: values.clone(),
                }));
            }
        }
        arrays.extend(parameters.into_iter().map(|mut parameter| {
            parameter.name.insert_str(0, "model.");
            parameter
        }));
        arrays.extend(self.remembered());
        let Progress { step, tokens, first_loss, best, stale } = self.progress;
        let mut words = BTreeMap::from([
            ("step".into(), step.to_string()),
            ("tokens".into(), tokens.to_string()),
            ("stale".into(), stale.to_string()),
            ("fingerprint".into(), self.corpus.fingerprint().to_string()),
            (TOKENIZER.into(), self.tokenizer.clone()),
        ]);
        words.extend(first_loss.map(|loss| ("first_loss".into(), loss.to_string())));
        words.extend(best.map(|loss| ("best".into(), loss.to_string())));
        Checkpoint { arrays, words }.save(&self.folder.last())?;
        if !self.folder.model().exists() {
            self.keep(self.learner.model())?;
        }
        Ok(())
    }

    /// The hidden states kept from the segments before.
    fn remembered(&self) -> Vec<Parameter> {
        let layers =
            self.learner.segments.iter().flat_map(|segments| segments.layers.iter().enumerate());
        layers
            .filter_map(|(layer, states)| {
                let states = states.clone()?;
                let shape = states.dims().to_vec();
                let values = states.into_data().try_into_vec().expect("states are f32");
                Some(Parameter { name: format!("memory.{layer}"), shape, values })
            })
            .collect()
    }

    fn recall(&mut self, arrays: Vec<Parameter>) {
        let Some(segments) = &mut self.learner.segments else { return };
        segments.layers = vec![None; self.settings.model.layers];
        for array in arrays {
            let data = TensorData::new(array.values, array.shape);
            if let Some(layer) =
                array.name.parse().ok().and_then(|i: usize| segments.layers.get_mut(i))
            {
                *layer = Some(Tensor::from_data(data, &self.device));
            }
        }
    }
}

/// Refuses to go on with other settings than the run began with; only its length and its records may change.
fn check_same(begun: &RunSettings, now: &RunSettings) -> Result<(), Error> {
    let mut allowed = begun.clone();
    let training = &now.training;
    allowed.training.steps = training.steps;
    allowed.training.evaluate_every = training.evaluate_every;
    allowed.training.evaluate_batches = training.evaluate_batches;
    allowed.training.log_every = training.log_every;
    allowed.training.checkpoint_every = training.checkpoint_every;
    allowed.training.patience = training.patience;
    allowed.model.recompute = now.model.recompute;
    if allowed == *now {
        return Ok(());
    }
    let table = |settings| {
        toml::Table::try_from(settings).map_err(|e| Error::Settings(format!("settings: {e}")))
    };
    let (key, before, after) = difference(&table(&allowed)?, &table(now)?).unwrap_or_default();
    let say = |value: Option<toml::Value>| match value {
        None => format!("no {key}"),
        Some(value) => format!("`{key} = {value}`"),
    };
    Err(Error::Settings(format!(
        "the run began with {}, found {}; start a new run for that",
        say(before),
        say(after)
    )))
}

/// A setting and its values in two tables.
type Difference = (String, Option<toml::Value>, Option<toml::Value>);

/// The first setting that differs.
fn difference(before: &toml::Table, after: &toml::Table) -> Option<Difference> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let key = keys.into_iter().find(|key| before.get(*key) != after.get(*key))?;
    let of = |table: &toml::Table| table.get(key).cloned();
    match (of(before), of(after)) {
        (Some(toml::Value::Table(before)), Some(toml::Value::Table(after)))
            if before.get("kind") == after.get("kind") =>
        {
            let (inner, before, after) = difference(&before, &after)?;
            Some((format!("{key}.{inner}"), before, after))
        }
        (before, after) => Some((key.clone(), before, after)),
    }
}
