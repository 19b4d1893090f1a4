//! The tokenizers that we define: bytes, characters, words and trained byte-level BPE.
//!
//! Each is written as the JSON of the `tokenizers` crate and read back, so that what runs is what is saved.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::{
    Form, Special, Tokenizer, pieces,
    train::{Learnt, learn},
};
use crate::{Result, Watch};

impl Tokenizer {
    /// A token for each byte, its value; then the special tokens.
    pub fn of_bytes(specials: &[Special]) -> Result<Self> {
        let vocabulary = (0..=255).map(|byte| character_of(byte).to_string());
        let level = byte_level(false);
        build(merges(vocabulary, None), level.clone(), level)?.with(specials)
    }

    /// A token for each character, in the order of Unicode; then the special tokens.
    pub fn of_characters(characters: &BTreeSet<char>, specials: &[Special]) -> Result<Self> {
        let unknown = specials.contains(&Special::Unknown).then(|| Special::Unknown.names()[0]);
        let vocabulary = characters.iter().map(char::to_string);
        let vocabulary = vocabulary.chain(unknown.map(str::to_string));
        build(merges(vocabulary, unknown), Value::Null, json!({ "type": "Fuse" }))?.with(specials)
    }

    /// A token for each word of `length` bases, in the order of the alphabet; then single letters, then the special tokens.
    pub fn of_kmers(length: usize, letters: &BTreeSet<char>, specials: &[Special]) -> Result<Self> {
        let word = |number: usize| -> String {
            let base = |place: usize| b"ACGT"[(number >> (2 * place)) & 3];
            (0..length).rev().map(|place| char::from(base(place))).collect()
        };
        let unknown = Special::Unknown.names()[0];
        let letters: BTreeSet<String> =
            "ACGT".chars().chain(letters.iter().copied()).map(String::from).collect();
        let names = (0..1 << (2 * length)).map(word).filter(|word| word.len() > 1).chain(letters);
        let model = json!({ "type": "WordLevel", "vocab": numbered(names), "unk_token": unknown });
        let split = json!({
            "type": "Split", "pattern": { "Regex": kmer_rule(length) }, "behavior": "Isolated", "invert": false
        });
        build(model, split, json!({ "type": "Fuse" }))?.with(specials)
    }

    /// A token for each word, in the given order; then the special tokens. Text is words between spaces.
    pub fn of_words(words: &[String], specials: &[Special]) -> Result<Self> {
        let unknown = Special::Unknown.names()[0]; // Named in every file of this kind, with or without an id.
        let vocabulary = numbered(words.iter().cloned());
        let model = json!({ "type": "WordLevel", "vocab": vocabulary, "unk_token": unknown });
        build(model, json!({ "type": "WhitespaceSplit" }), Value::Null)?.with(specials)
    }

    /// Byte-level BPE with `vocabulary` tokens in all, learnt from texts.
    pub fn train<'a>(
        texts: impl Iterator<Item = &'a str>,
        vocabulary: usize,
        specials: &[Special],
    ) -> Result<Self> {
        Self::train_watched(texts, vocabulary, specials, &mut |_| ControlFlow::Continue(()))
    }

    /// [`Self::train`], heard and perhaps ended by somebody.
    pub(crate) fn train_watched<'a>(
        texts: impl Iterator<Item = &'a str>,
        vocabulary: usize,
        specials: &[Special],
        watch: Watch,
    ) -> Result<Self> {
        let mut alphabet: Vec<char> = (0..=255).map(character_of).collect();
        alphabet.sort_unstable();
        let pieces: Vec<&str> = texts.flat_map(pieces).collect();
        let vocabulary = vocabulary.saturating_sub(specials.len());
        let cut = ByteLevel::new(false, false, true);
        let Learnt { names, merges } = learn(&pieces, &cut, alphabet, vocabulary, watch)?;
        let mut model = self::merges(names.into_iter(), None);
        model["merges"] = json!(merges);
        build(model, byte_level(true), byte_level(true))?.with(specials)
    }

    /// An existing tokenizer with the special tokens it lacks.
    pub(crate) fn extended(&self, specials: &[Special]) -> Result<Self> {
        self.with(specials)
    }
}

/// What of a `tokenizer.json` tells how tokens spell text. Its tokens and merges are left where they are: as values they would
/// take twenty times their bytes.
#[derive(Deserialize)]
pub(super) struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelParts,
}

#[derive(Deserialize)]
struct ModelParts {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// As many as there are.
    #[serde(default)]
    merges: Option<Vec<IgnoredAny>>,
}

/// Recognises the forms that we define, in a file from anywhere.
pub(super) fn form(file: &Parts, names: &[String]) -> Form {
    let Parts { normalizer, pre_tokenizer, decoder, model } = file;
    let kind = |part: &'_ Value| part["type"].as_str().map(str::to_owned);
    let (before, after) = (kind(pre_tokenizer), kind(decoder));
    let merges = model.merges.as_ref();
    let ids = || names.iter().enumerate().map(|(id, name)| (name, id as u32));
    let plain = normalizer.is_null();
    match (model.kind.as_deref(), before.as_deref(), after.as_deref()) {
        (Some("BPE"), Some("ByteLevel"), Some("ByteLevel")) if plain => {
            let level = pre_tokenizer;
            let in_order = || {
                names.len() >= 256
                    && (0..=255u8).all(|b| names[b as usize].chars().eq([character_of(b)]))
            };
            if merges.is_some_and(Vec::is_empty) && level["use_regex"] == false && in_order() {
                Form::Bytes
            } else if level["add_prefix_space"] == false {
                Form::Merges
            } else {
                Form::Other
            }
        }
        (Some("BPE"), None, Some("Fuse")) if plain && merges.is_some_and(Vec::is_empty) => {
            let single = |name: &str| {
                let mut characters = name.chars();
                characters.next().filter(|_| characters.next().is_none())
            };
            Form::Characters(ids().filter_map(|(n, id)| Some((single(n)?, id))).collect())
        }
        (Some("WordLevel"), Some("Split"), Some("Fuse")) if plain => {
            let rule = pre_tokenizer["pattern"]["Regex"].as_str();
            match (1..=8).find(|length| rule == Some(kmer_rule(*length).as_str())) {
                Some(length) => Form::Kmers(length, ids().map(|(n, id)| (n.clone(), id)).collect()),
                None => Form::Other,
            }
        }
        (Some("WordLevel"), Some("WhitespaceSplit"), None) if plain => {
            Form::Words(ids().map(|(n, id)| (n.clone(), id)).collect::<HashMap<_, _>>())
        }
        _ => Form::Other,
    }
}

/// What is one token: so many bases, or any single character.
fn kmer_rule(length: usize) -> String {
    format!("[ACGT]{{{length}}}|[\\s\\S]")
}

/// GPT-2's printable character for a byte: itself where it is printable, else one from U+0100 on.
fn character_of(byte: u8) -> char {
    if is_printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !is_printable(b)).count() as u32;
    char::from_u32(256 + rank).expect("at most 68 bytes are not printable")
}

/// The byte that a printable character stands for.
pub(super) fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ 0..=255 => Some(code as u8).filter(|&byte| is_printable(byte)),
        code @ 256.. => (0..=255u8).filter(|&b| !is_printable(b)).nth(code as usize - 256),
    }
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

fn byte_level(regex: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex })
}

fn merges(vocabulary: impl Iterator<Item = String>, unknown: Option<&str>) -> Value {
    json!({
        "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        "ignore_merges": false, "vocab": numbered(vocabulary), "merges": []
    })
}

fn numbered(names: impl Iterator<Item = String>) -> Value {
    Value::Object(names.enumerate().map(|(id, name)| (name, id.into())).collect::<Map<_, _>>())
}

fn build(model: Value, pre_tokenizer: Value, decoder: Value) -> Result<Tokenizer> {
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": decoder, "model": model
    });
    Tokenizer::from_json(file.to_string().as_bytes())
}
