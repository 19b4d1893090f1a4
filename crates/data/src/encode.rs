//! Texts to streams of tokens, document by document: what to read, which split it belongs to, its tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use whatwhere_random::Fingerprint;

use crate::{
    Error, Result, Watch, Work,
    corpus::{NAMED, Part, Split},
    read::{self, Document},
    settings::{Bpe, DataSettings, Kmers, Objective, TokenizerSettings},
    split::{Cuts, Shares, by_size, parts, tail, whole},
    tokenizer::{Special, Tokenizer},
    tokens::{Tokens, Writer},
};

/// Where texts come from.
pub(crate) enum Texts {
    Files {
        path: PathBuf,
        field: String,
    },
    Fasta {
        path: PathBuf,
        upper: bool,
    },
    /// In memory; `by_name` if names decide the split.
    Held {
        documents: Vec<Document>,
        by_name: bool,
    },
}

impl Texts {
    fn visit(&self, visit: &mut dyn FnMut(&Document) -> Result<()>) -> Result<()> {
        let mut visit = |document: &Document| {
            if document.text.is_empty() { Ok(()) } else { visit(document) }
        };
        match self {
            Self::Files { path, field } => read::documents(path, field, &mut |d| visit(&d)),
            Self::Fasta { path, upper } => read::fasta(path, *upper, &mut |d| visit(&d)),
            Self::Held { documents, .. } => documents.iter().try_for_each(visit),
        }
    }

    /// What decides the split of a document: its name where somebody gave one, otherwise what it says.
    fn decides(&self, document: &Document) -> u64 {
        Fingerprint::of(match self {
            Self::Held { by_name: true, .. } => document.name.as_bytes(),
            _ => document.text.as_bytes(),
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Files { path, .. } | Self::Fasta { path, .. } => path.display().to_string(),
            Self::Held { .. } => "the given text".into(),
        }
    }

    /// A document's name below the folder that was asked for; of rows of the file that was asked for, with its name.
    fn short(&self, document: &Document) -> String {
        let (Self::Files { path, .. } | Self::Fasta { path, .. }) = self else {
            return document.name.clone();
        };
        let name = document.name.strip_prefix(&*path.to_string_lossy()).unwrap_or(&document.name);
        match (name.strip_prefix(','), path.file_name()) {
            (Some(row), Some(file)) => format!("{},{row}", file.to_string_lossy()),
            _ if name.is_empty() => document.name.clone(),
            _ => name.trim_start_matches(['/', '\\']).into(),
        }
    }
}

/// Texts with a plan which document goes where.
pub(crate) struct Sorted {
    /// The texts, and the parts of each document.
    sources: Vec<(Texts, Vec<Cuts>)>,
    parts: BTreeMap<Split, Part>,
    /// Whether documents follow each other, so that their ends must be told.
    several: bool,
    fingerprint: Fingerprint,
}

/// What encoding makes.
pub(crate) struct Encoded {
    /// Whether documents follow each other and nothing says where.
    pub(crate) has_no_ends: bool,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) splits: BTreeMap<Split, Tokens>,
    pub(crate) parts: BTreeMap<Split, Part>,
    pub(crate) fingerprint: u64,
}

const LEARNT_FROM: u64 = 32 << 20; // Bytes that merges are learnt from: more changes few of them and takes minutes.

const HELD: usize = 64 << 20; // Bytes of text that are kept, so that files are read once; larger ones for each use.

/// What is known of a source after one reading.
struct Read {
    texts: Texts,
    /// What decides, and the size.
    documents: Vec<(u64, u64)>,
    /// Where each would be cut.
    tails: Vec<Cuts>,
    /// Names of the first [`NAMES`] documents.
    names: Vec<String>,
}

const NAMES: usize = 4096; // Lines of a large table need not all be remembered by name.

impl Read {
    /// Looks at every document once.
    fn new(texts: Texts, shares: Shares, fingerprint: &mut Fingerprint) -> Result<Self> {
        let (mut documents, mut tails, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let (mut kept, mut bytes) = (Some(Vec::new()), 0);
        let is_held = matches!(texts, Texts::Held { .. });
        texts.visit(&mut |document| {
            fingerprint.add(&Fingerprint::of(document.text.as_bytes()).to_le_bytes());
            documents.push((texts.decides(document), document.text.len() as u64));
            tails.push(tail(&document.text, shares));
            if names.len() < NAMES {
                names.push(texts.short(document));
            }
            bytes += document.text.len();
            kept = kept.take().filter(|_| !is_held && bytes <= HELD);
            if let Some(kept) = &mut kept {
                kept.push(document.clone());
            }
            Ok(())
        })?;
        if documents.is_empty() {
            return Err(Error::content(texts.name(), "is empty, expected text"));
        }
        let texts = match kept {
            Some(documents) if !is_held => Texts::Held { documents, by_name: false },
            _ => texts,
        };
        Ok(Self { texts, documents, tails, names })
    }

    /// The parts of each document; all in one split, if it is given.
    fn cuts(&self, split: Option<Split>, shares: Shares) -> Vec<Cuts> {
        let splits = match split {
            Some(split) => vec![Some(split); self.documents.len()],
            None => by_size(&self.documents, shares),
        };
        let each = splits.into_iter().zip(&self.documents).zip(&self.tails);
        each.map(|((split, (_, size)), tail)| {
            split.map_or(*tail, |split| whole(split, *size as usize))
        })
        .collect()
    }

    /// Adds what each split gets.
    fn count(&self, cuts: &[Cuts], splits: &mut BTreeMap<Split, Part>) {
        for (i, (&cuts, &(_, size))) in cuts.iter().zip(&self.documents).enumerate() {
            for (split, range) in parts(cuts, size as usize) {
                let part = splits.entry(split).or_default();
                part.documents += 1;
                part.bytes += range.len() as u64;
                let name = self.names.get(i).filter(|_| part.names.len() < NAMED);
                if let Some(name) = name.filter(|_| split != Split::Train) {
                    part.names.push(match range.len() as u64 {
                        all if all == size => name.clone(),
                        bytes => format!("{bytes} bytes at the end of {name}"),
                    });
                }
            }
        }
    }
}

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
        let mut parts = BTreeMap::new();
        let mut several = false;
        let given = [(Some(main), None), (valid, Some(Split::Valid)), (test, Some(Split::Test))];
        for (texts, split) in given.into_iter().filter_map(|(texts, split)| Some((texts?, split))) {
            let read = Read::new(texts, shares, &mut fingerprint)?;
            let cuts = read.cuts(split, shares);
            // Equal documents cut otherwise make another corpus.
            cuts.iter().flatten().for_each(|cut| fingerprint.add(&cut.to_le_bytes()));
            read.count(&cuts, &mut parts);
            several |= read.documents.len() > 1;
            sources.push((read.texts, cuts));
        }
        Ok(Self { sources, parts, several, fingerprint })
    }

    /// Makes the tokenizer from the training text, and tokens of everything.
    pub(crate) fn encode(mut self, settings: &DataSettings, watch: Watch) -> Result<Encoded> {
        let tokenizer = self.tokenizer(settings, watch)?;
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
            None => self.write(&tokenizer, &file, watch)?,
        };
        let mut parts = self.parts;
        for (split, tokens) in &splits {
            parts.entry(*split).or_default().tokens = tokens.len() as u64;
        }
        let has_no_ends = self.several && tokenizer.end().is_none();
        Ok(Encoded { has_no_ends, tokenizer, splits, parts, fingerprint })
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
        watch: Watch,
    ) -> Result<BTreeMap<Split, Tokens>> {
        let mut work = Work { what: "bytes encoded", done: 0, of: 0 };
        work.of = self.parts.values().map(|part| part.bytes).sum();
        let mut writers = BTreeMap::new();
        for &split in self.parts.keys() {
            writers.insert(split, Writer::create(file(split), tokenizer.vocabulary())?);
        }
        let end = tokenizer.end().filter(|_| self.several);
        self.each(&mut |split, text| {
            let Some(writer) = writers.get_mut(&split) else { return Ok(()) };
            if watch(work).is_break() {
                return Err(Error::Interrupted);
            }
            work.done += text.len() as u64;
            writer.add(&tokenizer.encode(text)?)?;
            end.map_or(Ok(()), |end| writer.add(&[end]))
        })?;
        writers.into_iter().map(|(split, writer)| Ok((split, writer.finish()?))).collect()
    }

    fn tokenizer(&self, settings: &DataSettings, watch: Watch) -> Result<Tokenizer> {
        let mut specials = Vec::new();
        if matches!(settings.objective(), Objective::Masked(_)) {
            specials.extend([Special::Padding, Special::Mask]);
        }
        let is_fixed =
            matches!(settings.tokenizer(), TokenizerSettings::File(file) if file.is_fixed);
        if self.several && !is_fixed {
            specials.push(Special::End);
        }
        match settings.tokenizer() {
            TokenizerSettings::Bytes(_) => Tokenizer::of_bytes(&specials),
            cut @ (TokenizerSettings::Characters(_) | TokenizerSettings::Kmers(_)) => {
                let (mut known, mut all) = (BTreeSet::new(), BTreeSet::new());
                self.each(&mut |split, text| {
                    if split == Split::Train { &mut known } else { &mut all }.extend(text.chars());
                    Ok(())
                })?;
                if !all.is_subset(&known) {
                    specials.push(Special::Unknown);
                }
                match cut {
                    TokenizerSettings::Kmers(Kmers { length }) => {
                        Tokenizer::of_kmers(length, &known, &specials)
                    }
                    _ => Tokenizer::of_characters(&known, &specials),
                }
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
                let texts = texts.iter().map(String::as_str);
                Tokenizer::train_watched(texts, vocabulary, &specials, watch)
            }
            TokenizerSettings::File(file) => file.load(&specials),
        }
    }

    /// Visits every part of every document with its split.
    fn each(&self, visit: &mut dyn FnMut(Split, &str) -> Result<()>) -> Result<()> {
        for (texts, cuts) in &self.sources {
            let mut cuts = cuts.iter();
            texts.visit(&mut |document| {
                let changed = || Error::content(&document.name, "changed while it was read");
                let text = &document.text;
                parts(*cuts.next().ok_or_else(changed)?, text.len()).try_for_each(
                    |(split, range)| visit(split, text.get(range).ok_or_else(changed)?),
                )
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
