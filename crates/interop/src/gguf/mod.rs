//! GGUF, llama.cpp's one file: the same families by a second table of names, with the tokenizer rebuilt from its lists.

mod export;
mod metadata;
mod names;
pub(crate) mod reader;
mod said;
mod tokenizer;
mod vocabulary;
mod write;

pub use export::{Weights, to_gguf};

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value};
use whatwhere_training::imported::{Imported, SpecialIds};
use whatwhere_transformer::ModelSettings;

use crate::{
    Error, Model,
    error::Result,
    exchange::{self, Source},
    huggingface::{config::Config, family},
    table::{Names, at, fits},
    tensors::{Array, Tensors},
    turn::{Heads, Split, Turn},
};
use names::{ARCHITECTURES, Architecture, Done};

/// Reads a file; `each` hears how many parameters of how many are done.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(usize, usize)) -> Result<Model> {
    let reader::Header { values, tensors } = reader::read(path)?;
    let Meant { architecture, config, settings, names, source } =
        meant(path, &values, tensors, BTreeMap::new())?;
    let name = architecture.name;
    let parameters = exchange::take(&names, &source, &settings, each)?;
    let tokenizer = tokenizer::rebuild(path, &values)?.map(|text| (path.to_owned(), text));
    let (specials, unknown) = specials(&values, settings.vocabulary);
    let imported = Imported {
        origin: path.display().to_string(),
        family: architecture.model_type.into(),
        context: values
            .get(&format!("{name}.context_length"))
            .and_then(Value::as_u64)
            .map(|n| n as usize),
        config: config.values(),
        specials,
        chat_template: values
            .get("tokenizer.chat_template")
            .and_then(Value::as_str)
            .map(String::from),
        ..Imported::default()
    };
    let files = source.tensors.files;
    Ok(Model { settings, parameters, tokenizer, unread: None, unknown, imported, files })
}

/// What a header means.
struct Meant {
    architecture: &'static Architecture,
    config: Config,
    settings: ModelSettings,
    names: Names,
    source: Renamed,
}

/// Reads a header; `made` are tensors that are at hand and in no file.
fn meant(
    path: &Path,
    values: &Map<String, Value>,
    tensors: Tensors,
    made: BTreeMap<String, Array>,
) -> Result<Meant> {
    let name = values.get("general.architecture").and_then(Value::as_str).unwrap_or_default();
    if values.get("split.count").and_then(Value::as_u64).is_some_and(|count| count > 1) {
        let count = &values["split.count"];
        let found = format!(
            "split.count = {count}, one of {count} files, expected a model in one: llama-gguf-split --merge FIRST OUT makes it"
        );
        return Err(Error::content(path, found));
    }
    let Some(architecture) = ARCHITECTURES.iter().find(|known| known.name == name) else {
        if let Some(reason) = names::refusal(name) {
            let found = format!("general.architecture = {name:?} is not imported: it is {reason}");
            return Err(Error::content(path, found));
        }
        let known: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        let known = known.join(", ");
        let found = format!("general.architecture = {name:?}, expected one of {known}");
        return Err(Error::content(path, found));
    };
    let mut source = Renamed::new(architecture, tensors)?;
    source.made = made;
    let mut config = metadata::config(path, architecture, values, &mut source)?;
    config.tensors = source.names.keys().cloned().collect();
    let family = family::find(&config)?;
    let settings = (family.settings)(&config)?;
    let names = (family.names)(&config)?;
    config.finish()?;
    Ok(Meant { architecture, config, settings: settings.model()?, names, source })
}

/// Special tokens, and those that are left out because the model has no such token; the largest number stands for none.
fn specials(values: &Map<String, Value>, known: usize) -> (SpecialIds, Vec<String>) {
    let id = |name: &str| {
        let value = values.get(&format!("tokenizer.ggml.{name}_token_id"));
        let id = value.and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        id.filter(|id| *id != u32::MAX)
    };
    let names = ["bos", "eos", "eot", "padding", "mask", "unknown"];
    let unknown = names.iter().filter_map(|name| {
        let id = id(name).filter(|id| *id as usize >= known)?;
        Some(format!("tokenizer.ggml.{name}_token_id = {id}"))
    });
    let unknown = unknown.collect();
    let id = |name: &str| id(name).filter(|id| (*id as usize) < known);
    let mut ends: Vec<u32> = id("eos").into_iter().collect();
    ends.extend(id("eot").filter(|end| !ends.contains(end)));
    let specials = SpecialIds {
        begin: id("bos"),
        ends,
        padding: id("padding"),
        mask: id("mask"),
        unknown: id("unknown"),
        ..SpecialIds::default()
    };
    (specials, unknown)
}

/// Tensors under the names of transformers.
struct Renamed {
    tensors: Tensors,
    /// The name of transformers: the file's, and what was done to it.
    names: BTreeMap<String, (String, Done)>,
    /// For what was permuted or sorted.
    heads: Heads,
    /// Tensors that say something of the settings and are in no file.
    made: BTreeMap<String, Array>,
}

impl Renamed {
    fn new(architecture: &Architecture, tensors: Tensors) -> Result<Self> {
        let mut names = BTreeMap::new();
        for name in tensors.entries.keys() {
            let row = architecture.rows.iter().find(|(theirs, ..)| fits(theirs, name));
            let (known, done) = match row {
                Some((_, known, done)) => {
                    let layer = name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0);
                    (at(known, layer), *done)
                }
                // Kept under its own name, which the table then refuses.
                None => (name.clone(), Done::Nothing),
            };
            if names.insert(known, (name.clone(), done)).is_some() {
                return Err(Error::tensor(name, "it under two numbers", "it once"));
            }
        }
        let heads = Heads { heads: 1, kv_heads: 1, head_dim: 1 };
        Ok(Self { tensors, names, heads, made: BTreeMap::new() })
    }

    /// Takes a tensor away that says something of the settings.
    fn take(&mut self, name: &str) -> Result<Option<Array>> {
        if let Some(array) = self.made.remove(name) {
            return Ok(Some(array));
        }
        match self.names.remove(name) {
            None => Ok(None),
            Some((name, _)) => self.tensors.read(&name).map(Some),
        }
    }
}

impl Source for Renamed {
    fn shapes(&self) -> BTreeMap<&str, &[usize]> {
        let shape = |own: &String| &self.tensors.entries[own].shape[..];
        self.names.iter().map(|(name, (own, _))| (name.as_str(), shape(own))).collect()
    }

    fn read(&self, name: &str) -> Result<Array> {
        let (own, done) = &self.names[name];
        let array = self.tensors.read(own)?;
        let heads = self.heads;
        let shape = array.shape.clone();
        match done {
            Done::Nothing => Some(array),
            Done::Permuted => Turn::Unpermute.take(array, heads),
            Done::PlusOne => Turn::PlusOne.give(array, heads),
            Done::Transposed => Turn::Transpose.take(array, heads),
            Done::Thirds => {
                let parts = Split::ByThird.take(&array, 3, heads);
                parts.and_then(|parts| Split::ByHead.give(&parts, heads))
            }
        }
        .ok_or_else(|| {
            let expected = format!("rows of heads of {}, or a matrix", heads.head_dim);
            Error::tensor(own, format!("shape {shape:?}"), expected)
        })
    }
}
