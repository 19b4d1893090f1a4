//! Special tokens by id, from the model's own files, and what is said about generation and chat.

use std::{fs, path::Path};

use serde_json::{Map, Value};
use whatwhere_training::imported::{Imported, SpecialIds};

use super::config::Config;
use crate::{Error, error::Result};

/// What `generation_config.json` says that is no default of ours to take over.
const NOT_GENERATION: [&str; 3] = ["_from_model_config", "transformers_version", "use_cache"];

/// Special ids, chat template and generation defaults.
pub(crate) fn read(folder: &Path, config: &Config, tokenizer: Option<&str>) -> Result<Imported> {
    let mut generation = object(&folder.join("generation_config.json"))?;
    let named = object(&folder.join("tokenizer_config.json"))?;
    let ids = |key: &str| -> Vec<u32> {
        let value = generation.get(key).filter(|value| !value.is_null()).or(config.get(key));
        match value {
            Some(Value::Array(all)) => all.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let vocabulary = tokenizer.map(Vocabulary::new).transpose()?.unwrap_or_default();
    let by_name = |key: &str| named.get(key).and_then(|name| vocabulary.id(name));
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
        forced_begin: ids("forced_bos_token_id").first().copied(),
    };
    let template = folder.join("chat_template.jinja");
    let chat_template = match template.is_file() {
        true => Some(fs::read_to_string(&template).map_err(Error::file(&template))?),
        false => named.get("chat_template").and_then(template_of),
    };
    generation.retain(|key, _| !NOT_GENERATION.contains(&key.as_str()));
    Ok(Imported { specials, chat_template, generation, ..Imported::default() })
}

/// A file of one JSON object; empty if there is none.
fn object(path: &Path) -> Result<Map<String, Value>> {
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
