//! What a run leaves behind at every checkpoint, and how it goes on from it.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{Tensor, TensorData};
use whatwhere_attention::bridge::Operand;
use whatwhere_data::Corpus;
use whatwhere_transformer::{Model, Parameter, ParameterView};

use super::{Progress, Trainer, splits};
use crate::{
    Error, Folder, RunSettings,
    checkpoint::{self, Array, Checkpoint},
    finetune::{adapter_file, lora::Adapters},
    journal::Journal,
    learner::Learner,
    lock::Lock,
    memory::Memory,
    tensorboard,
};

/// The entry of a checkpoint's metadata that holds the hash of the run's `tokenizer.json`.
pub(crate) const TOKENIZER: &str = "tokenizer";

impl Trainer {
    /// Goes on from the last checkpoint of a run. The corpus must be the one it began with.
    pub fn resume(settings: RunSettings, corpus: Corpus, folder: Folder) -> Result<Self, Error> {
        let begun = folder.load_settings()?;
        let lock = Lock::acquire(folder.path())?;
        let mut settings = settings;
        settings.resolve_for(&corpus)?;
        check_same(&begun, &settings)?;
        Memory::of(&settings)?.check()?;
        let path = folder.last();
        let mut checkpoint = Checkpoint::load(&path)?;
        let fingerprint: u64 = checkpoint.entry(&path, "fingerprint")?;
        if fingerprint != corpus.fingerprint() {
            return Err(Error::DataChanged { folder: folder.path().into() });
        }
        let tokenizer = folder.check_tokenizer(checkpoint.metadata.get(TOKENIZER))?;
        let maybe = |key: &str| checkpoint.metadata.get(key).and_then(|entry| entry.parse().ok());
        let progress = Progress {
            step: checkpoint.entry(&path, "step")?,
            tokens: checkpoint.entry(&path, "tokens")?,
            first_loss: maybe("first_loss"),
            best: maybe("best"),
            stale: checkpoint.entry(&path, "stale")?,
        };
        let device = settings.device().autodiff();
        let model = settings.model.build_with(checkpoint.take("model."), &device)?;
        let board = tensorboard::Writer::resume(folder.path(), progress.step)?;
        let (batches, valid) = splits(&settings, &corpus)?;
        let mut trainer = Self {
            learner: Learner::with_seed(model, &settings.training, settings.seed),
            journal: Journal::open(&folder.metrics())?,
            settings,
            folder,
            corpus,
            batches,
            valid,
            progress,
            board,
            device,
            tokenizer,
            _lock: lock,
        };
        for slot in 0..trainer.learner.optimizer.slots_each() {
            for array in checkpoint.take(&format!("slot{slot}.")) {
                trainer.learner.optimizer.slots.entry(array.name).or_default().push(array.values);
            }
        }
        let adapters = checkpoint.take("adapter.");
        if let Some(all) = &mut trainer.learner.trainable.adapters {
            all.restore(adapters)
                .map_err(|found| Error::Checkpoint { path: path.clone(), found })?;
            trainer.learner.merge_adapters();
        }
        trainer.recall(checkpoint.take("memory."));
        trainer.journal.truncate_after(progress.step)?;
        trainer.folder.save_format()?;
        trainer.folder.save_settings(&trainer.settings)?;
        Ok(trainer)
    }

    /// Writes `model.safetensors`.
    pub(super) fn keep(&self, model: &Model) -> Result<(), Error> {
        let metadata = BTreeMap::from([
            ("step".into(), self.progress.step.to_string()),
            (TOKENIZER.into(), self.tokenizer.clone()),
        ]);
        let views = model.views();
        let trainable = &self.learner.trainable;
        if let Some(adapters) = &trainable.adapters {
            // What is adapted stays as it was, and is written once.
            if !self.folder.model().exists() {
                let arrays = views.iter().map(|view| based(adapters, "", view)).collect();
                checkpoint::save(&self.folder.model(), arrays, &metadata)?;
            }
            let whole: Vec<&ParameterView> =
                views.iter().filter(|view| trainable.is_updated(&view.name)).collect();
            return adapter_file::save(&self.folder, adapters, &whole, metadata);
        }
        let arrays = views.iter().map(|view| array("", view)).collect();
        checkpoint::save(&self.folder.model(), arrays, &metadata)
    }

    /// Writes `last.safetensors`, and `model.safetensors` if there is none yet.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        self.journal.sync()?;
        let views = self.learner.model().views();
        let adapters = self.learner.trainable.adapters.as_ref();
        let mut arrays: Vec<Array> = views
            .iter()
            .map(|view| match adapters {
                Some(adapters) => based(adapters, "model.", view),
                None => array("model.", view),
            })
            .collect();
        if let Some(adapters) = adapters {
            for matrix in adapters.arrays("") {
                let slots = self.learner.optimizer.slots.get(&matrix.name).into_iter().flatten();
                arrays.extend(slots.enumerate().map(|(slot, values)| Array {
                    name: format!("slot{slot}.{}", matrix.name),
                    shape: matrix.shape,
                    values: values.as_slice().into(),
                }));
                arrays.push(Array { name: format!("adapter.{}", matrix.name), ..matrix });
            }
        }
        for view in &views {
            let slots = self.learner.optimizer.slots.get(&view.name).into_iter().flatten();
            arrays.extend(slots.enumerate().map(|(slot, values)| Array {
                values: values.as_slice().into(),
                ..array(&format!("slot{slot}."), view)
            }));
        }
        let segments = self.segments();
        arrays.extend(segments.iter().map(|(name, shape, states)| Array {
            name: name.clone(),
            shape,
            values: states.values().into(),
        }));
        let Progress { step, tokens, first_loss, best, stale } = self.progress;
        let mut metadata = BTreeMap::from([
            ("step".into(), step.to_string()),
            ("tokens".into(), tokens.to_string()),
            ("stale".into(), stale.to_string()),
            ("fingerprint".into(), self.corpus.fingerprint().to_string()),
            (TOKENIZER.into(), self.tokenizer.clone()),
        ]);
        metadata.extend(first_loss.map(|loss| ("first_loss".into(), loss.to_string())));
        metadata.extend(best.map(|loss| ("best".into(), loss.to_string())));
        checkpoint::save(&self.folder.last(), arrays, &metadata)?;
        if !self.folder.model().exists() {
            self.keep(self.learner.model())?;
        }
        Ok(())
    }

    /// Name, shape and values of the hidden states kept from the segments before.
    fn segments(&self) -> Vec<(String, [usize; 3], Operand)> {
        let layers =
            self.learner.segments.iter().flat_map(|segments| segments.layers.iter().enumerate());
        layers
            .filter_map(|(layer, states)| {
                let states = states.clone()?;
                let (name, shape) = (format!("memory.{layer}"), states.dims());
                Some((name, shape, Operand::copied(states)))
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

/// A parameter as it was before its adapter.
fn based<'a>(adapters: &'a Adapters, beginning: &str, view: &'a ParameterView) -> Array<'a> {
    let array = array(beginning, view);
    match adapters.by_name.get(&view.name) {
        Some(adapter) => Array { values: adapter.base.as_slice().into(), ..array },
        None => array,
    }
}

fn array<'a>(beginning: &str, view: &'a ParameterView) -> Array<'a> {
    let name = format!("{beginning}{}", view.name);
    Array { name, shape: &view.shape, values: view.values().into() }
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
