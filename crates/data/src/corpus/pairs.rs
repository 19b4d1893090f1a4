//! Corpora of sentence pairs, with one tokenizer for both sides.

use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, sync::Arc};

use whatwhere_random::Fingerprint;

use super::{Content, Corpus, Inner, Part, Split, present};
use crate::{
    Result, Watch,
    read::{self, Sides},
    settings::{DataSettings, Kmers, Pairs, TokenizerSettings},
    split::{Shares, by_document},
    tokenizer::{Special, Tokenizer},
};

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

impl Pair {
    /// Tokens of the longer side, with its end.
    pub fn longer(&self) -> usize {
        self.source.len().max(self.target.len()) + 1
    }
}

impl Corpus {
    /// The pairs of a split whose longer side, with its end, has so many tokens, as a corpus of their own.
    pub fn pairs_within(&self, split: Split, tokens: RangeInclusive<usize>) -> Self {
        let all = self.pairs(split).unwrap_or_default().iter();
        let pairs: Vec<Pair> =
            all.filter(|pair| tokens.contains(&pair.longer())).cloned().collect();
        let part = Part {
            documents: pairs.len() as u64,
            bytes: pairs.iter().map(|pair| pair.target_text.len() as u64).sum(),
            tokens: pairs.iter().map(|pair| pair.target.len() as u64 + 1).sum(),
            names: Vec::new(),
        };
        Self(Arc::new(Inner {
            tokenizer: self.0.tokenizer.clone(),
            objective: self.0.objective.clone(),
            classes: Default::default(),
            notes: Vec::new(),
            content: Content::Pairs([(split, pairs)].into()),
            parts: [(split, part)].into(),
            fingerprint: self.0.fingerprint,
            unit: self.0.unit,
        }))
    }

    pub(super) fn of_pairs(pairs: &Pairs, settings: &DataSettings, watch: Watch) -> Result<Self> {
        present("source.source", &pairs.source)?;
        let texts = pair_texts(pairs, settings)?;
        let specials = [Special::Padding, Special::Begin, Special::End];
        // One tokenizer for both sides, so that names and numbers can be copied and embeddings shared.
        let both = || {
            let sides = texts.get(&Split::Train).into_iter().flatten();
            sides.flat_map(|(source, target)| [source.as_str(), target.as_str()])
        };
        let tokenizer = tokenizer_of(both, settings, &specials, watch)?;
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
}

fn pair_texts(pairs: &Pairs, settings: &DataSettings) -> Result<BTreeMap<Split, Vec<Sides>>> {
    let fields = (pairs.source_field.as_str(), pairs.target_field.as_str());
    let mut splits: BTreeMap<Split, Vec<Sides>> = BTreeMap::new();
    let empty = PathBuf::new();
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

/// The tokenizer that the settings ask for, learned from texts where it learns.
pub(super) fn tokenizer_of<'a, I: Iterator<Item = &'a str>>(
    texts: impl Fn() -> I,
    settings: &DataSettings,
    specials: &[Special],
    watch: Watch,
) -> Result<Tokenizer> {
    let known = || texts().flat_map(str::chars).collect();
    match settings.tokenizer() {
        TokenizerSettings::Bytes(_) => Tokenizer::of_bytes(specials),
        TokenizerSettings::Characters(_) => {
            Tokenizer::of_characters(&known(), &[specials, &[Special::Unknown]].concat())
        }
        TokenizerSettings::Kmers(Kmers { length }) => {
            Tokenizer::of_kmers(length, &known(), &[specials, &[Special::Unknown]].concat())
        }
        TokenizerSettings::Bpe(bpe) => {
            Tokenizer::train_watched(texts(), bpe.vocabulary, specials, watch)
        }
        TokenizerSettings::File(file) => file.load(specials),
    }
}
