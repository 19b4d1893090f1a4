//! A corpus: tokens of three splits, the tokenizer that made them, and what there is to say about them.

mod classes;
mod describe;
mod examples;
mod labeled;
mod pairs;
mod pieces;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use classes::Classes;
pub(crate) use describe::NAMED;
pub use describe::{Description, Part, Split};
pub(crate) use examples::example_random;
pub(crate) use labeled::LabeledTokens;
pub use pairs::Pair;
pub(crate) use pieces::Pieces;
use whatwhere_settings::Refuses;

use crate::{
    Error, Result, Watch,
    embedded::shakespeare,
    encode::{Encoded, Sorted, Texts},
    read::Document,
    settings::{DataSettings, Objective, Source, Text},
    task::{Example, ListOps},
    tokenizer::Tokenizer,
    tokens::Tokens,
};

/// Everything a run reads: tokens, tokenizer, objective. Clones share the data.
#[derive(Clone, Debug)]
pub struct Corpus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tokenizer: Tokenizer,
    objective: Objective,
    classes: Classes,
    /// What was left out, in words.
    notes: Vec<String>,
    content: Content,
    parts: BTreeMap<Split, Part>,
    fingerprint: u64,
    /// What a token is called.
    unit: &'static str,
}

/// What there is, by the way batches are made of it.
#[derive(Debug)]
pub(crate) enum Content {
    /// One run of tokens.
    Stream(BTreeMap<Split, Tokens>),
    /// Sentences and their translations.
    Pairs(BTreeMap<Split, Vec<Pair>>),
    /// Texts with a class each.
    Labeled(BTreeMap<Split, Vec<LabeledTokens>>),
    /// Sequences with a start and an end of their own.
    Pieces(Pieces),
    /// Examples made when they are asked for.
    Task(Source),
    /// Examples read from a file.
    Examples(BTreeMap<Split, Vec<Example>>),
}

impl Corpus {
    /// Reads the source, makes or loads the tokenizer, and encodes every split.
    pub fn load(settings: &DataSettings) -> Result<Self> {
        Self::load_watched(settings, &mut |_| ControlFlow::Continue(()))
    }

    /// [`Self::load`], heard and perhaps ended by somebody.
    pub fn load_watched(settings: &DataSettings, watch: Watch) -> Result<Self> {
        settings.check()?;
        let mut stream = |main, valid, test| {
            Self::stream(Sorted::new(main, valid, test, settings)?, settings, watch)
        };
        match &settings.source {
            Source::Text(text) => {
                let files =
                    |path: &PathBuf| Texts::Files { path: path.clone(), field: text.field.clone() };
                let (valid, test) = (text.valid.as_ref().map(files), text.test.as_ref().map(files));
                let main = match text.path.as_os_str().is_empty() {
                    true => given(vec![("tiny Shakespeare".into(), shakespeare())], false),
                    false => files(&text.path),
                };
                stream(main, valid, test)
            }
            Source::Fasta(fasta) => {
                present("source.path", &fasta.path)?;
                let files =
                    |path: &PathBuf| Texts::Fasta { path: path.clone(), upper: fasta.upper };
                let (valid, test) =
                    (fasta.valid.as_ref().map(files), fasta.test.as_ref().map(files));
                stream(files(&fasta.path), valid, test)
            }
            Source::Pairs(pairs) => Self::of_pairs(pairs, settings, watch),
            Source::Labeled(labeled) => Self::of_labeled(labeled, settings, watch),
            Source::Chorales(chorales) => Self::of_chorales(chorales, settings),
            Source::Midi(midi) => Self::of_midi(midi, settings, watch),
            Source::ListOps(ListOps { path: Some(path), .. }) => Self::of_listops(path, settings),
            _ => Self::of_task(settings),
        }
    }

    /// A corpus of texts that the caller has, each a document; only tokenizer, objective, shares and cache of the settings count.
    pub fn from_texts(texts: Vec<String>, settings: &DataSettings) -> Result<Self> {
        let name = |i: usize| format!("text {i}");
        let named = texts.into_iter().enumerate().map(|(i, text)| (name(i), text)).collect();
        Self::in_memory(named, false, settings)
    }

    /// [`Self::from_texts`] of texts with names, which decide what is held out: it stays so when the texts change.
    pub fn from_named_texts(texts: Vec<(String, String)>, settings: &DataSettings) -> Result<Self> {
        Self::in_memory(texts, true, settings)
    }

    fn in_memory(
        texts: Vec<(String, String)>,
        by_name: bool,
        settings: &DataSettings,
    ) -> Result<Self> {
        let texts = given(texts, by_name);
        let settings = &DataSettings { source: Text::default().into(), ..settings.clone() };
        settings.check()?;
        let sorted = Sorted::new(texts, None, None, settings)?;
        Self::stream(sorted, settings, &mut |_| ControlFlow::Continue(()))
    }

    /// What cut the text into tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// What is predicted.
    pub fn objective(&self) -> &Objective {
        &self.0.objective
    }

    /// Names of the classes, in the order of their numbers; none where nothing is classified.
    pub fn classes(&self) -> &[String] {
        &self.0.classes.names
    }

    /// What a text counts in the training loss, by its class.
    pub(crate) fn class_weights(&self) -> &[f32] {
        &self.0.classes.weights
    }

    /// Number of different tokens.
    pub fn vocabulary(&self) -> usize {
        self.0.tokenizer.vocabulary()
    }

    /// A hash of the content of all splits and of the tokenizer: a resumed run must find the same.
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// Whether a split has anything in it.
    pub fn has(&self, split: Split) -> bool {
        self.documents(split) > 0
    }

    /// Bytes of text per token, which turns nats per token into bits per byte; none without text.
    pub fn bytes_per_token(&self, split: Split) -> Option<f64> {
        let part = self.0.parts.get(&split)?;
        (part.bytes > 0 && part.tokens > 0).then(|| part.bytes as f64 / part.tokens as f64)
    }

    /// The pairs of a split; none if the source is not `pairs`.
    pub fn pairs(&self, split: Split) -> Option<&[Pair]> {
        match &self.0.content {
            Content::Pairs(splits) => splits.get(&split).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Numbers of the classes of a split's texts, in their order; none where classes are not read.
    pub fn labels(&self, split: Split) -> Option<Vec<u32>> {
        match &self.0.content {
            Content::Labeled(splits) => {
                Some(splits.get(&split)?.iter().map(|text| text.class).collect())
            }
            _ => None,
        }
    }

    /// The tokens of a split in one run; none for pairs, pieces and tasks.
    pub fn tokens(&self, split: Split) -> Option<&Tokens> {
        match &self.0.content {
            Content::Stream(splits) => splits.get(&split),
            _ => None,
        }
    }

    /// Tokens of the longest piece of a split; none if there are no pieces.
    pub fn longest_piece(&self, split: Split) -> Option<usize> {
        match &self.0.content {
            Content::Pieces(pieces) => pieces.splits.get(&split)?.iter().map(Vec::len).max(),
            _ => None,
        }
    }

    /// How much there is of everything.
    pub fn describe(&self) -> Description {
        Description {
            vocabulary: self.vocabulary(),
            classes: self.0.classes.names.clone(),
            splits: self.0.parts.clone(),
            unit: self.0.unit,
            notes: self.0.notes.clone(),
        }
    }

    /// Documents, pairs, pieces or examples of a split.
    pub(crate) fn documents(&self, split: Split) -> u64 {
        self.0.parts.get(&split).map_or(0, |part| part.documents)
    }

    pub(crate) fn content(&self) -> &Content {
        &self.0.content
    }

    fn new(
        tokenizer: Tokenizer,
        content: Content,
        parts: BTreeMap<Split, Part>,
        fingerprint: u64,
        settings: &DataSettings,
    ) -> Self {
        let (objective, unit) = (settings.objective(), settings.source.unit());
        let (classes, notes) = (Classes::default(), Vec::new());
        let inner =
            Inner { tokenizer, objective, classes, notes, content, parts, fingerprint, unit };
        Self(Arc::new(inner))
    }

    /// The same with these classes. Nobody else has it yet.
    fn with_classes(mut self, classes: Classes) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.classes = classes;
        }
        self
    }

    fn with_notes(mut self, notes: Vec<String>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.notes = notes;
        }
        self
    }

    fn stream(sorted: Sorted, settings: &DataSettings, watch: Watch) -> Result<Self> {
        let encoded = sorted.encode(settings, watch)?;
        let notes = encoded.has_no_ends.then(|| {
            "documents follow each other unmarked: the tokenizer has no token that ends one".into()
        });
        let Encoded { tokenizer, splits, parts, fingerprint, .. } = encoded;
        let corpus = Self::new(tokenizer, Content::Stream(splits), parts, fingerprint, settings);
        Ok(corpus.with_notes(notes.into_iter().collect()))
    }
}

/// Texts with their names, in memory.
fn given(texts: Vec<(String, String)>, by_name: bool) -> Texts {
    let documents = texts.into_iter().map(|(name, text)| Document { name, text }).collect();
    Texts::Held { documents, by_name }
}

fn present(setting: &'static str, path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::setting(setting, "\"\"", "expected a file or folder"));
    }
    Ok(())
}
