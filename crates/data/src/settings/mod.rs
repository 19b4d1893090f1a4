//! Settings of a corpus, from one definition: what to read, how to cut it into tokens, what to predict.

mod folder;
mod objective;
mod source;
mod tokens;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::{Refuses, choice, schema::in_order};

pub(crate) use folder::{TEST, TRAIN, VALID};
pub use objective::{
    ClassWeights, Classify, Examples, Masked, NextToken, Prefix, Translate, WeightRule,
};
pub use source::{Chorales, Fasta, Labeled, Midi, Pairs, Text};
pub use tokens::{Bpe, Bytes, Characters, File, Kmers};

use crate::{
    Error, Result,
    task::{Addition, Copy, IndirectIndexing, ListOps, Pathfinder, Recall, Reverse, Sort, Task},
};

/// Everything that makes a corpus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct DataSettings {
    /// What is read or made; default a text without a path, which the caller supplies.
    pub source: Source,
    /// How text is cut into tokens; default `bytes` for text, `bpe` for pairs and labeled texts, `characters` for FASTA, which
    /// `kmers` suit too.
    /// Music and tasks have symbols of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<TokenizerSettings>,
    /// What is predicted; default `translate` for pairs, `classify` for labeled texts, otherwise by the family: `next_token` for a decoder, `masked` for an
    /// encoder, `translate` for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Share of the text kept for validation; default 0.1. Whole documents where they are many and alike; of documents that
    /// are more than a tenth of everything, the tail. Not used where the source names a file for it.
    pub valid_share: f64,
    /// Share kept for the test, after the one for validation; default 0.
    pub test_share: f64,
    /// How many examples a task has; default 1,000,000 for training and 10,000 for each of the others.
    pub examples: Examples,
    /// Folder for files of tokens, which are then read from disk instead of held in memory; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
}

impl Default for DataSettings {
    fn default() -> Self {
        Self {
            source: Text::default().into(),
            tokenizer: None,
            objective: None,
            valid_share: 0.1,
            test_share: 0.0,
            examples: Examples::default(),
            cache: None,
        }
    }
}

impl DataSettings {
    /// Reads and checks TOML.
    pub fn from_toml(text: &str) -> Result<Self> {
        let settings: Self = toml::from_str(text).map_err(Error::unreadable)?;
        settings.check()?;
        Ok(settings)
    }

    /// The settings of a source, with defaults for the rest.
    pub fn of(source: impl Into<Source>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }

    /// Refuses settings out of range, and choices that have no meaning together.
    pub fn check(&self) -> Result<()> {
        for (setting, share) in [("valid_share", self.valid_share), ("test_share", self.test_share)]
        {
            if !(0.0..1.0).contains(&share) {
                return Err(Error::setting(setting, share, "a share is at least 0 and below 1"));
            }
        }
        if self.valid_share + self.test_share >= 1.0 {
            let reason = format!(
                "with test_share = {} nothing is left for training; expected a sum below 1",
                self.test_share
            );
            return Err(Error::setting("valid_share", self.valid_share, reason));
        }
        if let (Some(_), Some(_)) = (&self.tokenizer, self.source.music()) {
            let reason = "music has tokens of its own, pitches or events; leave the tokenizer out";
            return Err(Error::setting("tokenizer", self.tokenizer_name(), reason));
        }
        if let Source::Midi(midi) = &self.source {
            midi.check()?;
        }
        if let Some(task) = self.source.task() {
            let is_known = matches!(self.tokenizer, None | Some(TokenizerSettings::File(_)));
            if self.tokenizer.is_some() && !(self.source.takes_tokens() && is_known) {
                let reason = "a task has symbols of its own; leave the tokenizer out";
                return Err(Error::setting("tokenizer", self.tokenizer_name(), reason));
            }
            task.check()?;
        }
        if let Some(TokenizerSettings::Bpe(Bpe { vocabulary })) = self.tokenizer
            && vocabulary < SMALLEST_BPE
        {
            let reason =
                format!("expected at least {SMALLEST_BPE}: 256 bytes and the special tokens");
            return Err(Error::setting("tokenizer.vocabulary", vocabulary, reason));
        }
        if let Some(TokenizerSettings::Kmers(Kmers { length })) = self.tokenizer
            && !(1..=8).contains(&length)
        {
            let reason = "expected 1 to 8: there are 4 to its power of them";
            return Err(Error::setting("tokenizer.length", length, reason));
        }
        self.check_objective()
    }

    /// Makes all paths absolute, so that they are found from any folder.
    pub fn make_absolute(&mut self) -> Result<()> {
        let mut paths: Vec<&mut PathBuf> = self.cache.iter_mut().collect();
        if let Some(TokenizerSettings::File(file)) = &mut self.tokenizer {
            paths.push(&mut file.path);
        }
        match &mut self.source {
            Source::Text(Text { path, valid, test, .. })
            | Source::Midi(Midi { path, valid, test, .. })
            | Source::Labeled(Labeled { path, valid, test, .. })
            | Source::Fasta(Fasta { path, valid, test, .. }) => {
                paths.push(path);
                paths.extend(valid.iter_mut().chain(test));
            }
            Source::Chorales(Chorales { path }) => paths.push(path),
            Source::ListOps(ListOps { path, .. }) => paths.extend(path),
            Source::Pairs(pairs) => {
                paths.extend([&mut pairs.source, &mut pairs.target]);
                paths.extend(pairs.valid_source.iter_mut().chain(&mut pairs.valid_target));
                paths.extend(pairs.test_source.iter_mut().chain(&mut pairs.test_target));
            }
            _ => {}
        }
        for path in paths.into_iter().filter(|path| !path.as_os_str().is_empty()) {
            let found = path.canonicalize().or_else(|_| std::path::absolute(&*path));
            *path = found.map_err(Error::file(&*path))?;
        }
        Ok(())
    }

    /// What is predicted, with the default of the source resolved.
    pub fn objective(&self) -> Objective {
        match (&self.objective, &self.source) {
            (Some(objective), _) => objective.clone(),
            (None, Source::Pairs(_)) => Objective::Translate(Translate {}),
            (None, Source::Labeled(_)) => Objective::Classify(Classify::default()),
            (None, _) => Objective::NextToken(NextToken {}),
        }
    }

    /// How text is cut into tokens, with the default of the source resolved.
    pub fn tokenizer(&self) -> TokenizerSettings {
        match (&self.tokenizer, &self.source) {
            (Some(tokenizer), _) => tokenizer.clone(),
            (None, Source::Pairs(_) | Source::Labeled(_)) => TokenizerSettings::Bpe(Bpe::default()),
            (None, Source::Fasta(_)) => TokenizerSettings::Characters(Characters {}),
            (None, _) => TokenizerSettings::Bytes(Bytes {}),
        }
    }

    fn tokenizer_name(&self) -> &'static str {
        self.tokenizer().name()
    }

    fn check_objective(&self) -> Result<()> {
        let (objective, source) = (self.objective(), self.source.name());
        let translates = matches!(objective, Objective::Translate(_));
        let classifies = matches!(objective, Objective::Classify(_));
        let (fits, right) = match &self.source {
            Source::Pairs(_) => (translates, "use translate"),
            Source::Labeled(_) => {
                (classifies, "use classify; without labels, text reads the same files")
            }
            source => match source.task() {
                None if classifies => (false, "texts with labels are read by the source labeled"),
                None => (!translates, "use next_token, prefix or masked"),
                Some(task) => (
                    !classifies || task.classes().is_some(),
                    "its answers are no classes; use next_token, prefix, masked or translate",
                ),
            },
        };
        if !fits {
            let reason = format!("has no meaning for {source}; {right}");
            return Err(Error::setting("objective", objective.name(), reason));
        }
        match &objective {
            Objective::Masked(masked) => masked.check(),
            Objective::Prefix(prefix) => prefix.check(),
            Objective::Classify(classify) => classify.check(),
            Objective::NextToken(_) | Objective::Translate(_) => Ok(()),
        }
    }
}

const SMALLEST_BPE: usize = 261; // 256 bytes and at most five special tokens

choice! {
    /// What is read or made.
    Source {
        Text => "text",
        Pairs => "pairs",
        Labeled => "labeled",
        Chorales => "chorales",
        Midi => "midi",
        Fasta => "fasta",
        IndirectIndexing => "indirect_indexing",
        Copy => "copy",
        Reverse => "reverse",
        Sort => "sort",
        Recall => "recall",
        ListOps => "listops",
        Addition => "addition",
        Pathfinder => "pathfinder",
    }
}

choice! {
    /// How text is cut into tokens.
    TokenizerSettings {
        Bytes => "bytes",
        Characters => "characters",
        Kmers => "kmers",
        Bpe => "bpe",
        File => "file",
    }
}

choice! {
    /// What is predicted.
    Objective {
        NextToken => "next_token",
        Prefix => "prefix",
        Masked => "masked",
        Translate => "translate",
        Classify => "classify",
    }
}

impl Objective {
    /// Whether tokens are predicted from those before them, so that the last target lies behind what is read.
    pub(crate) fn looks_ahead(&self) -> bool {
        matches!(self, Self::NextToken(_) | Self::Prefix(_))
    }
}

impl Source {
    /// Whether it is text, which any tokenizer may cut: that of another run, for example.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Pairs(_) | Self::Labeled(_) | Self::Fasta(_))
    }

    /// Whether it can be cut into the tokens of another run: text, and examples that are read and not made.
    pub fn takes_tokens(&self) -> bool {
        self.is_text() || matches!(self, Self::ListOps(ListOps { path: Some(_), .. }))
    }

    /// The task, where the source is one.
    pub fn task(&self) -> Option<&dyn Task> {
        match self {
            Self::Text(_) | Self::Pairs(_) | Self::Labeled(_) | Self::Fasta(_) => None,
            Self::Chorales(_) | Self::Midi(_) => None,
            Self::IndirectIndexing(task) => Some(task),
            Self::Copy(task) => Some(task),
            Self::Reverse(task) => Some(task),
            Self::Sort(task) => Some(task),
            Self::Recall(task) => Some(task),
            Self::ListOps(task) => Some(task),
            Self::Addition(task) => Some(task),
            Self::Pathfinder(task) => Some(task),
        }
    }

    /// The same without what only training reads otherwise: two of them are held out alike.
    pub fn unaugmented(&self) -> Self {
        let mut source = self.clone();
        if let Self::Midi(midi) = &mut source {
            (midi.transpose, midi.stretch) = (0, Vec::new());
        }
        source
    }

    /// The most letters, digits, pairs, symbols or dashes of a path that a task asks about.
    pub fn longest(&self) -> Option<usize> {
        Some(match self {
            Self::Text(_) | Self::Pairs(_) | Self::Labeled(_) | Self::Fasta(_) => return None,
            Self::Chorales(_) | Self::Midi(_) => return None,
            Self::IndirectIndexing(task) => task.longest,
            Self::Copy(task) => task.longest,
            Self::Reverse(task) => task.longest,
            Self::Sort(task) => task.longest,
            Self::Recall(task) => task.longest,
            Self::ListOps(task) => task.longest,
            Self::Addition(task) => task.longest,
            Self::Pathfinder(task) => task.dashes,
        })
    }

    /// The same task with examples of one length; expressions of `listops` have up to a fifth less. Nothing if examples are
    /// read and not made.
    pub fn at_length(&self, length: usize) -> Option<Self> {
        let mut source = self.clone();
        let (shortest, longest) = match &mut source {
            Self::Text(_) | Self::Pairs(_) | Self::Labeled(_) | Self::Fasta(_) => return None,
            Self::Chorales(_) | Self::Midi(_) => return None,
            Self::ListOps(ListOps { path: Some(_), .. }) => return None,
            Self::Pathfinder(task) => {
                task.dashes = length;
                return Some(source);
            }
            Self::ListOps(task) => {
                (task.shortest, task.longest) = (length - length / 5, length);
                return Some(source);
            }
            Self::IndirectIndexing(task) => (&mut task.shortest, &mut task.longest),
            Self::Copy(task) => (&mut task.shortest, &mut task.longest),
            Self::Reverse(task) => (&mut task.shortest, &mut task.longest),
            Self::Sort(task) => (&mut task.shortest, &mut task.longest),
            Self::Recall(task) => (&mut task.shortest, &mut task.longest),
            Self::Addition(task) => (&mut task.shortest, &mut task.longest),
        };
        (*shortest, *longest) = (length, length);
        Some(source)
    }
}
