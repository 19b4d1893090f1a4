//! The tokenizer of a folder that has a model of SentencePiece but no `tokenizer.json`, put together as the family's own class
//! in transformers does. Models that merge pieces (BPE), and files that are none, are not read.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    pieces::{CONTROL, Pieces, USER},
    specials::object,
    vocabulary::Built,
};
use crate::{Error, error::Result};

/// Names of a family's file.
const FILES: [(&str, &str); 8] = [
    ("albert", "spiece.model"),
    ("deberta-v2", "spm.model"),
    ("m2m_100", "sentencepiece.bpe.model"),
    ("marian", "source.spm"),
    ("mt5", "spiece.model"),
    ("t5", "spiece.model"),
    ("xlm-roberta", "sentencepiece.bpe.model"),
    ("xlnet", "spiece.model"),
];

/// A score of pieces that a source is not cut into.
const NEVER: f64 = -1e6;

type Tokens = Vec<(String, f64)>;

/// Builds it, if the folder has the file of its family.
pub(super) fn build(folder: &Path, family: &str) -> Result<Option<Built>> {
    let Some((_, file)) = FILES.iter().find(|(name, _)| *name == family) else { return Ok(None) };
    let path = folder.join(file);
    if !path.is_file() || folder.join("added_tokens.json").is_file() {
        return Ok(None);
    }
    let said = object(&folder.join("tokenizer_config.json"))?;
    let class = said.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    let class = class.trim_end_matches("Fast").trim_end_matches("Tokenizer").to_lowercase();
    let own = family.replace(['-', '_'], "");
    if !class.is_empty() && class != own && (family, class.as_str()) != ("mt5", "t5") {
        return Ok(None);
    }
    let Some(pieces) = Pieces::read(&path)?.filter(|pieces| pieces.unigram) else {
        return Ok(None);
    };
    let flag = |key: &str, default| said.get(key).and_then(Value::as_bool).unwrap_or(default);
    let own: Tokens = pieces.all.iter().map(|piece| (piece.text.clone(), piece.score)).collect();
    let end = json!({ "type": "Strip", "strip_left": false, "strip_right": true });
    let joined = replaced("Regex", " {2,}", "▁");
    let single = replaced("Regex", " {2,}", " ");
    let plain = || pieces.normalizer(vec![], vec![end.clone(), joined.clone()]);
    let mut unknown = pieces.unknown;
    let mut special: Vec<String> = Vec::new();
    let (tokens, normalizer, frame, named): (_, _, Frame, &[(&str, &str)]) = match family {
        "t5" | "mt5" => {
            let more = said.get("extra_ids").and_then(Value::as_u64);
            // mT5's pieces are all of its vocabulary.
            let more = more.unwrap_or(if family == "t5" { 100 } else { 0 }).min(10_000);
            special.extend((0..more).rev().map(|i| format!("<extra_id_{i}>")));
            let mut tokens = own;
            tokens.extend(special.iter().map(|name| (name.clone(), 0.0)));
            special.push("<unk>".into());
            (
                tokens,
                plain(),
                ["", "</s>"],
                &[("eos_token", "</s>"), ("pad_token", "<pad>"), ("unk_token", "<unk>")],
            )
        }
        "xlm-roberta" => {
            special.extend(["<s>", "<pad>", "</s>", "<unk>", "<mask>"].map(String::from));
            unknown = 3;
            let mut tokens: Tokens = special[..4].iter().map(|name| (name.clone(), 0.0)).collect();
            tokens.extend(own.into_iter().skip(3));
            tokens.push(("<mask>".into(), 0.0));
            (tokens, plain(), ["<s>", "</s>"], ROBERTA)
        }
        "deberta-v2" => {
            let lower = flag("do_lower_case", false).then(|| json!({ "type": "Lowercase" }));
            let strip = json!({ "type": "Strip", "strip_left": true, "strip_right": true });
            let first = lower.into_iter().chain([strip]).collect();
            // The mask stands behind all pieces.
            let mut tokens = own;
            if !tokens.iter().any(|(name, _)| name == "[MASK]") {
                tokens.push(("[MASK]".into(), 0.0));
            }
            special.extend(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"].map(String::from));
            (tokens, pieces.normalizer(first, vec![single]), ["[CLS]", "[SEP]"], BERT)
        }
        "albert" | "xlnet" => {
            let mut first = vec![replaced("String", "``", "\""), replaced("String", "''", "\"")];
            if !flag("keep_accents", false) {
                first.extend([json!({ "type": "NFKD" }), json!({ "type": "StripAccents" })]);
            }
            if flag("do_lower_case", family == "albert") {
                first.push(json!({ "type": "Lowercase" }));
            }
            let tokens = own.into_iter().map(digits_stand_alone).collect();
            let normalizer = pieces.normalizer(first, vec![single]);
            match family {
                "albert" => (tokens, normalizer, ["[CLS]", "[SEP]"], ALBERT),
                _ => (tokens, normalizer, ["", "<sep>|<cls>"], XLNET),
            }
        }
        _ => {
            let path = folder.join("vocab.json");
            if !path.is_file() || folder.join("target_vocab.json").is_file() {
                return Ok(None);
            }
            let mut listed = listed(&path, &own)?;
            let at =
                |listed: &Tokens, name: &str| listed.iter().position(|(token, _)| token == name);
            let lost = || Error::content(&path, "found no token <unk>, expected it once");
            unknown = at(&listed, "<unk>").ok_or_else(lost)?;
            special
                .extend(listed.iter().map(|(name, _)| name).filter(|name| is_code(name)).cloned());
            special.extend(["<s>", "<pad>", "</s>", "<unk>"].map(String::from));
            // M2M-100's languages stand behind all tokens of the list.
            if family == "m2m_100" {
                let map = object(&folder.join("special_tokens_map.json"))?;
                let more =
                    said.get("additional_special_tokens").or(map.get("additional_special_tokens"));
                let names = more.and_then(Value::as_array).into_iter().flatten();
                for name in names.filter_map(|name| name.as_str().or(name["content"].as_str())) {
                    if at(&listed, name).is_none() {
                        special.push(name.into());
                    }
                }
                let beyond = special.iter().filter(|name| name.starts_with("__"));
                listed.extend(beyond.map(|name| (name.clone(), 0.0)));
            }
            (listed, plain(), ["", "</s>"], MARIAN)
        }
    };
    let kinds = pieces.all.iter().filter(|piece| matches!(piece.kind, CONTROL | USER));
    special.extend(kinds.map(|piece| piece.text.clone()));
    let added = added(&tokens, &special, &pieces);
    let post = framed(&path, &tokens, frame)?;
    let space = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true });
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": space, "post_processor": post, "decoder": space,
        "model": pieces.model(&tokens, unknown),
    });
    let named: Map<String, Value> =
        named.iter().map(|(key, name)| ((*key).to_owned(), (*name).into())).collect();
    Ok(Some(Built { file, json: json.to_string(), named }))
}

/// What stands before and after a text, several with a bar between them.
type Frame = [&'static str; 2];

const ALBERT: &[(&str, &str)] = &[
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
    ("pad_token", "<pad>"),
    ("sep_token", "[SEP]"),
    ("unk_token", "<unk>"),
];
const BERT: &[(&str, &str)] = &[
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
    ("pad_token", "[PAD]"),
    ("sep_token", "[SEP]"),
    ("unk_token", "[UNK]"),
];
const MARIAN: &[(&str, &str)] =
    &[("eos_token", "</s>"), ("pad_token", "<pad>"), ("unk_token", "<unk>")];
const ROBERTA: &[(&str, &str)] = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("mask_token", "<mask>"),
    ("pad_token", "<pad>"),
    ("unk_token", "<unk>"),
];
const XLNET: &[(&str, &str)] = &[
    ("cls_token", "<cls>"),
    ("mask_token", "<mask>"),
    ("pad_token", "<pad>"),
    ("sep_token", "<sep>"),
    ("unk_token", "<unk>"),
];

fn replaced(kind: &str, found: &str, by: &str) -> Value {
    json!({ "type": "Replace", "pattern": { kind: found }, "content": by })
}

/// Their class cuts a comma off the digits before it.
fn digits_stand_alone((name, score): (String, f64)) -> (String, f64) {
    let before = name.strip_suffix(',').and_then(|rest| rest.chars().last());
    let is_number = name.chars().count() > 1 && before.is_some_and(char::is_numeric);
    (name, if is_number { score - 100.0 } else { score })
}

/// Tokens in the order of `vocab.json`, with the scores of the source's pieces.
fn listed(path: &Path, own: &Tokens) -> Result<Tokens> {
    let scores: std::collections::HashMap<&str, f64> =
        own.iter().map(|(name, score)| (name.as_str(), *score)).collect();
    let named = object(path)?;
    let mut tokens: Vec<Option<(String, f64)>> = vec![None; named.len()];
    for (name, id) in named {
        let place = id.as_u64().and_then(|id| tokens.get_mut(usize::try_from(id).ok()?));
        let never = NEVER * name.chars().count().max(1) as f64;
        let score = scores.get(name.as_str()).copied().unwrap_or(never);
        match place {
            Some(place) if place.is_none() => *place = Some((name, score)),
            _ => {
                let found =
                    format!("found {name:?} as {id}, expected a number for each token from 0 on");
                return Err(Error::content(path, found));
            }
        }
    }
    Ok(tokens.into_iter().flatten().collect())
}

/// Whether a token is one of Marian's languages, such as `>>fr<<`.
fn is_code(name: &str) -> bool {
    name.starts_with(">>") && name.ends_with("<<")
}

/// Tokens that are never made of others, in the order of their numbers.
fn added(tokens: &Tokens, special: &[String], pieces: &Pieces) -> Vec<Value> {
    let is_user =
        |name: &String| pieces.all.iter().any(|piece| piece.kind == USER && piece.text == *name);
    let set: std::collections::BTreeSet<&String> = special.iter().collect();
    let all = tokens.iter().enumerate().filter(|(_, (name, _))| set.contains(name));
    all.map(|(id, (name, _))| {
        json!({
            "id": id, "content": name, "single_word": false, "lstrip": name.contains("mask"), "rstrip": false,
            // What is special is plain text in a text, and a code of a language is meant there.
            "normalized": false, "special": !is_user(name) && !is_code(name),
        })
    })
    .collect()
}

fn framed(path: &Path, tokens: &Tokens, [before, after]: Frame) -> Result<Value> {
    let special = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let words = |side: &'static str| side.split('|').filter(|name| !name.is_empty());
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    let side = |side| words(side).map(special).collect::<Vec<_>>();
    let single = [side(before), vec![text("A")], side(after)].concat();
    let pair = [single.clone(), vec![text("B")], side(after)].concat();
    let mut ids = Map::new();
    for name in words(before).chain(words(after)) {
        let Some(id) = tokens.iter().position(|(token, _)| token == name) else {
            return Err(Error::content(path, format!("found no token {name}, expected it once")));
        };
        ids.insert(name.into(), json!({ "id": name, "ids": [id], "tokens": [name] }));
    }
    Ok(
        json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids }),
    )
}
