//! A folder as transformers writes it: `config.json`, safetensors, and what it says of tokens.

pub(crate) mod config;
mod copies;
pub(crate) mod family;
mod layers;
mod pieces;
pub(crate) mod rotary;
pub(crate) mod settings;
mod specials;
mod unigram;
mod vocabulary;

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use whatwhere_training::imported::Imported;
use whatwhere_transformer::ModelSettings;

use crate::{
    Error, Model,
    error::Result,
    exchange,
    export::same::{differences, widened},
    table::Names,
    tensors::{Tensors, safetensors},
};
use config::Config;

/// The key of `config.json` that holds our settings, for a return without loss.
pub(crate) const OURS: &str = "whatwhere";

/// Files of tokenizers that are not read.
const UNREAD: [&str; 9] = [
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tekken.json",
];

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
    let names = (family.names)(&config);
    if let (Ok(tensors), Ok(names)) = (&mut tensors, &names) {
        rename(&mut tensors.entries, family.prefix);
        copies::stand_in(names, tensors, config.flag("tie_word_embeddings", true)?)?;
        config.tensors = tensors.entries.keys().cloned().collect();
    }
    let settings = (family.settings)(&config)?;
    let names = names?;
    config.finish()?;
    let mut settings = settings.model()?;
    let mut tensors = tensors?;
    if settings.tied && copies::unties(&names, &mut tensors)? {
        settings.tied = false;
        settings.check()?;
    }
    Ok(Opened { config, names, settings, tensors })
}

/// Reads a model folder; `each` hears how many parameters of how many are done.
pub(crate) fn read(folder: &Path, each: &mut dyn FnMut(usize, usize)) -> Result<Model> {
    let Opened { config, names, settings, tensors } = open(folder)?;
    let mut parameters = exchange::take(&names, &tensors, &settings, each)?;
    let settings = match config.table(OURS)? {
        None => settings,
        Some(said) => own(folder, &said.values(), settings, &mut parameters)?,
    };
    let path = folder.join("tokenizer.json");
    let (tokenizer, names) = match path.is_file() {
        true => {
            let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
            (Some((path, text)), serde_json::Map::new())
        }
        false => match built(folder, &config.model_type()?)? {
            Some(vocabulary::Built { file, json, named }) => {
                (Some((folder.join(file), json)), named)
            }
            None => (None, serde_json::Map::new()),
        },
    };
    let unread = match tokenizer {
        Some(_) => None,
        None => UNREAD.iter().find(|name| folder.join(name).is_file()).map(|name| (*name).into()),
    };
    let text = tokenizer.as_ref().map(|(_, text)| text.as_str());
    let (specials, unknown) = specials::read(folder, &config, text, settings.vocabulary, &names)?;
    let imported = Imported {
        origin: folder.display().to_string(),
        family: config.model_type()?,
        context: context(&config)?,
        config: config.values(),
        ..specials
    };
    let mut files = tensors.files;
    files.push(folder.join("config.json"));
    Ok(Model { settings, parameters, tokenizer, unread, unknown, imported, files })
}

/// A tokenizer of a folder's other files.
fn built(folder: &Path, family: &str) -> Result<Option<vocabulary::Built>> {
    match vocabulary::build(folder, family)? {
        None => unigram::build(folder, family),
        built => Ok(built),
    }
}

/// Our own settings of a model that we wrote, which must be what the rest of its config means. Biases of zeros that only the
/// family asked for are left out again.
fn own(
    folder: &Path,
    said: &serde_json::Map<String, Value>,
    read: ModelSettings,
    parameters: &mut Vec<whatwhere_transformer::Parameter>,
) -> Result<ModelSettings> {
    let wrong = |found: String| Error::content(folder.join("config.json"), found);
    let own: ModelSettings = serde_json::from_value(Value::Object(said.clone()))
        .map_err(|e| wrong(format!("{OURS}: found {e}, expected settings of a model")))?;
    own.check()?;
    let differs = match differences(&read, &own)? {
        differs if differs.is_empty() => return Ok(own),
        differs => differs,
    };
    let wide = widened(&own);
    if wide.check().is_err() || !differences(&read, &wide)?.is_empty() {
        let first = &differs[0];
        let reason = format!(
            "{OURS}: {first}; one of both was changed: take {OURS} out of a copy to read the rest"
        );
        return Err(wrong(reason));
    }
    let shapes: BTreeMap<String, Vec<usize>> = own.shapes()?.into_iter().collect();
    let mut left = Vec::with_capacity(shapes.len());
    for parameter in parameters.drain(..) {
        if shapes.contains_key(&parameter.name) {
            left.push(parameter);
        } else if parameter.values.iter().any(|value| *value != 0.0) {
            let name = &parameter.name;
            let reason = format!(
                "{OURS}: has no {name}, which is not zero; take {OURS} out of a copy to read the rest"
            );
            return Err(wrong(reason));
        }
    }
    *parameters = left;
    Ok(own)
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
