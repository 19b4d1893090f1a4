//! Special tokens by id, from the model's own files, and what is said about generation and chat.

use std::{fs, path::Path};

use serde_json::{Map, Value};
use whatwhere_training::imported::{Imported, SpecialIds};

use super::config::Config;
use crate::{Error, error::Result};

/// What `generation_config.json` says that is no default of ours to take over.
const NOT_GENERATION: [&str; 3] = ["_from_model_config", "transformers_version", "use_cache"];

/// Keys of ids that stand before every target: a model must know them.
const BEFORE: [&str; 2] = ["decoder_start_token_id", "forced_bos_token_id"];
/// Keys of ids that are left out where the model does not know them.
const OTHERS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// Special ids, chat template and generation defaults, of a model that knows so many ids; `names` are those of special tokens
/// that the folder does not say. Beside them the ids that are left out, such as `bos_token_id = 50256`.
pub(crate) fn read(
    folder: &Path,
    config: &Config,
    tokenizer: Option<&str>,
    known: usize,
    names: &Map<String, Value>,
) -> Result<(Imported, Vec<String>)> {
    let mut generation = object(&folder.join("generation_config.json"))?;
    let mut named = object(&folder.join("tokenizer_config.json"))?;
    for (key, name) in names {
        named.entry(key.clone()).or_insert_with(|| name.clone());
    }
    let ids = |key: &str| -> Vec<u32> {
        let value = generation.get(key).filter(|value| !value.is_null()).or(config.get(key));
        match value {
            Some(Value::Array(all)) => all.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let is_known = |id: &u32| (*id as usize) < known;
    for key in BEFORE {
        if let Some(id) = ids(key).into_iter().find(|id| !is_known(id)) {
            let file =
                if generation.contains_key(key) { "generation_config.json" } else { "config.json" };
            let expected = format!("an id of a vocabulary of {known}; correct it in a copy");
            let found = format!("{key} = {id}, expected {expected}");
            return Err(Error::content(folder.join(file), found));
        }
    }
    let named_unknown = |key: &str| {
        let all = ids(key).into_iter().filter(|id| !is_known(id));
        all.map(|id| format!("{key} = {id}")).collect::<Vec<_>>()
    };
    let unknown: Vec<String> = OTHERS.into_iter().flat_map(named_unknown).collect();
    let ids = |key: &str| ids(key).into_iter().filter(is_known).collect::<Vec<u32>>();
    let vocabulary = tokenizer.map(Vocabulary::new).transpose()?.unwrap_or_default();
    // A tokenizer may have more tokens than the model.
    let by_name = |key: &str| named.get(key).and_then(|name| vocabulary.id(name)).filter(is_known);
    let first = |key: &str, name: &str| ids(key).first().copied().or_else(|| by_name(name));
    let mut ends = ids("eos_token_id");
    // A chat model may end its turns with a token of its own, which only its tokenizer names.
    ends.extend(by_name("eos_token").filter(|end| !ends.contains(end)));
    let specials = SpecialIds {
        begin: first("bos_token_id", "bos_token").or_else(|| by_name("cls_token")),
        ends,
        padding: first("pad_token_id", "pad_token"),
        mask: by_name("mask_token"),
        unknown: by_name("unk_token"),
        decoder_start: ids("decoder_start_token_id").first().copied(),
        forced_begin: match ids("forced_bos_token_id").first() {
            Some(forced) => Some(*forced),
            // The older words of BART for the same.
            None if config.flag("force_bos_token_to_be_generated", false)? => {
                ids("bos_token_id").first().copied()
            }
            None => None,
        },
    };
    let template = folder.join("chat_template.jinja");
    let chat_template = match template.is_file() {
        true => Some(fs::read_to_string(&template).map_err(Error::file(&template))?),
        false => named.get("chat_template").and_then(template_of),
    };
    generation.retain(|key, _| !NOT_GENERATION.contains(&key.as_str()));
    Ok((Imported { specials, chat_template, generation, ..Imported::default() }, unknown))
}

/// A file of one JSON object; empty if there is none.
pub(super) fn object(path: &Path) -> Result<Map<String, Value>> {
    if !path.is_file() {
        return Ok(Map::new());
    }
    let bytes = fs::read(path).map_err(Error::file(path))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::content(path, format!("found no JSON object ({e})")))
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// One template, or the one called default of several.
fn template_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(all) => {
            let named = |name: &str| all.iter().find(|one| one["name"] == name);
            named("default").or(all.first())?["template"].as_str().map(String::from)
        }
        _ => None,
    }
}

/// Ids of a `tokenizer.json` by name.
#[derive(Default)]
struct Vocabulary(Value);

impl Vocabulary {
    fn new(json: &str) -> Result<Self> {
        let read = serde_json::from_str(json);
        Ok(Self(
            read.map_err(|e| Error::content("tokenizer.json", format!("found no JSON ({e})")))?,
        ))
    }

    /// The id of a token by its name, or by an object that has it.
    fn id(&self, name: &Value) -> Option<u32> {
        let name = name.as_str().or(name["content"].as_str())?;
        let added = self.0["added_tokens"].as_array();
        let added = added.and_then(|all| all.iter().find(|token| token["content"] == name));
        if let Some(token) = added {
            return id(&token["id"]);
        }
        match &self.0["model"]["vocab"] {
            Value::Object(all) => id(all.get(name)?),
            Value::Array(all) => {
                let place = all.iter().position(|token| token[0] == name)?;
                u32::try_from(place).ok()
            }
            _ => None,
        }
    }
}
