//! Corpora of music: pieces that stay whole.

use std::{collections::BTreeMap, path::Path};

use whatwhere_random::Fingerprint;

use super::{Content, Corpus, NAMED, Part, Split, examples::of_examples, present};
use crate::{
    Error, Result, Watch,
    music::{Augment, Event, Music},
    read::{self, Grids, Performances, Piece},
    settings::{Chorales, DataSettings, Midi},
    split::{Shares, by_document},
    tokenizer::{Special, Tokenizer},
};

/// Pieces of tokens, and how they are read.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) splits: BTreeMap<Split, Vec<Vec<u32>>>,
    /// A piece may be cut at every multiple of it.
    pub(crate) stride: usize,
    /// What training does to a piece.
    pub(crate) augment: Option<Augment>,
}

impl Corpus {
    pub(super) fn of_chorales(chorales: &Chorales, settings: &DataSettings) -> Result<Self> {
        present("source.path", &chorales.path)?;
        let Grids { splits, symbols } = read::chorales(&chorales.path)?;
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
        let stride = chorales.stride();
        let pieces = Pieces { splits, stride, augment: None };
        Ok(Self::new(tokenizer, Content::Pieces(pieces), parts, hash.finish(), settings))
    }

    pub(super) fn of_midi(midi: &Midi, settings: &DataSettings, watch: Watch) -> Result<Self> {
        present("source.path", &midi.path)?;
        let mut specials = of_examples(settings);
        if !specials.contains(&Special::End) {
            specials.push(Special::End);
        }
        let tokenizer = Tokenizer::of_words(&Event::names(), &specials)?;
        let end = tokenizer.end().expect("it was asked for");
        let (pieces, left_out) = split_pieces(midi, settings, watch)?;
        let mut hash = Fingerprint::new();
        let mut splits: BTreeMap<Split, Vec<Vec<u32>>> = BTreeMap::new();
        let mut parts: BTreeMap<Split, Part> = BTreeMap::new();
        for (split, piece) in pieces {
            let part = parts.entry(split).or_default();
            if split != Split::Train && part.names.len() < NAMED {
                part.names.push(piece.name);
            }
            part.documents += 1;
            part.tokens += piece.tokens.len() as u64;
            hash.add(split.name().as_bytes());
            let bytes: Vec<u8> =
                piece.tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()).collect();
            hash.add(&bytes);
            // The end of a piece stands before the next, and so before the first note of each.
            let tokens = [end].into_iter().chain(piece.tokens).chain([end]).collect();
            splits.entry(split).or_default().push(tokens);
        }
        hash.add(tokenizer.to_json()?.as_bytes());
        let pieces = Pieces { splits, stride: midi.stride(), augment: Augment::of(midi) };
        let corpus = Self::new(tokenizer, Content::Pieces(pieces), parts, hash.finish(), settings);
        Ok(corpus.with_notes(said(&left_out).into_iter().collect()))
    }
}

/// Files that are named where they are left out.
const MOST_NAMED: usize = 20;

/// A warning that names and counts the files that are left out, if there are any.
fn said(left_out: &[String]) -> Option<String> {
    let named = left_out.iter().take(MOST_NAMED).map(String::as_str);
    let named = named.collect::<Vec<_>>().join("; ");
    match left_out.len() {
        0 => None,
        1 => Some(format!("warning: 1 file is left out: {named}")),
        count => {
            let more = match count.saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            Some(format!("warning: {count} files are left out: {named}{more}"))
        }
    }
}

/// Pieces with the split each belongs to.
type Sorted = Vec<(Split, Piece)>;

/// Every piece with its split, and what was left out.
fn split_pieces(
    midi: &Midi,
    settings: &DataSettings,
    watch: Watch,
) -> Result<(Sorted, Vec<String>)> {
    let Performances { pieces, mut left_out, has_table } =
        read::performances(&midi.path, &mut *watch)?;
    let mut found: Sorted = Vec::with_capacity(pieces.len());
    if has_table {
        let splits = pieces.iter().map(|piece| piece.split.unwrap_or(Split::Train));
        found.extend(splits.collect::<Vec<_>>().into_iter().zip(pieces));
    } else {
        let share = |own: &Option<_>, share| if own.is_some() { 0.0 } else { share };
        let shares = Shares {
            valid: share(&midi.valid, settings.valid_share),
            test: share(&midi.test, settings.test_share),
        };
        let size = |piece: &Piece| {
            let bytes: Vec<u8> = piece.tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
            (Fingerprint::of(&bytes), piece.tokens.len() as u64)
        };
        let documents: Vec<(u64, u64)> = pieces.iter().map(size).collect();
        found.extend(by_document(&documents, shares).into_iter().zip(pieces));
    }
    let mut own = |split: Split, path: &Path| -> Result<()> {
        let Performances { pieces, left_out: more, .. } = read::performances(path, &mut *watch)?;
        // Files of its own take the place of what a table says.
        found.retain(|(other, _)| *other != split);
        found.extend(pieces.into_iter().map(|piece| (split, piece)));
        left_out.extend(more);
        Ok(())
    };
    for (split, path) in [(Split::Valid, &midi.valid), (Split::Test, &midi.test)] {
        path.as_deref().map_or(Ok(()), |path| own(split, path))?;
    }
    if !found.iter().any(|(split, _)| *split == Split::Train) {
        let reason = "has no piece for training: the table holds all of them out";
        return Err(Error::content(midi.path.display().to_string(), reason));
    }
    Ok((found, left_out))
}
