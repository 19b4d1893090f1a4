//! Texts to streams of tokens, document by document: what to read, which split it belongs to, its tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use whatwhere_random::Fingerprint;

use crate::{
    Error, Result,
    corpus::{Part, Split},
    read::{self, Document},
    settings::{Bpe, DataSettings, Objective, TokenizerSettings},
    split::{Shares, by_document, by_tail},
    tokenizer::{Special, Tokenizer},
    tokens::{Tokens, Writer},
};

/// Where texts come from.
pub(crate) enum Texts {
    Files { path: PathBuf, field: String },
    Fasta { path: PathBuf, upper: bool },
    Memory(Vec<String>),
    Named(Vec<(String, String)>),
}

impl Texts {
    fn visit(&self, visit: &mut dyn FnMut(Document) -> Result<()>) -> Result<()> {
        let mut visit = |document: Document| {
            if document.text.is_empty() { Ok(()) } else { visit(document) }
        };
        match self {
            Self::Files { path, field } => read::documents(path, field, &mut visit),
            Self::Fasta { path, upper } => read::fasta(path, *upper, &mut visit),
            Self::Memory(texts) => texts.iter().enumerate().try_for_each(|(i, text)| {
                visit(Document { name: format!("text {i}"), text: text.clone() })
            }),
            Self::Named(texts) => texts.iter().try_for_each(|(name, text)| {
                visit(Document { name: name.clone(), text: text.clone() })
            }),
        }
    }

    /// What decides the split of a document: its name where somebody gave one, otherwise what it says.
    fn decides(&self, document: &Document) -> u64 {
        Fingerprint::of(match self {
            Self::Named(_) => document.name.as_bytes(),
            _ => document.text.as_bytes(),
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Files { path, .. } | Self::Fasta { path, .. } => path.display().to_string(),
            Self::Memory(_) | Self::Named(_) => "the given text".into(),
        }
    }
}

/// Texts with a plan which document goes where.
pub(crate) struct Sorted {
    /// The texts, and the split of each document; none where the only document is cut.
    sources: Vec<(Texts, Option<Vec<Split>>)>,
    shares: Shares,
    parts: BTreeMap<Split, Part>,
    /// Whether documents follow each other, so that their ends must be told.
    several: bool,
    fingerprint: Fingerprint,
}

/// What encoding makes.
pub(crate) struct Encoded {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) splits: BTreeMap<Split, Tokens>,
    pub(crate) parts: BTreeMap<Split, Part>,
    pub(crate) fingerprint: u64,
}

const LEARNT_FROM: u64 = 32 << 20; // Bytes that merges are learnt from: more changes few of them and takes minutes.

impl Sorted {
    /// Looks at every document once, and decides its split.
    pub(crate) fn new(
        main: Texts,
        valid: Option<Texts>,
        test: Option<Texts>,
        settings: &DataSettings,
    ) -> Result<Self> {
        let shares = Shares {
            valid: if valid.is_some() { 0.0 } else { settings.valid_share },
            test: if test.is_some() { 0.0 } else { settings.test_share },
        };
        let mut fingerprint = Fingerprint::new();
        let mut sources = Vec::new();
        let mut several = false;
        let given = [(Some(main), None), (valid, Some(Split::Valid)), (test, Some(Split::Test))];
        for (texts, split) in given.into_iter().filter_map(|(texts, split)| Some((texts?, split))) {
            let mut documents = Vec::new();
            texts.visit(&mut |document| {
                documents.push((texts.decides(&document), document.text.len() as u64));
                fingerprint.add(&Fingerprint::of(document.text.as_bytes()).to_le_bytes());
                Ok(())
            })?;
            if documents.is_empty() {
                return Err(Error::content(texts.name(), "is empty, expected text"));
            }
            several |= documents.len() > 1;
            let splits = match split {
                Some(split) => Some(vec![split; documents.len()]),
                None if documents.len() > 1 => Some(by_document(&documents, shares)),
                None => None,
            };
            fingerprint.add(&[split.map_or(0, |split| split as u8)]);
            sources.push((texts, splits));
        }
        fingerprint.add(&shares.valid.to_le_bytes());
        fingerprint.add(&shares.test.to_le_bytes());
        let mut sorted = Self { sources, shares, parts: BTreeMap::new(), several, fingerprint };
        let mut parts: BTreeMap<Split, Part> = BTreeMap::new();
        sorted.each(&mut |split, text| {
            let part = parts.entry(split).or_default();
            part.documents += 1;
            part.bytes += text.len() as u64;
            Ok(())
        })?;
        sorted.parts = parts;
        Ok(sorted)
    }

    /// Makes the tokenizer from the training text, and tokens of everything.
    pub(crate) fn encode(mut self, settings: &DataSettings) -> Result<Encoded> {
        let tokenizer = self.tokenizer(settings)?;
        let json = tokenizer.to_json()?;
        self.fingerprint.add(json.as_bytes());
        let fingerprint = self.fingerprint.finish();
        let vocabulary = tokenizer.vocabulary();
        let file = |split: Split| {
            let folder = settings.cache.as_ref()?;
            Some(folder.join(format!("tokens-{fingerprint:016x}-{}.bin", split.name())))
        };
        let splits = match self.cached(&file, vocabulary)? {
            Some(splits) => splits,
            None => self.write(&tokenizer, &file)?,
        };
        let mut parts = self.parts;
        for (split, tokens) in &splits {
            parts.entry(*split).or_default().tokens = tokens.len() as u64;
        }
        Ok(Encoded { tokenizer, splits, parts, fingerprint })
    }

    /// The files of an earlier run, if all are there.
    fn cached(
        &self,
        file: &dyn Fn(Split) -> Option<PathBuf>,
        vocabulary: usize,
    ) -> Result<Option<BTreeMap<Split, Tokens>>> {
        let mut splits = BTreeMap::new();
        for &split in self.parts.keys() {
            let Some(path) = file(split) else { return Ok(None) };
            let Some(tokens) = Tokens::open(&path, vocabulary)? else { return Ok(None) };
            splits.insert(split, tokens);
        }
        Ok(Some(splits))
    }

    fn write(
        &self,
        tokenizer: &Tokenizer,
        file: &dyn Fn(Split) -> Option<PathBuf>,
    ) -> Result<BTreeMap<Split, Tokens>> {
        let mut writers = BTreeMap::new();
        for &split in self.parts.keys() {
            writers.insert(split, Writer::create(file(split), tokenizer.vocabulary())?);
        }
        let end = tokenizer.end().filter(|_| self.several);
        self.each(&mut |split, text| {
            let Some(writer) = writers.get_mut(&split) else { return Ok(()) };
            writer.add(&tokenizer.encode(text)?)?;
            end.map_or(Ok(()), |end| writer.add(&[end]))
        })?;
        writers.into_iter().map(|(split, writer)| Ok((split, writer.finish()?))).collect()
    }

    fn tokenizer(&self, settings: &DataSettings) -> Result<Tokenizer> {
        let mut specials = Vec::new();
        if matches!(settings.objective(), Objective::Masked(_)) {
            specials.extend([Special::Padding, Special::Mask]);
        }
        if self.several {
            specials.push(Special::End);
        }
        match settings.tokenizer() {
            TokenizerSettings::Bytes(_) => Tokenizer::of_bytes(&specials),
            TokenizerSettings::Characters(_) => {
                let (mut known, mut all) = (BTreeSet::new(), BTreeSet::new());
                self.each(&mut |split, text| {
                    if split == Split::Train { &mut known } else { &mut all }.extend(text.chars());
                    Ok(())
                })?;
                if !all.is_subset(&known) {
                    specials.push(Special::Unknown);
                }
                Tokenizer::of_characters(&known, &specials)
            }
            TokenizerSettings::Bpe(Bpe { vocabulary }) => {
                let total = self.parts.get(&Split::Train).map_or(0, |part| part.bytes).max(1);
                let mut texts = Vec::new();
                self.each(&mut |split, text| {
                    if split == Split::Train {
                        texts.push(start(text, LEARNT_FROM as f64 / total as f64).to_string());
                    }
                    Ok(())
                })?;
                Tokenizer::train(texts.iter().map(String::as_str), vocabulary, &specials)
            }
            TokenizerSettings::File(file) => Tokenizer::load(&file.path)?.extended(&specials),
        }
    }

    /// Visits every document, or part of the only one, with its split.
    fn each(&self, visit: &mut dyn FnMut(Split, &str) -> Result<()>) -> Result<()> {
        for (texts, splits) in &self.sources {
            let mut index = 0;
            texts.visit(&mut |document| {
                index += 1;
                let Some(splits) = splits else {
                    return by_tail(&document.text, self.shares)
                        .into_iter()
                        .filter(|(_, range)| !range.is_empty())
                        .try_for_each(|(split, range)| visit(split, &document.text[range]));
                };
                let changed = || Error::content(&document.name, "changed while it was read");
                visit(*splits.get(index - 1).ok_or_else(changed)?, &document.text)
            })?;
        }
        Ok(())
    }
}

/// A share of a text from its start, cut between characters.
fn start(text: &str, share: f64) -> &str {
    let mut end = ((text.len() as f64 * share) as usize).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
