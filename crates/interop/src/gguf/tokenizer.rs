//! The tokenizer of a GGUF file as a `tokenizer.json`: byte-level BPE from its merges, SentencePiece's BPE from its scores.

use std::{collections::HashMap, path::Path};

use serde_json::{Map, Value, json};

use crate::{Error, error::Result};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Rules of tokenizers that put a begin before a text, unless their file says otherwise, and take a whole word that they know
/// without looking at its merges.
const WHOLE_WORDS: [&str; 2] = [LLAMA3, TEKKEN];

/// llama.cpp's word for a rule that cuts text.
pub(super) fn name_of(rule: &str) -> Option<&'static str> {
    [(LLAMA3, "llama-bpe"), (QWEN2, "qwen2")]
        .into_iter()
        .find(|(known, _)| *known == rule)
        .map(|(_, name)| name)
}

/// How llama.cpp's words for pre-tokenizers cut text: a rule, and whether digits stand alone first.
fn pattern(pre: &str) -> Option<Cut> {
    Some(match pre {
        "gpt-2" | "gpt2" | "olmo" | "jais" | "phi-2" | "mpt" => Cut::Gpt2,
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => Cut::DigitsThenGpt2,
        "llama-bpe" | "llama3" | "llama-v3" | "dbrx" | "smaug-bpe" => Cut::Rule(LLAMA3),
        "qwen2" | "stablelm2" | "deepseek-r1-qwen" => Cut::Rule(QWEN2),
        "bloom" | "gpt3-finnish" => Cut::Rule(BLOOM),
        "tekken" => Cut::Rule(TEKKEN),
        _ => return None,
    })
}

/// Characters of a token that is looked at for its merges.
const LONGEST: usize = 256;

enum Cut {
    Gpt2,
    DigitsThenGpt2,
    Rule(&'static str),
}

impl Cut {
    fn knows_whole_words(&self) -> bool {
        matches!(self, Self::Rule(rule) if WHOLE_WORDS.contains(rule))
    }
}

/// The `tokenizer.json` of a file's lists; nothing if it has none.
pub(super) fn rebuild(path: &Path, values: &Map<String, Value>) -> Result<Option<String>> {
    let get = |key: &str| values.get(&format!("tokenizer.ggml.{key}"));
    let Some(kind) = get("model").and_then(Value::as_str).filter(|kind| *kind != "none") else {
        return Ok(None);
    };
    let list = |key: &str| get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or(&[]);
    let tokens: Vec<&str> = list("tokens").iter().map(|t| t.as_str().unwrap_or_default()).collect();
    let types: Vec<u64> = list("token_type").iter().map(|t| t.as_u64().unwrap_or(1)).collect();
    let wrong = |found: String| Error::content(path, found);
    let mut begins = kind != "gpt2";
    let json = match kind {
        "gpt2" => {
            let pre = get("pre").and_then(Value::as_str).unwrap_or("gpt-2");
            let cut = pattern(pre).ok_or_else(|| {
                wrong(format!("tokenizer.ggml.pre = {pre:?}, expected one whose rule is known, such as gpt-2, smollm, llama-bpe or qwen2"))
            })?;
            begins = cut.knows_whole_words();
            byte_level(&tokens, &types, list("merges"), &cut)
        }
        "llama" => {
            let scores: Vec<f64> =
                list("scores").iter().map(|s| s.as_f64().unwrap_or(f64::MIN)).collect();
            if scores.len() != tokens.len() {
                let (scores, tokens) = (scores.len(), tokens.len());
                return Err(wrong(format!(
                    "{scores} scores, expected one for each of {tokens} tokens"
                )));
            }
            let unknown = get("unknown_token_id").and_then(Value::as_u64).unwrap_or(0) as usize;
            let prefix = get("add_space_prefix").and_then(Value::as_bool).unwrap_or(true);
            pieces(&tokens, &types, &scores, tokens.get(unknown).copied(), prefix)
        }
        "bert" => word_pieces(&tokens, &types),
        other => {
            let found = format!("tokenizer.ggml.model = {other:?}, expected gpt2, llama or bert");
            return Err(wrong(found));
        }
    };
    let mut json = json;
    let adds = |key: &str, default| get(key).and_then(Value::as_bool).unwrap_or(default);
    let id = |key: &str| get(key).and_then(Value::as_u64).map(|id| id as usize);
    let bert = kind == "bert";
    let begin = id("bos_token_id").or(id("cls_token_id")).filter(|_| adds("add_bos_token", begins));
    let end =
        id("eos_token_id").or(id("seperator_token_id")).filter(|_| adds("add_eos_token", bert));
    json["post_processor"] = framing(&tokens, begin, end);
    Ok(Some(json.to_string()))
}

/// What stands around a text.
fn framing(tokens: &[&str], begin: Option<usize>, end: Option<usize>) -> Value {
    let named = |id: Option<usize>| id.and_then(|id| Some((*tokens.get(id)?, id)));
    let (begin, end) = (named(begin), named(end));
    if begin.is_none() && end.is_none() {
        return Value::Null;
    }
    let special = |token: Option<(&str, usize)>| {
        token.map(|(name, _)| json!({ "SpecialToken": { "id": name, "type_id": 0 } }))
    };
    let around = |text: &str| -> Vec<Value> {
        let text = json!({ "Sequence": { "id": text, "type_id": 0 } });
        [special(begin), Some(text), special(end)].into_iter().flatten().collect()
    };
    let (single, pair) = (around("A"), [around("A"), around("B")].concat());
    let all: Map<String, Value> = [begin, end]
        .into_iter()
        .flatten()
        .map(|(name, id)| (name.to_owned(), json!({ "id": name, "ids": [id], "tokens": [name] })))
        .collect();
    json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": all })
}

/// Tokens that are never made of others: control ones (3) and what users have added (4).
fn added(tokens: &[&str], types: &[u64]) -> Vec<Value> {
    let one = |(id, kind): (usize, &u64)| {
        let content = *tokens.get(id)?;
        let is_added = matches!(kind, 3 | 4) && !content.is_empty();
        is_added.then(|| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": *kind == 3,
            })
        })
    };
    types.iter().enumerate().filter_map(one).collect()
}

fn vocabulary(tokens: &[&str]) -> Map<String, Value> {
    tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect()
}

fn byte_level(tokens: &[&str], types: &[u64], merges: &[Value], cut: &Cut) -> Value {
    let bytes = |rule: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": rule });
    let digits = json!({ "type": "Digits", "individual_digits": true });
    let cuts = match cut {
        Cut::Gpt2 => vec![bytes(true)],
        Cut::DigitsThenGpt2 => vec![digits, bytes(true)],
        Cut::Rule(rule) => {
            let split = json!({
                "type": "Split", "pattern": { "Regex": rule }, "behavior": "Isolated", "invert": false,
            });
            vec![split, bytes(false)]
        }
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": added(tokens, types),
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": cuts },
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": cut.knows_whole_words(), "vocab": vocabulary(tokens), "merges": merges,
        },
    })
}

/// BERT's words, which the converter writes with `▁` before the first piece instead of `##` before the others.
fn word_pieces(tokens: &[&str], types: &[u64]) -> Value {
    let name = |(id, token): (usize, &&str)| {
        let is_word = matches!(types.get(id), None | Some(1));
        let name = match token.strip_prefix('▁') {
            Some(first) => first.to_owned(),
            None if is_word && !(token.starts_with('[') && token.ends_with(']')) => {
                format!("##{token}")
            }
            None => (*token).to_owned(),
        };
        (name, Value::from(id))
    };
    let vocabulary: Map<String, Value> = tokens.iter().enumerate().map(name).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added(tokens, types),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" }, "post_processor": null,
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    })
}

/// SentencePiece's BPE: the pair that makes the token with the best score is merged first.
fn pieces(
    tokens: &[&str],
    types: &[u64],
    scores: &[f64],
    unknown: Option<&str>,
    prefix: bool,
) -> Value {
    let ids: HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        let mut own: Vec<(usize, usize, &str, &str)> = token
            .char_indices()
            .skip(1)
            // Longer ones are no words, and quadratic.
            .take(LONGEST)
            .filter_map(|(at, _)| {
                let (left, right) = token.split_at(at);
                Some((*ids.get(left)?, *ids.get(right)?, left, right))
            })
            .collect();
        own.sort_unstable();
        merges.extend(own.into_iter().map(|(_, _, left, right)| (scores[id], left, right)));
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0));
    let merges: Vec<Value> = merges.iter().map(|(_, left, right)| json!([left, right])).collect();
    let replace = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let before = json!({ "type": "Prepend", "prepend": "▁" });
    let normalizers = if prefix { vec![before, replace] } else { vec![replace] };
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added(tokens, types),
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "pre_tokenizer": null, "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary(tokens), "merges": merges,
        },
    })
}
