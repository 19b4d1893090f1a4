//! What a run leaves behind at every checkpoint, and how it goes on from it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use burn::tensor::{Tensor, TensorData};
use whatwhere_attention::bridge::Operand;
use whatwhere_data::Corpus;
use whatwhere_transformer::{Model, Parameter, ParameterView};

use super::{Progress, Records, Trainer, splits};
use crate::{
    Error, Folder, RunSettings,
    checkpoint::{self, Array, Checkpoint},
    finetune::{Base, Transfer, adapter_file, lora::Adapters},
    learner::Learner,
    lock::Lock,
    memory::Memory,
    ranks::{
        self, Alone, Ranks,
        sharing::{Slots, broadcast_model},
    },
    tensorboard,
};

/// The entry of a checkpoint's metadata that holds the hash of the run's `tokenizer.json`.
pub(crate) const TOKENIZER: &str = "tokenizer";

impl Trainer {
    /// Goes on from the last checkpoint of a run. The corpus must be the one it began with.
    pub fn resume(settings: RunSettings, corpus: Corpus, folder: Folder) -> Result<Self, Error> {
        Self::resume_among(Arc::new(Alone), settings, corpus, folder)
    }

    /// [`Self::resume`] as one of several ranks, as many as there are now; only the first needs the folder. All come to the
    /// same end: where one cannot go on, the others return [`Error::Rank`].
    pub fn resume_among(
        ranks: Arc<dyn Ranks>,
        mut settings: RunSettings,
        corpus: Corpus,
        folder: Folder,
    ) -> Result<Self, Error> {
        let is_first = ranks.rank() == 0;
        let left = is_first.then(|| Left::read(&mut settings, &corpus, &folder));
        let found = left.transpose().and_then(|left| {
            settings.resolve_for(&corpus)?;
            ranks::check(&settings, ranks.size())?;
            Memory::of_rank(&settings, ranks.size())?.check()?;
            let device = settings.device().autodiff();
            let (left, model) = match left {
                None => (None, settings.model.build(settings.seed, &device)?),
                Some(mut left) => {
                    let parameters = left.checkpoint.take("model.");
                    (Some(left), settings.model.build_with(parameters, &device)?)
                }
            };
            Ok((left, model, splits(&settings, &corpus)?, device))
        });
        let (left, model, (batches, valid), device) = ranks::agree(&*ranks, found)?;
        ranks::compare(&*ranks, corpus.fingerprint(), settings.training.precision)?;
        let (records, progress, mut checkpoint) = match left {
            None => (None, Progress::default(), Checkpoint::default()),
            Some(Left { records, progress, checkpoint }) => (Some(records), progress, checkpoint),
        };
        let model = broadcast_model(&*ranks, model)?;
        let progress = progress.broadcast(&*ranks)?;
        let learner = Learner::among(ranks.clone(), model, &settings.training, settings.seed);
        let mut trainer = Self {
            settings,
            folder,
            corpus,
            learner,
            batches,
            valid,
            progress,
            records,
            device,
            ranks,
        };
        trainer.remember(&mut checkpoint)?;
        trainer.recall(checkpoint.take("memory."));
        // Rank 0 alone writes, and all hear whether it could.
        let saved = trainer.save_settings();
        ranks::agree(&*trainer.ranks, saved)?;
        Ok(trainer)
    }

    /// Writes all that a new run has, last its settings: a folder with them is a run that can be resumed.
    ///
    /// Before the first update nothing in it waits for other ranks.
    pub(super) fn save_first(&mut self, from: Option<(&Base, &Transfer)>) -> Result<(), Error> {
        self.save()?;
        if let Some((base, transfer)) = from {
            transfer.save(&self.folder)?;
            if !base.new_embeddings {
                base.hand_down_import(&self.folder)?;
            }
        }
        self.save_settings()
    }

    /// Writes the settings, and takes back records of updates that are not behind the weights.
    fn save_settings(&mut self) -> Result<(), Error> {
        let Some(records) = &mut self.records else { return Ok(()) };
        records.journal.truncate_after(self.progress.step)?;
        self.folder.save_format()?;
        self.folder.save_settings(&self.settings)
    }

    /// Gives the learner what a checkpoint has of its optimizer and adapters; ranks but the first have an empty one.
    fn remember(&mut self, checkpoint: &mut Checkpoint) -> Result<(), Error> {
        let path = self.folder.last();
        let broken = |found| Error::Checkpoint { path: path.clone(), found };
        let learner = &mut self.learner;
        let mut slots: HashMap<String, Vec<Vec<f32>>> = HashMap::new();
        for slot in 0..learner.optimizer.slots_each() {
            for array in checkpoint.take(&format!("slot{slot}.")) {
                slots.entry(array.name).or_default().push(array.values);
            }
        }
        match self.ranks.size() {
            1 => learner.optimizer.slots = slots,
            // Nothing is remembered before the first update.
            _ if self.progress.step == 0 => {}
            _ => learner.scatter_slots(&slots).map_err(|e| match e {
                Error::Settings(found) => broken(found),
                e => e,
            })?,
        }
        let arrays = checkpoint.take("adapter.");
        if let Some(adapters) = &mut learner.trainable.adapters {
            let restored = match self.ranks.rank() {
                0 => adapters.restore(arrays).map_err(broken),
                _ => Ok(()),
            };
            ranks::agree(&*self.ranks, restored)?;
            learner.broadcast_adapters()?;
            learner.merge_adapters();
        }
        Ok(())
    }

    /// Writes `model.safetensors`.
    pub(super) fn keep(&self, model: &Model) -> Result<(), Error> {
        let Some(records) = &self.records else { return Ok(()) };
        let metadata = BTreeMap::from([
            ("step".into(), self.progress.step.to_string()),
            (TOKENIZER.into(), records.tokenizer.clone()),
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

    /// Writes `last.safetensors`, and `model.safetensors` if there is none yet. What ranks remember goes to the first, so
    /// that files do not depend on their number.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        let slots = match self.progress.step {
            0 => Slots::Own(&self.learner.optimizer.slots),
            _ => self.learner.gather_slots()?,
        };
        let Some(records) = &self.records else { return Ok(()) };
        records.journal.sync()?;
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
                let slots = slots.of(&matrix.name).into_iter().enumerate();
                arrays.extend(slots.map(|(slot, values)| Array {
                    name: format!("slot{slot}.{}", matrix.name),
                    shape: matrix.shape,
                    values: values.into(),
                }));
                arrays.push(Array { name: format!("adapter.{}", matrix.name), ..matrix });
            }
        }
        for view in &views {
            let slots = slots.of(&view.name).into_iter().enumerate();
            arrays.extend(slots.map(|(slot, values)| Array {
                values: values.into(),
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
            (TOKENIZER.into(), records.tokenizer.clone()),
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

/// What a run has left in its folder.
struct Left {
    records: Records,
    progress: Progress,
    checkpoint: Checkpoint,
}

impl Left {
    fn read(settings: &mut RunSettings, corpus: &Corpus, folder: &Folder) -> Result<Self, Error> {
        let begun = folder.load_settings()?;
        let lock = Lock::acquire(folder.path())?;
        settings.resolve_for(corpus)?;
        check_same(&begun, settings)?;
        let path = folder.last();
        let checkpoint = Checkpoint::load(&path)?;
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
        let board = tensorboard::Writer::resume(folder.path(), progress.step)?;
        let records = Records::new(folder, board, tokenizer, lock)?;
        Ok(Self { records, progress, checkpoint })
    }
}

impl Progress {
    /// That of rank 0.
    fn broadcast(self, ranks: &dyn Ranks) -> Result<Self, Error> {
        let Self { step, tokens, first_loss, best, stale } = self;
        let (first, lowest) = (first_loss.unwrap_or_default(), best.unwrap_or_default());
        let mut all = [
            step,
            tokens,
            stale,
            u64::from(first_loss.is_some()),
            first.to_bits(),
            u64::from(best.is_some()),
            lowest.to_bits(),
        ];
        ranks.broadcast(bytemuck::cast_slice_mut(&mut all))?;
        let [step, tokens, stale, has_first, first, has_best, best] = all;
        let maybe = |has: u64, bits: u64| (has == 1).then(|| f64::from_bits(bits));
        let (first_loss, best) = (maybe(has_first, first), maybe(has_best, best));
        Ok(Self { step, tokens, first_loss, best, stale })
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
