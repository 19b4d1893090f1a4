//! Settings of a run: model, data and training in one file.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_data::{
    BatchSize, Corpus, DataSettings, Objective, Source,
    settings::{Masked, Translate},
};
use whatwhere_kernels::Precision;
use whatwhere_settings::{Refuses, schema::in_order};
use whatwhere_transformer::{Family, ModelSettings, Site};

use crate::{
    Error, changes,
    classification::BestBy,
    finetune::Lora,
    optimizer::Optimizer,
    schedule::{Cosine, Schedule},
};

/// Everything that makes a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct RunSettings {
    /// Of first weights, data order and dropout; default 0.
    pub seed: u64,
    /// How it is trained; the table has defaults for everything.
    pub training: TrainingSettings,
    /// What it learns from; default the text that comes with the program.
    pub data: DataSettings,
    /// What is trained; default a decoder of six layers.
    pub model: ModelSettings,
}

/// How a model is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct TrainingSettings {
    /// Updates of the weights; default 1000.
    pub steps: u64,
    /// Sequences of one batch, or `{ tokens = 4096 }` for pairs; default 16.
    pub batch: BatchSize,
    /// Tokens of one sequence, longer ones are cut; default 256.
    pub length: usize,
    /// Batches summed for one update, which ranks share; default 1.
    pub accumulate: u64,
    /// The highest learning rate; default 0.001.
    pub lr: f64,
    /// How the rate changes; default `cosine` with 100 updates of warm-up.
    pub schedule: Schedule,
    /// What turns gradients into updates; default `adamw`.
    pub optimizer: Optimizer,
    /// Maximum global gradient norm; longer gradients are scaled down to it. 0 leaves them. Default 1.
    pub clip: f64,
    /// What products are computed in, forward and backward: `bf16` rounds their factors and adds up in f32, which processors with
    /// AMX or AVX512-BF16 do faster; everything else, and the weights that are saved, is f32. Default `f32`.
    pub precision: Precision,
    /// Probability spread evenly over all tokens when learning; default 0.
    pub label_smoothing: f64,
    /// Updates between two evaluations; default 100.
    pub evaluate_every: u64,
    /// Batches of an evaluation; 0 takes all. Default 20.
    pub evaluate_batches: usize,
    /// Updates between two records; default 10.
    pub log_every: u64,
    /// Updates between two checkpoints besides those at evaluations; 0 saves at evaluations only. Default 0.
    pub checkpoint_every: u64,
    /// Which figure of the validation makes a checkpoint the best, whose weights are kept; default `loss`.
    pub best_by: BestBy,
    /// Early stopping: evaluations without a better figure after which training ends; 0 goes on. Default 0.
    pub patience: u64,
    /// Parameters that stay as they are, by patterns of their names such as `"embedding.*"`; default none.
    pub freeze: Vec<String>,
    /// Low-rank adapters (LoRA) in place of whole projections; default none.
    pub lora: Option<Lora>,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self {
            steps: 1000,
            batch: BatchSize::Rows(16),
            length: 256,
            accumulate: 1,
            lr: 1e-3,
            schedule: Schedule::Cosine(Cosine::default()),
            optimizer: Optimizer::default(),
            clip: 1.0,
            precision: Precision::F32,
            label_smoothing: 0.0,
            evaluate_every: 100,
            evaluate_batches: 20,
            log_every: 10,
            checkpoint_every: 0,
            best_by: BestBy::default(),
            patience: 0,
            freeze: Vec::new(),
            lora: None,
        }
    }
}

impl RunSettings {
    /// Reads and checks TOML, after setting `key=value` pairs in it: `model.attention.position=polar`, or by its short
    /// name ([`full_key`](crate::full_key)) `position=polar`.
    pub fn read(text: &str, changes: &[String]) -> Result<Self, Error> {
        let mut settings = changes::read(text, changes)?;
        settings.choose_objective();
        settings.check()?;
        Ok(settings)
    }

    /// The objective that the family has by default where the data leave it open: an encoder is a masked language
    /// model, an encoder-decoder answers a task as it translates.
    fn choose_objective(&mut self) {
        let data = &mut self.data;
        let has_own = matches!(data.source, Source::Pairs(_) | Source::Labeled(_));
        if data.objective.is_some() || has_own {
            return;
        }
        data.objective = match self.model.family {
            Family::Decoder => None,
            Family::Encoder => Some(Masked::default().into()),
            Family::EncoderDecoder => data.source.task().map(|_| Translate {}.into()),
        };
    }

    /// The settings as TOML, every value written out.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(Error::unreadable)
    }

    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        let training = &self.training;
        for (setting, found) in [
            ("training.steps", training.steps),
            ("training.length", training.length as u64),
            ("training.accumulate", training.accumulate),
            ("training.evaluate_every", training.evaluate_every),
            ("training.log_every", training.log_every),
        ] {
            if found == 0 {
                return Err(Error::setting(setting, 0, "expected at least 1"));
            }
        }
        for (setting, found) in [("training.lr", training.lr), ("training.clip", training.clip)] {
            if !(found >= 0.0 && found.is_finite()) {
                return Err(Error::setting(setting, found, "expected 0 or more"));
            }
        }
        if !(0.0..1.0).contains(&training.label_smoothing) {
            let reason = "expected at least 0 and below 1";
            return Err(Error::setting(
                "training.label_smoothing",
                training.label_smoothing,
                reason,
            ));
        }
        if training.precision != Precision::F32 && self.model.recurrent.is_some() {
            let reason = "a recurrence computes in f32; leave it out";
            return Err(Error::setting("training.precision", "bf16", reason));
        }
        training.schedule.check()?;
        training.optimizer.check()?;
        if let Some(lora) = &training.lora {
            lora.check()?;
            if !training.freeze.is_empty() {
                let reason = "adapters leave everything else as it was; name what learns beside them in training.lora.also";
                return Err(Error::setting(
                    "training.freeze",
                    format!("{:?}", training.freeze),
                    reason,
                ));
            }
        }
        self.data.check()?;
        self.model.check()?;
        self.check_objective()?;
        self.check_classes()
    }

    /// Refuses an objective whose answers the model would see, or that its stacks cannot be asked for.
    fn check_objective(&self) -> Result<(), Error> {
        let objective = self.data.objective();
        let reason = match (self.model.family, &objective) {
            (
                Family::Decoder,
                Objective::NextToken(_) | Objective::Masked(_) | Objective::Classify(_),
            )
            | (Family::Encoder, Objective::Masked(_) | Objective::Classify(_))
            | (Family::EncoderDecoder, Objective::Translate(_)) => return Ok(()),
            (Family::Decoder, Objective::Prefix(_)) => match self.refused_prefix()? {
                None => return Ok(()),
                Some(reason) => reason,
            },
            (Family::Encoder, Objective::NextToken(_) | Objective::Prefix(_)) => {
                "an encoder sees the token it would have to predict; use masked, or model.family = \"decoder\""
            }
            (Family::Encoder, Objective::Translate(_)) => {
                "an encoder sees the translation it would have to predict; use model.family = \"encoder_decoder\""
            }
            (Family::Decoder, Objective::Translate(_)) => {
                "a decoder alone reads no source; use model.family = \"encoder_decoder\""
            }
            (Family::EncoderDecoder, Objective::Classify(_)) => {
                "a text is read by one stack; use model.family = \"encoder\" or \"decoder\""
            }
            (Family::EncoderDecoder, _) => {
                "an encoder-decoder needs a source and a target; use translate with pairs or a task, or model.family = \"decoder\""
            }
        };
        Err(Error::setting("data.objective", objective.name(), reason))
    }

    /// Refuses what only makes sense where classes are told, or does not there.
    fn check_classes(&self) -> Result<(), Error> {
        let model = &self.model;
        if let Objective::Classify(classify) = self.data.objective() {
            let known = classify.classes.len();
            if model.classes != known {
                let reason = match known {
                    0 => "follows from the data; leave it out".into(),
                    known => format!("data.objective names {known} classes; leave it out"),
                };
                if model.classes != 0 {
                    return Err(Error::setting("model.classes", model.classes, reason));
                }
            }
            if model.segment_memory > 0 {
                let reason = "a text has no segments before it; use 0";
                return Err(Error::setting("model.segment_memory", model.segment_memory, reason));
            }
            return Ok(());
        }
        let reason = "only data.objective = \"classify\" has classes; leave it out";
        if model.classes > 0 {
            return Err(Error::setting("model.classes", model.classes, reason));
        }
        if let Some(pooling) = model.pooling {
            let found = format!("{pooling:?}").to_lowercase();
            return Err(Error::setting("model.pooling", found, reason));
        }
        match self.training.best_by {
            BestBy::MacroF1 => Err(Error::setting("training.best_by", "macro_f1", reason)),
            BestBy::Loss | BestBy::Accuracy => Ok(()),
        }
    }

    /// Why a prefix cannot be seen in both directions.
    fn refused_prefix(&self) -> Result<Option<&'static str>, Error> {
        if self.model.recurrent.is_some() {
            return Ok(Some(
                "a recurrence reads a prefix from the left as everything else; use next_token",
            ));
        }
        if self.model.segment_memory > 0 {
            return Ok(Some(
                "each segment would have a prefix of its own; use model.segment_memory = 0",
            ));
        }
        for layer in 0..self.model.decoder_depth() {
            let attention = self.model.attention(Site::Decoder, layer)?;
            if !attention.mixing.has_scores() {
                return Ok(Some(
                    "linear mixing, as any with a state, sums all keys up to the query; use mixing = \"softmax\"",
                ));
            }
            if attention.pattern.needs_documents() {
                return Ok(Some(
                    "a prefix is seen by all, across documents; use a pattern without document",
                ));
            }
        }
        Ok(None)
    }

    /// Learns from this file or folder instead; of pairs a file is a table with both sides.
    pub fn read_from(&mut self, path: &Path) -> Result<(), Error> {
        match &mut self.data.source {
            Source::Text(text) => (text.path, text.valid, text.test) = (path.into(), None, None),
            Source::Fasta(fasta) => {
                (fasta.path, fasta.valid, fasta.test) = (path.into(), None, None);
            }
            Source::Midi(midi) => (midi.path, midi.valid, midi.test) = (path.into(), None, None),
            Source::Labeled(labeled) if path.is_dir() => *labeled = labeled.in_folder(path)?,
            Source::Labeled(labeled) => {
                (labeled.path, labeled.valid, labeled.test) = (path.into(), None, None);
            }
            Source::Chorales(chorales) if path.is_dir() => *chorales = chorales.in_folder(path)?,
            Source::Chorales(chorales) => chorales.path = path.into(),
            Source::ListOps(listops) if path.is_dir() => *listops = listops.in_folder(path)?,
            Source::ListOps(listops) => listops.path = Some(path.into()),
            Source::Pairs(pairs) if path.is_dir() => *pairs = pairs.in_folder(path)?,
            Source::Pairs(pairs) => {
                *pairs = whatwhere_data::settings::Pairs {
                    source: path.into(),
                    source_field: pairs.source_field.clone(),
                    target_field: pairs.target_field.clone(),
                    ..Default::default()
                };
            }
            task => {
                let reason = "makes its examples itself; leave --data out";
                return Err(Error::setting("data.source", task.name(), reason));
            }
        }
        Ok(())
    }

    /// [`Self::resolve`] by a corpus, which also knows the classes, and the ids of tokens that patterns name by their text.
    pub fn resolve_for(&mut self, corpus: &Corpus) -> Result<(), Error> {
        if let Objective::Classify(mut classify) = self.data.objective() {
            classify.classes = corpus.classes().to_vec();
            self.model.classes = classify.classes.len();
            self.model.pooling = Some(self.model.pools());
            self.data.objective = Some(classify.into());
        }
        let tokenizer = corpus.tokenizer();
        let id_of = |text: &str| {
            let ids = tokenizer.encode(text).unwrap_or_default();
            match ids[..] {
                [id] if Some(id) != tokenizer.unknown() => Ok(id),
                _ => tokenizer.id(text).ok_or_else(|| match ids.len() {
                    0 | 1 => {
                        "no token of this tokenizer; expected the text of one, or its id".into()
                    }
                    several => format!(
                        "{several} tokens of this tokenizer; expected the text of one, or its id"
                    ),
                }),
            }
        };
        self.model.resolve_tokens(&id_of, tokenizer.vocabulary())?;
        self.resolve(corpus.vocabulary())
    }

    /// Writes out what the settings leave to the data, and where the data are from any folder.
    pub fn resolve(&mut self, vocabulary: usize) -> Result<(), Error> {
        self.data.make_absolute()?;
        if self.model.vocabulary != 0 && self.model.vocabulary < vocabulary {
            let reason = "fewer than the tokenizer has; leave it out to take as many";
            return Err(Error::setting("model.vocabulary", self.model.vocabulary, reason));
        }
        if self.model.vocabulary == 0 {
            self.model.vocabulary = vocabulary;
        }
        // A run says what it was given, whatever is the default later.
        self.model.scale_embeddings = Some(self.model.scales_embeddings()?);
        self.check()
    }
}

/// Sets `path.to.key=value` in a table. A value that is not TOML is taken as a string.
pub fn set(table: &mut toml::Table, change: &str) -> Result<(), Error> {
    let wrong = |reason: &str| Error::unreadable(format!("--set {change}: {reason}"));
    let (path, value) = change
        .split_once('=')
        .ok_or_else(|| wrong("expected key=value, such as training.steps=500"))?;
    let value = value.trim();
    let value = match toml::from_str::<toml::Table>(&format!("value = {value}")) {
        Ok(mut parsed) => parsed.remove("value").expect("the only key"),
        Err(_) => toml::Value::String(value.into()),
    };
    let mut keys: Vec<&str> = path.trim().split('.').collect();
    let last = keys.pop().filter(|key| !key.is_empty()).ok_or_else(|| wrong("the key is empty"))?;
    let mut at = table;
    for key in keys {
        let entry = at.entry(key).or_insert_with(|| toml::Table::new().into());
        // `position.base=…` after `position = "rotary"` keeps the choice.
        if let toml::Value::String(name) = entry {
            let name = std::mem::take(name);
            *entry = toml::Table::from_iter([("kind".into(), name.into())]).into();
        }
        at = entry
            .as_table_mut()
            .ok_or_else(|| wrong(&format!("{key} is a value, expected a table")))?;
    }
    at.insert(last.into(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_reach_every_depth() {
        let changes = [
            "training.steps=7".into(),
            "model.attention.position=polar".into(),
            "model.attention.pattern.kind=window".into(),
            "model.attention.pattern.left=9".into(),
            "seed=3".into(),
        ];
        let run = RunSettings::read("[model]\nwidth = 64", &changes).unwrap();
        assert_eq!((run.training.steps, run.seed, run.model.width), (7, 3, 64));
        let attention = run.model.attention(whatwhere_transformer::Site::Decoder, 0).unwrap();
        assert_eq!(attention.position[0].name(), "polar");
        assert_eq!(attention.pattern.reach(), Some(9));
    }

    #[test]
    fn short_names_reach_the_setting_called_so() {
        let changes = ["position=alibi", "kv_heads=2", "steps=7", "feed_forward=96"];
        let run = RunSettings::read("", &changes.map(Into::into)).unwrap();
        let attention = run.model.attention(whatwhere_transformer::Site::Decoder, 0).unwrap();
        assert_eq!(attention.position[0].name(), "alibi");
        assert_eq!((attention.kv_heads, run.training.steps), (Some(2), 7));
        assert_eq!(run.model.feed_forward, Some(96));
    }

    #[test]
    fn a_name_grows_into_a_table() {
        let text = "[model.attention]\nposition = 'rotary'";
        let run = RunSettings::read(text, &["model.attention.position.base=500.0".into()]).unwrap();
        let position = &run.model.attention["position"];
        assert_eq!(position["kind"].as_str(), Some("rotary"));
    }

    #[test]
    fn a_family_has_its_own_objective() {
        let objective = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|&change| change.into()).collect();
            RunSettings::read("", &changes).unwrap().data.objective().name()
        };
        assert_eq!(objective(&[]), "next_token");
        assert_eq!(objective(&["model.family=encoder"]), "masked");
        assert_eq!(objective(&["model.family=encoder", "data.source=copy"]), "masked");
        assert_eq!(objective(&["model.family=encoder_decoder", "data.source=copy"]), "translate");
        assert_eq!(objective(&["model.family=encoder_decoder", "data.source=pairs"]), "translate");
    }

    #[test]
    fn written_settings_read_back_the_same() {
        let run = RunSettings::default();
        assert_eq!(RunSettings::read(&run.to_toml().unwrap(), &[]).unwrap(), run);
    }

    #[test]
    fn refusals_name_what_was_found_and_what_would_be_right() {
        let cases = [
            ("stepz = 3", "", "unknown field `stepz`"),
            ("[training]\nstepz = 3", "", "unknown field `stepz`, expected one of `steps`"),
            ("", "training.steps", "expected key=value"),
            ("", "training.steps=0", "training.steps = 0: expected at least 1"),
            ("", "training.steps=many", "invalid type: string \"many\", expected u64"),
            ("", "training.steps.more=1", "steps is a value"),
            ("", "training.optimizer=adem", "unknown variant `adem`, expected one of"),
            ("", "training.label_smoothing=1.5", "training.label_smoothing = 1.5"),
            ("", "model.attention.position=rotry", "unknown variant `rotry`"),
            ("[model]\nfamily = 'encoder'", "data.objective=next_token", "use masked"),
            ("", "model.family=encoder_decoder", "data.objective = next_token"),
            ("", "data.objective={kind='masked',hidden=0.2}", "objective.hidden = 0.2"),
            ("", "stepz=3", "--set stepz=3: no setting is called stepz; there are"),
            ("", "dropout=0.1", "say which: model.dropout, model.attention.dropout"),
        ];
        for (text, change, expected) in cases {
            let text =
                if change == "training.steps.more=1" { "[training]\nsteps = 5" } else { text };
            let changes: Vec<String> =
                Some(change).filter(|c| !c.is_empty()).map(Into::into).into_iter().collect();
            let message = RunSettings::read(text, &changes).unwrap_err().to_string();
            assert!(message.contains(expected), "{text} {change}: {message}");
        }
    }
}
