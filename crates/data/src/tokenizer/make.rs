//! The tokenizers that we define: bytes, characters, words and trained byte-level BPE.
//!
//! Each is written as the JSON of the `tokenizers` crate and read back, so that what runs is what is saved.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};
use tokenizers::models::{TrainerWrapper, bpe::BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::{Form, Special, Tokenizer, pieces, refused};
use crate::Result;

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
        let model = merges(std::iter::empty(), None);
        let tokenizer = build(model, byte_level(true), byte_level(true))?;
        let mut inner = tokenizer.inner;
        let trainer = BpeTrainer::builder()
            .vocab_size(vocabulary.saturating_sub(specials.len()))
            .min_frequency(2)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build();
        let parts: Vec<&str> = texts.flat_map(pieces).collect();
        inner
            .train(&mut TrainerWrapper::BpeTrainer(trainer), parts.into_iter())
            .map_err(refused)?;
        Self::from_json(inner.to_string(false).map_err(refused)?.as_bytes())?.with(specials)
    }

    /// An existing tokenizer with the special tokens it lacks.
    pub(crate) fn extended(&self, specials: &[Special]) -> Result<Self> {
        self.with(specials)
    }
}

/// Recognises the forms that we define, in a file from anywhere.
pub(super) fn form(file: &Value, names: &[String]) -> Form {
    let model = &file["model"];
    let kind = |part: &str| file[part]["type"].as_str();
    let merges = model["merges"].as_array();
    let ids = || names.iter().enumerate().map(|(id, name)| (name, id as u32));
    let plain = file["normalizer"].is_null();
    match (model["type"].as_str(), kind("pre_tokenizer"), kind("decoder")) {
        (Some("BPE"), Some("ByteLevel"), Some("ByteLevel")) if plain => {
            let level = &file["pre_tokenizer"];
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
        (Some("WordLevel"), Some("WhitespaceSplit"), None) if plain => {
            Form::Words(ids().map(|(n, id)| (n.clone(), id)).collect::<HashMap<_, _>>())
        }
        _ => Form::Other,
    }
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
