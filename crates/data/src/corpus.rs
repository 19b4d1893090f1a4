//! A corpus: tokens of three splits, the tokenizer that made them, and what there is to say about them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::Serialize;

use crate::{
    Error, Result,
    encode::{Encoded, Sorted, Texts},
    random::Fingerprint,
    read::{self, Pieces, Sides},
    settings::{Chorales, DataSettings, Examples, Objective, Pairs, Source, TokenizerSettings},
    split::{Shares, by_document},
    tokenizer::{Special, Tokenizer},
    tokens::Tokens,
};

/// A part of the data with its own purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What the model learns from.
    Train,
    /// What decisions are made with.
    Valid,
    /// What is looked at once, at the end.
    Test,
}

impl Split {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }
}

/// A sentence and its translation, as text and as tokens without begin and end.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The source's text.
    pub source_text: String,
    /// The target's text.
    pub target_text: String,
    /// The source's tokens.
    pub source: Vec<u32>,
    /// The target's tokens.
    pub target: Vec<u32>,
}

/// Everything a run reads: tokens, tokenizer, objective. Clones share the data.
#[derive(Clone, Debug)]
pub struct Corpus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tokenizer: Tokenizer,
    objective: Objective,
    content: Content,
    parts: BTreeMap<Split, Part>,
    fingerprint: u64,
}

/// What there is, by the way batches are made of it.
#[derive(Debug)]
pub(crate) enum Content {
    /// One run of tokens.
    Stream(BTreeMap<Split, Tokens>),
    /// Sentences and their translations.
    Pairs(BTreeMap<Split, Vec<Pair>>),
    /// Sequences with a start and an end of their own.
    Pieces(BTreeMap<Split, Vec<Vec<u32>>>),
    /// Examples made when they are asked for.
    Task(Source, Examples),
}

impl Corpus {
    /// Reads the source, makes or loads the tokenizer, and encodes every split.
    pub fn load(settings: &DataSettings) -> Result<Self> {
        settings.check()?;
        let files = |path: &std::path::Path, field: &str| Texts::Files {
            path: path.into(),
            field: field.into(),
        };
        match &settings.source {
            Source::Text(text) => {
                present("source.path", &text.path)?;
                let other = |path: &Option<std::path::PathBuf>| {
                    path.as_ref().map(|path| files(path, &text.field))
                };
                let main = files(&text.path, &text.field);
                Self::stream(
                    Sorted::new(main, other(&text.valid), other(&text.test), settings)?,
                    settings,
                )
            }
            Source::Fasta(fasta) => {
                present("source.path", &fasta.path)?;
                let texts = |path: &std::path::PathBuf| Texts::Fasta {
                    path: path.clone(),
                    upper: fasta.upper,
                };
                let (valid, test) =
                    (fasta.valid.as_ref().map(texts), fasta.test.as_ref().map(texts));
                Self::stream(Sorted::new(texts(&fasta.path), valid, test, settings)?, settings)
            }
            Source::Pairs(pairs) => Self::pairs_from(pairs, settings),
            Source::Chorales(chorales) => Self::chorales(chorales, settings),
            _ => Self::task(settings),
        }
    }

    /// A corpus of texts that the caller has, each a document; only tokenizer, objective, shares and cache of the settings count.
    pub fn from_texts(texts: Vec<String>, settings: &DataSettings) -> Result<Self> {
        let settings =
            &DataSettings { source: crate::settings::Text::default().into(), ..settings.clone() };
        settings.check()?;
        Self::stream(Sorted::new(Texts::Memory(texts), None, None, settings)?, settings)
    }

    /// What cut the text into tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// What is predicted.
    pub fn objective(&self) -> &Objective {
        &self.0.objective
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
        self.0.parts.get(&split).is_some_and(|part| part.documents > 0)
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

    /// The tokens of a split in one run; none for pairs, pieces and tasks.
    pub fn tokens(&self, split: Split) -> Option<&Tokens> {
        match &self.0.content {
            Content::Stream(splits) => splits.get(&split),
            _ => None,
        }
    }

    /// How much there is of everything.
    pub fn describe(&self) -> Description {
        Description { vocabulary: self.vocabulary(), splits: self.0.parts.clone() }
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
        let objective = settings.objective();
        Self(Arc::new(Inner { tokenizer, objective, content, parts, fingerprint }))
    }

    fn stream(sorted: Sorted, settings: &DataSettings) -> Result<Self> {
        let Encoded { tokenizer, splits, parts, fingerprint } = sorted.encode(settings)?;
        Ok(Self::new(tokenizer, Content::Stream(splits), parts, fingerprint, settings))
    }

    fn pairs_from(pairs: &Pairs, settings: &DataSettings) -> Result<Self> {
        present("source.source", &pairs.source)?;
        let texts = pair_texts(pairs, settings)?;
        let specials = [Special::Padding, Special::Begin, Special::End];
        let tokenizer = pair_tokenizer(&texts, settings, &specials)?;
        let mut hash = Fingerprint::new();
        let mut splits = BTreeMap::new();
        let mut parts: BTreeMap<Split, Part> = BTreeMap::new();
        for (split, sides) in texts {
            hash.add(split.name().as_bytes());
            let part = parts.entry(split).or_default();
            let mut pairs = Vec::with_capacity(sides.len());
            for (source_text, target_text) in sides {
                hash.add(source_text.as_bytes());
                hash.add(target_text.as_bytes());
                let (source, target) =
                    (tokenizer.encode(&source_text)?, tokenizer.encode(&target_text)?);
                part.documents += 1;
                part.bytes += target_text.len() as u64;
                part.tokens += target.len() as u64 + 1; // the end is predicted too
                pairs.push(Pair { source_text, target_text, source, target });
            }
            splits.insert(split, pairs);
        }
        hash.add(tokenizer.to_json()?.as_bytes());
        Ok(Self::new(tokenizer, Content::Pairs(splits), parts, hash.finish(), settings))
    }

    fn chorales(chorales: &Chorales, settings: &DataSettings) -> Result<Self> {
        present("source.path", &chorales.path)?;
        let Pieces { splits, symbols } = read::chorales(&chorales.path)?;
        let tokenizer = Tokenizer::of_words(&symbols, &of_examples(settings))?;
        let mut hash = Fingerprint::new();
        let mut parts: BTreeMap<Split, Part> = BTreeMap::new();
        for (split, pieces) in &splits {
            hash.add(split.name().as_bytes());
            let part = parts.entry(*split).or_default();
            for piece in pieces {
                hash.add(&piece.iter().map(|&token| token as u8).collect::<Vec<u8>>());
                part.documents += 1;
                part.tokens += piece.len() as u64;
            }
        }
        hash.add(tokenizer.to_json()?.as_bytes());
        Ok(Self::new(tokenizer, Content::Pieces(splits), parts, hash.finish(), settings))
    }

    fn task(settings: &DataSettings) -> Result<Self> {
        let source = settings.source.clone();
        let Some(task) = source.task() else {
            return Err(Error::setting("source.kind", source.name(), "expected a task"));
        };
        let symbols = task.symbols();
        let specials = of_examples(settings);
        let tokenizer = if symbols.iter().all(|symbol| symbol.chars().count() == 1) {
            Tokenizer::of_characters(&symbols.iter().flat_map(|s| s.chars()).collect(), &specials)?
        } else {
            Tokenizer::of_words(&symbols, &specials)?
        };
        let mut hash = Fingerprint::new();
        let written = toml::to_string(settings).map_err(|e| Error::Settings(e.to_string()))?;
        hash.add(written.as_bytes());
        hash.add(tokenizer.to_json()?.as_bytes());
        let Examples { train, valid, test } = settings.examples;
        let train = if train == 0 { u64::MAX } else { train as u64 };
        let counts =
            [(Split::Train, train), (Split::Valid, valid as u64), (Split::Test, test as u64)];
        let parts =
            counts.map(|(split, documents)| (split, Part { documents, bytes: 0, tokens: 0 }));
        let content = Content::Task(source, settings.examples.clone());
        Ok(Self::new(tokenizer, content, parts.into(), hash.finish(), settings))
    }
}

fn present(setting: &'static str, path: &std::path::Path) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::setting(setting, "\"\"", "expected a file or folder"));
    }
    Ok(())
}

/// Special tokens for rows of different lengths.
fn of_examples(settings: &DataSettings) -> Vec<Special> {
    let mut specials = vec![Special::Padding];
    match settings.objective() {
        Objective::NextToken(_) => {}
        Objective::Masked(_) => specials.push(Special::Mask),
        Objective::Translate(_) => specials.extend([Special::Begin, Special::End]),
    }
    specials
}

fn pair_texts(pairs: &Pairs, settings: &DataSettings) -> Result<BTreeMap<Split, Vec<Sides>>> {
    let fields = (pairs.source_field.as_str(), pairs.target_field.as_str());
    let mut splits: BTreeMap<Split, Vec<Sides>> = BTreeMap::new();
    let empty = std::path::PathBuf::new();
    let given = [
        (Split::Valid, &pairs.valid_source, &pairs.valid_target),
        (Split::Test, &pairs.test_source, &pairs.test_target),
    ];
    for (split, source, target) in given {
        if let Some(source) = source {
            let sides = read::pairs(source, target.as_ref().unwrap_or(&empty), fields)?;
            splits.insert(split, sides);
        }
    }
    let shares = Shares {
        valid: if pairs.valid_source.is_some() { 0.0 } else { settings.valid_share },
        test: if pairs.test_source.is_some() { 0.0 } else { settings.test_share },
    };
    let sides = read::pairs(&pairs.source, &pairs.target, fields)?;
    // By the source: one sentence with several translations must not be learnt and asked for.
    let documents: Vec<(u64, u64)> = sides
        .iter()
        .map(|(source, _)| (Fingerprint::of(source.as_bytes()), source.len() as u64))
        .collect();
    for (pair, split) in sides.into_iter().zip(by_document(&documents, shares)) {
        splits.entry(split).or_default().push(pair);
    }
    Ok(splits)
}

/// One tokenizer for both sides, so that names and numbers can be copied and embeddings shared.
fn pair_tokenizer(
    texts: &BTreeMap<Split, Vec<Sides>>,
    settings: &DataSettings,
    specials: &[Special],
) -> Result<Tokenizer> {
    let both = |split: Split| {
        let sides = texts.get(&split).into_iter().flatten();
        sides.flat_map(|(source, target)| [source.as_str(), target.as_str()])
    };
    match settings.tokenizer() {
        TokenizerSettings::Bytes(_) => Tokenizer::of_bytes(specials),
        TokenizerSettings::Characters(_) => {
            let known = both(Split::Train).flat_map(str::chars).collect();
            Tokenizer::of_characters(&known, &[specials, &[Special::Unknown]].concat())
        }
        TokenizerSettings::Bpe(bpe) => {
            Tokenizer::train(both(Split::Train), bpe.vocabulary, specials)
        }
        TokenizerSettings::File(file) => Tokenizer::load(&file.path)?.extended(specials),
    }
}

/// How much there is of everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Description {
    /// Number of different tokens.
    pub vocabulary: usize,
    /// What each split has.
    pub splits: BTreeMap<Split, Part>,
}

/// How much there is in a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// Documents, pairs, pieces or examples; `u64::MAX` is without end.
    pub documents: u64,
    /// Bytes of text, of pairs the target's; 0 without text.
    pub bytes: u64,
    /// Tokens, of pairs the target's; 0 if they are made when asked for.
    pub tokens: u64,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vocabulary {}", self.vocabulary)?;
        for (split, part) in &self.splits {
            write!(f, "; {}", split.name())?;
            match part.documents {
                u64::MAX => write!(f, " without end")?,
                1 => write!(f, " 1 document")?,
                many => write!(f, " {many} documents")?,
            }
            if part.tokens > 0 {
                write!(f, ", {} tokens", part.tokens)?;
            }
            if part.bytes > 0 {
                write!(f, ", {} bytes", part.bytes)?;
            }
        }
        Ok(())
    }
}
