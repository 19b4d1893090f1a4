//! The tokenizer of an older folder, which has its vocabulary but no `tokenizer.json`: WordPiece from `vocab.txt`, byte-level
//! BPE from `vocab.json` and `merges.txt`, put together as the family's own class in transformers does.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};

use super::specials::object;
use crate::{Error, error::Result};

/// Families whose class reads `vocab.txt`.
const WORD_PIECES: [&str; 2] = ["bert", "distilbert"];
/// Families whose class reads `vocab.json` and `merges.txt`, and what it calls the tokens that begin and end a text.
const BYTE_LEVEL: [(&str, Option<[&str; 2]>); 4] = [
    ("gpt2", None),
    ("bart", Some(["<s>", "</s>"])),
    ("longformer", Some(["<s>", "</s>"])),
    ("roberta", Some(["<s>", "</s>"])),
];

/// A tokenizer, and the names of its special tokens where the folder does not say them.
pub(super) struct Built {
    pub(super) file: &'static str,
    pub(super) json: String,
    pub(super) named: Map<String, Value>,
}

/// Builds it, if the folder has the files of its family's class and no token that these do not have.
pub(super) fn build(folder: &Path, family: &str) -> Result<Option<Built>> {
    let said = object(&folder.join("tokenizer_config.json"))?;
    let class = said.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    let class = class.trim_end_matches("Fast").trim_end_matches("Tokenizer").to_lowercase();
    let is_own = |own: &[&str]| class.is_empty() || own.contains(&class.as_str());
    let has = |name: &str| folder.join(name).is_file();
    if has("added_tokens.json") {
        return Ok(None);
    }
    if WORD_PIECES.contains(&family) && is_own(&WORD_PIECES) && has("vocab.txt") {
        return word_pieces(&folder.join("vocab.txt"), &said).map(Some);
    }
    let Some((_, frame)) = BYTE_LEVEL.iter().find(|(name, _)| *name == family) else {
        return Ok(None);
    };
    // One class is the other's with a frame: GPT-2's own would put none around a text of RoBERTa's.
    let own = if frame.is_some() { &["bart", "longformer", "roberta"][..] } else { &["gpt2"][..] };
    let adds = said.get("add_bos_token").and_then(Value::as_bool).unwrap_or(false);
    match is_own(own) && !adds && has("vocab.json") && has("merges.txt") {
        true => byte_level(folder, &said, *frame).map(Some),
        false => Ok(None),
    }
}

fn flag(said: &Map<String, Value>, key: &str, default: bool) -> bool {
    said.get(key).and_then(Value::as_bool).unwrap_or(default)
}

fn named(pairs: &[(&str, &str)]) -> Map<String, Value> {
    pairs.iter().map(|(key, name)| ((*key).to_owned(), (*name).into())).collect()
}

/// Special tokens that the vocabulary has, each once. A mask takes the blank before it along where words do.
fn added(
    names: &Map<String, Value>,
    vocabulary: &Map<String, Value>,
    takes_blank: bool,
) -> Vec<Value> {
    let mut found: Vec<(u64, Value)> = names
        .iter()
        .filter_map(|(key, name)| {
            let id = vocabulary.get(name.as_str()?)?.as_u64()?;
            let left = takes_blank && key == "mask_token";
            let token = json!({
                "id": id, "content": name, "single_word": false, "lstrip": left, "rstrip": false,
                "normalized": false, "special": true,
            });
            Some((id, token))
        })
        .collect();
    found.sort_by_key(|(id, _)| *id);
    found.dedup_by_key(|(id, _)| *id);
    found.into_iter().map(|(_, token)| token).collect()
}

/// A frame around a text, and around two: the second behind an end, and behind two of them in RoBERTa's.
fn frame(
    path: &Path,
    vocabulary: &Map<String, Value>,
    [begin, end]: [&str; 2],
    twice: bool,
) -> Result<Value> {
    let special =
        |name: &str, kind: usize| json!({ "SpecialToken": { "id": name, "type_id": kind } });
    let text = |name: &str, kind: usize| json!({ "Sequence": { "id": name, "type_id": kind } });
    let single = vec![special(begin, 0), text("A", 0), special(end, 0)];
    let second = if twice { 0 } else { 1 };
    let mut pair = single.clone();
    pair.extend(twice.then(|| special(end, 0)));
    pair.extend([text("B", second), special(end, second)]);
    let mut tokens = Map::new();
    for name in [begin, end] {
        let Some(id) = vocabulary.get(name) else {
            return Err(Error::content(path, format!("found no token {name}, expected it once")));
        };
        tokens.insert(name.into(), json!({ "id": name, "ids": [id], "tokens": [name] }));
    }
    Ok(
        json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens }),
    )
}

fn word_pieces(path: &Path, said: &Map<String, Value>) -> Result<Built> {
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    let vocabulary: Map<String, Value> =
        text.lines().enumerate().map(|(id, token)| (token.to_owned(), id.into())).collect();
    let named = named(&[
        ("cls_token", "[CLS]"),
        ("mask_token", "[MASK]"),
        ("pad_token", "[PAD]"),
        ("sep_token", "[SEP]"),
        ("unk_token", "[UNK]"),
    ]);
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added(&named, &vocabulary, false),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true,
            "handle_chinese_chars": flag(said, "tokenize_chinese_chars", true),
            "strip_accents": said.get("strip_accents").and_then(Value::as_bool),
            "lowercase": flag(said, "do_lower_case", true),
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": frame(path, &vocabulary, ["[CLS]", "[SEP]"], false)?,
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    });
    Ok(Built { file: "vocab.txt", json: json.to_string(), named })
}

fn byte_level(folder: &Path, said: &Map<String, Value>, ends: Option<[&str; 2]>) -> Result<Built> {
    let (path, merged) = (folder.join("vocab.json"), folder.join("merges.txt"));
    let vocabulary = object(&path)?;
    let text = fs::read_to_string(&merged).map_err(Error::file(&merged))?;
    let merges: Vec<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).collect();
    if let Some(line) = merges.iter().find(|line| line.split(' ').count() != 2) {
        let found = format!("found {line:?}, expected two pieces with a blank between them");
        return Err(Error::content(&merged, found));
    }
    let merges: Vec<Vec<&str>> = merges.iter().map(|line| line.split(' ').collect()).collect();
    let named = match ends {
        None => named(&[("bos_token", "<|endoftext|>"), ("eos_token", "<|endoftext|>")]),
        Some([begin, end]) => named(&[
            ("bos_token", begin),
            ("cls_token", begin),
            ("eos_token", end),
            ("mask_token", "<mask>"),
            ("pad_token", "<pad>"),
            ("sep_token", end),
            ("unk_token", "<unk>"),
        ]),
    };
    let frame = ends.map(|ends| frame(&path, &vocabulary, ends, true)).transpose()?;
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": flag(said, "add_prefix_space", false),
        "trim_offsets": true, "use_regex": true,
    });
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": added(&named, &vocabulary, true),
        "pre_tokenizer": bytes,
        "post_processor": frame,
        "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges,
        },
    });
    Ok(Built { file: "vocab.json", json: json.to_string(), named })
}
