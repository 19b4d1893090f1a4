//! A folder as transformers writes it: `config.json`, safetensors, and what it says of tokens.

pub(crate) mod config;
pub(crate) mod family;
mod layers;
mod rotary;
pub(crate) mod settings;
mod specials;

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use whatwhere_training::imported::Imported;
use whatwhere_transformer::ModelSettings;

use crate::{
    Error, Model,
    error::Result,
    exchange,
    table::Names,
    tensors::{Tensors, safetensors},
};
use config::Config;

/// A model folder whose config and headers have been read.
pub(crate) struct Opened {
    pub(crate) config: Config,
    pub(crate) names: Names,
    pub(crate) settings: ModelSettings,
    pub(crate) tensors: Tensors,
}

/// Reads the config and the headers of a model folder.
pub(crate) fn open(folder: &Path) -> Result<Opened> {
    let path = folder.join("config.json");
    if !path.is_file() {
        let found = "found no config.json, expected a model folder as transformers writes it, or a GGUF file";
        return Err(Error::content(folder, found));
    }
    let mut config = Config::read(&path)?;
    let family = family::find(&config)?;
    config.only("quantization_config", Value::Null)?;
    // What the config says is refused first, whatever the files of tensors are.
    let mut tensors = safetensors::open(folder);
    if let Ok(tensors) = &mut tensors {
        rename(&mut tensors.entries, family.prefix);
        config.tensors = tensors.entries.keys().cloned().collect();
    }
    let settings = (family.settings)(&config)?;
    let names = (family.names)(&config)?;
    config.finish()?;
    let settings = settings.model()?;
    Ok(Opened { config, names, settings, tensors: tensors? })
}

/// Reads a model folder; `each` hears how many parameters of how many are done.
pub(crate) fn read(folder: &Path, each: &mut dyn FnMut(usize, usize)) -> Result<Model> {
    let Opened { config, names, settings, tensors } = open(folder)?;
    let parameters = exchange::take(&names, &tensors, &settings, each)?;
    let tokenizer = folder.join("tokenizer.json");
    let tokenizer = match tokenizer.is_file() {
        true => Some(fs::read_to_string(&tokenizer).map_err(Error::file(&tokenizer))?),
        false => None,
    };
    let imported = Imported {
        origin: folder.display().to_string(),
        family: config.model_type()?,
        context: context(&config)?,
        config: config.values(),
        ..specials::read(folder, &config, tokenizer.as_deref())?
    };
    let mut files = tensors.files;
    files.push(folder.join("config.json"));
    Ok(Model { settings, parameters, tokenizer, imported, files })
}

/// The longest text it was made for, by the name each family has for it.
fn context(config: &Config) -> Result<Option<usize>> {
    for key in ["max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"] {
        if let Some(length) = config.count_if(key)? {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

/// Names as the table has them: with the prefix that a model without a head leaves out, and without names of before.
fn rename<T>(entries: &mut BTreeMap<String, T>, prefix: &str) {
    let bare = !entries.keys().any(|name| name.starts_with(prefix));
    let all = std::mem::take(entries);
    entries.extend(all.into_iter().map(|(name, entry)| {
        let name = name.replace("LayerNorm.gamma", "LayerNorm.weight");
        let name = name.replace("LayerNorm.beta", "LayerNorm.bias");
        (if bare { format!("{prefix}{name}") } else { name }, entry)
    }));
}
