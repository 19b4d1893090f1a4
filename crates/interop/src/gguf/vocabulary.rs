//! A `tokenizer.json` as GGUF's lists: the other way round than [`super::tokenizer`], with special tokens and the chat template.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use whatwhere_training::{Run, imported::SpecialIds};

use super::{tokenizer, write::Typed};
use crate::{Error, error::Result};

/// Types of tokens.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// SentencePiece's blank.
const BLANK: &str = "▁";

/// The values of a run's tokenizer; a model without one is asked by token ids.
pub(super) fn values(
    run: &Run,
    json: Option<&str>,
    vocabulary: usize,
) -> Result<Vec<(String, Typed)>> {
    let mut out: Vec<(String, Typed)> = Vec::new();
    let Some(json) = json else {
        out.push((key("model"), "none".into()));
        return Ok(out);
    };
    let file: Value = serde_json::from_str(json)
        .map_err(|e| Error::content("tokenizer.json", format!("found no JSON ({e})")))?;
    let lists = Lists::new(&file, vocabulary)?;
    let (model, mut more) = lists.model(&file)?;
    out.push((key("model"), model.into()));
    out.append(&mut more);
    let (begins, ends) = framing(&file, &lists);
    out.push((key("add_bos_token"), begins.into()));
    out.push((key("add_eos_token"), ends.into()));
    out.extend(specials(run, model));
    if let Some(template) = run.imported.as_ref().and_then(|i| i.chat_template.as_ref()) {
        out.push(("tokenizer.chat_template".into(), Typed::Text(template.clone())));
    }
    check(&file, &out)?;
    Ok(out)
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

fn refused(reason: &str) -> Error {
    Error::Refused(format!(
        "tokenizer: {reason}; --to huggingface and --to onnx keep tokenizer.json"
    ))
}

/// Special tokens by id.
fn specials(run: &Run, model: &str) -> Vec<(String, Typed)> {
    let Ok(tokenizer) = run.tokenizer() else { return Vec::new() };
    // What its own files said, or else what names say.
    let own = match &run.imported {
        Some(imported) => imported.specials.clone(),
        None => SpecialIds {
            begin: tokenizer.begin(),
            ends: tokenizer.end().into_iter().collect(),
            padding: tokenizer.padding(),
            mask: tokenizer.mask(),
            unknown: tokenizer.unknown(),
            ..SpecialIds::default()
        },
    };
    let mut ids = vec![
        ("bos", own.begin),
        ("eos", own.ends.first().copied()),
        ("eot", own.ends.get(1).copied()),
        ("padding", own.padding),
        ("mask", own.mask),
        ("unknown", own.unknown),
    ];
    if model == "bert" {
        // The format's own spelling.
        ids.extend([("cls", own.begin), ("seperator", own.ends.first().copied())]);
    }
    let one =
        |(name, id): (&str, Option<u32>)| Some((key(&format!("{name}_token_id")), Typed::U32(id?)));
    ids.into_iter().filter_map(one).collect()
}

/// Whether a token stands before and after a text.
fn framing(file: &Value, lists: &Lists) -> (bool, bool) {
    let post = &file["post_processor"];
    let parts: Vec<&Value> = match post["processors"].as_array() {
        Some(all) => all.iter().collect(),
        None => vec![post],
    };
    for part in parts {
        match part["type"].as_str() {
            Some("BertProcessing" | "RobertaProcessing") => return (true, true),
            Some("TemplateProcessing") => {
                let single = part["single"].as_array().map(Vec::as_slice).unwrap_or_default();
                let text = single.iter().position(|one| !one["Sequence"].is_null()).unwrap_or(0);
                let known = |one: &Value| {
                    one["SpecialToken"]["id"].as_str().is_some_and(|name| lists.has(name))
                };
                return (single[..text].iter().any(known), single.iter().skip(text + 1).any(known));
            }
            _ => {}
        }
    }
    (false, false)
}

/// Tokens and their types, by id.
struct Lists {
    tokens: Vec<String>,
    types: Vec<i32>,
}

impl Lists {
    fn new(file: &Value, vocabulary: usize) -> Result<Self> {
        let named: BTreeMap<usize, &str> = match &file["model"]["vocab"] {
            Value::Object(all) => all
                .iter()
                .filter_map(|(name, id)| Some((id.as_u64()? as usize, name.as_str())))
                .collect(),
            _ => return Err(refused("its model has no vocabulary by name (Unigram)")),
        };
        let empty = Vec::new();
        let added = file["added_tokens"].as_array().unwrap_or(&empty);
        let mut tokens: Vec<String> = (0..vocabulary).map(|id| format!("[PAD{id}]")).collect();
        let mut types = vec![UNUSED; vocabulary];
        let beyond = |id: usize| {
            refused(&format!("has a token with the id {id}, and the model {vocabulary} tokens"))
        };
        for (id, name) in named {
            *tokens.get_mut(id).ok_or_else(|| beyond(id))? = name.into();
            types[id] = NORMAL;
        }
        for token in added {
            let id = token["id"].as_u64().unwrap_or(u64::MAX) as usize;
            *tokens.get_mut(id).ok_or_else(|| beyond(id))? =
                token["content"].as_str().unwrap_or_default().into();
            types[id] = if token["special"] == true { CONTROL } else { USER };
        }
        Ok(Self { tokens, types })
    }

    fn has(&self, name: &str) -> bool {
        self.tokens.iter().any(|token| token == name)
    }

    /// The name of the model, and its lists.
    fn model(&self, file: &Value) -> Result<(&'static str, Vec<(String, Typed)>)> {
        let mut lists = Lists { tokens: self.tokens.clone(), types: self.types.clone() };
        let model = &file["model"];
        let (name, mut more) = match model["type"].as_str() {
            Some("BPE") if is_byte_level(file) => {
                let merges = merges(model)?.into_iter().map(|(a, b)| format!("{a} {b}")).collect();
                let pre = cut(file)?;
                ("gpt2", vec![(key("pre"), pre.into()), (key("merges"), Typed::Texts(merges))])
            }
            Some("BPE") => {
                let (scores, prefix) = lists.pieces(file)?;
                let more = vec![
                    (key("pre"), "default".into()),
                    (key("scores"), Typed::Floats(scores)),
                    (key("add_space_prefix"), prefix.into()),
                ];
                ("llama", more)
            }
            Some("WordPiece") => {
                lists.words(file)?;
                ("bert", vec![(key("pre"), "jina-v2-en".into())])
            }
            kind => {
                let kind = kind.unwrap_or("nothing");
                return Err(refused(&format!(
                    "{kind} has no name in GGUF, which has byte-level BPE, SentencePiece's BPE and WordPiece"
                )));
            }
        };
        more.push((key("tokens"), Typed::Texts(lists.tokens)));
        more.push((key("token_type"), Typed::Integers(lists.types)));
        Ok((name, more))
    }

    /// Scores for SentencePiece's BPE, of which the best pair is merged first, and whether a blank is put before a text.
    fn pieces(&mut self, file: &Value) -> Result<(Vec<f32>, bool)> {
        let model = &file["model"];
        let (spaces, prefix) = match &file["normalizer"] {
            Value::Null => (false, false),
            normalizer => {
                let parts = match normalizer["normalizers"].as_array() {
                    Some(all) => all.clone(),
                    None => vec![normalizer.clone()],
                };
                let is = |part: &Value, kind: &str| part["type"] == kind;
                let known = parts.iter().all(|part| is(part, "Prepend") || is(part, "Replace"));
                if !known {
                    return Err(refused("its normalizer has no name in GGUF"));
                }
                (true, parts.iter().any(|part| is(part, "Prepend")))
            }
        };
        if !file["pre_tokenizer"].is_null() {
            return Err(refused("its pre-tokenizer has no name in GGUF"));
        }
        // Characters of ours spell blanks as they are.
        if !spaces {
            if self.has(BLANK) {
                return Err(refused(&format!(
                    "has both a blank and {BLANK}, which is GGUF's blank"
                )));
            }
            for (token, kind) in self.tokens.iter_mut().zip(&self.types) {
                if *kind == NORMAL {
                    *token = token.replace(' ', BLANK);
                }
            }
        }
        let mut rank: HashMap<String, f32> = HashMap::new();
        for (i, (left, right)) in merges(model)?.into_iter().enumerate() {
            rank.entry(format!("{left}{right}")).or_insert(-(i as f32));
        }
        let unknown = model["unk_token"].as_str();
        for (token, kind) in self.tokens.iter().zip(&mut self.types) {
            if Some(token.as_str()) == unknown {
                *kind = UNKNOWN;
            } else if *kind == NORMAL && is_byte(token) {
                *kind = BYTE;
            }
        }
        let score = |token: &String| rank.get(token).copied().unwrap_or(-1e9);
        Ok((self.tokens.iter().map(score).collect(), prefix))
    }

    /// BERT's words, with `▁` before the first piece instead of `##` before the others.
    fn words(&mut self, file: &Value) -> Result<()> {
        let normalizer = &file["normalizer"];
        if normalizer["type"] != "BertNormalizer" || normalizer["lowercase"] != true {
            return Err(refused("GGUF's word pieces are of lower-case words (BertNormalizer)"));
        }
        for (token, kind) in self.tokens.iter_mut().zip(&self.types) {
            let is_special = token.starts_with('[') && token.ends_with(']');
            if *kind != NORMAL || is_special {
                continue;
            }
            *token = match token.strip_prefix("##") {
                Some(rest) => rest.into(),
                None => format!("{BLANK}{token}"),
            };
        }
        Ok(())
    }
}

fn is_byte(token: &str) -> bool {
    let inner = token.strip_prefix("<0x").and_then(|token| token.strip_suffix('>'));
    inner.is_some_and(|hex| hex.len() == 2 && u8::from_str_radix(hex, 16).is_ok())
}

/// Pairs in the order in which they are merged, in either spelling.
fn merges(model: &Value) -> Result<Vec<(&str, &str)>> {
    let all = model["merges"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut pairs = Vec::with_capacity(all.len());
    for merge in all {
        let found = match merge.as_array() {
            Some(pair) => match pair.as_slice() {
                [left, right] => left.as_str().zip(right.as_str()),
                _ => None,
            },
            None => merge.as_str().and_then(|merge| merge.split_once(' ')),
        };
        pairs.push(found.ok_or_else(|| refused("found merges that are no pairs"))?);
    }
    Ok(pairs)
}

/// The steps that cut a text.
fn cuts(file: &Value) -> Vec<&Value> {
    let cut = &file["pre_tokenizer"];
    match cut["pretokenizers"].as_array() {
        Some(all) => all.iter().collect(),
        None => vec![cut],
    }
}

fn is_byte_level(file: &Value) -> bool {
    cuts(file).iter().any(|cut| cut["type"] == "ByteLevel")
}

/// llama.cpp's word for the way a text is cut.
fn cut(file: &Value) -> Result<&'static str> {
    let unknown = || refused("cuts texts in a way that has no name in llama.cpp");
    if !file["normalizer"].is_null() && file["normalizer"]["type"] != "NFC" {
        return Err(refused("its normalizer has no name in GGUF"));
    }
    let none = file["model"]["merges"].as_array().is_none_or(Vec::is_empty);
    let cuts = cuts(file);
    let last = cuts.last().ok_or_else(unknown)?;
    if last["type"] != "ByteLevel" || last["add_prefix_space"] == true {
        return Err(unknown());
    }
    let by_rule = last["use_regex"] != false;
    match &cuts[..cuts.len() - 1] {
        // Where nothing is merged it does not matter how a text is cut.
        [] if by_rule || none => Ok("gpt-2"),
        [digits]
            if by_rule && digits["type"] == "Digits" && digits["individual_digits"] == true =>
        {
            Ok("smollm")
        }
        [split] if !by_rule && split["type"] == "Split" => {
            let rule = split["pattern"]["Regex"].as_str().unwrap_or_default();
            tokenizer::name_of(rule).ok_or_else(unknown)
        }
        _ => Err(unknown()),
    }
}

/// Rebuilds the tokenizer from the lists: it must have the same tokens and merges.
fn check(file: &Value, values: &[(String, Typed)]) -> Result<()> {
    let values: Map<String, Value> =
        values.iter().map(|(key, value)| (key.clone(), value.json())).collect();
    let again = tokenizer::rebuild(std::path::Path::new("tokenizer.json"), &values)?;
    let again: Value = again.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
    let pairs = |file: &Value| -> Result<Vec<(String, String)>> {
        Ok(merges(&file["model"])?.into_iter().map(|(a, b)| (a.into(), b.into())).collect())
    };
    if pairs(file)? != pairs(&again)? {
        return Err(refused("its merges are not those that SentencePiece's scores would make"));
    }
    Ok(())
}
