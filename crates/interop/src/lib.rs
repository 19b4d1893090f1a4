//! Models of others as run folders: what transformers writes and what llama.cpp reads.
//!
//! A family is one file in `huggingface/family/` with two things: from `config.json` to our settings, and a table of names
//! with the turns between their tensors and our parameters. Every turn can be undone, every tensor of a file is used or
//! listed as ignored, and every key of `config.json` is understood or refused by name. Start at [`import`]; [`to_huggingface`],
//! [`to_gguf`] and [`to_onnx`] go the other way,
//! and the [`doctor`] says in which convention a model differs from what it should be.

pub mod convert;
pub mod doctor;
mod error;
mod exchange;
mod export;
mod gguf;
mod give;
mod huggingface;
pub mod kit;
mod onnx;
mod places;
mod table;
mod tensors;
#[cfg(test)]
mod tests;
mod turn;

use std::path::{Path, PathBuf};

use serde::Serialize;
use whatwhere_training::{Folder, imported::Imported};
use whatwhere_transformer::{ModelSettings, Parameter};

pub use error::{Error, Result};
pub use export::{Exported, to_huggingface};
pub use gguf::{Weights, to_gguf};
pub use onnx::to_onnx;

/// A model that has been read.
struct Model {
    settings: ModelSettings,
    parameters: Vec<Parameter>,
    /// A `tokenizer.json`, and the file that it is or was made of.
    tokenizer: Option<(PathBuf, String)>,
    /// The file of a tokenizer that is not read.
    unread: Option<String>,
    /// Special tokens that it does not have.
    unknown: Vec<String>,
    imported: Imported,
    /// The files it came from.
    files: Vec<PathBuf>,
}

/// What an import has done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The run folder.
    pub run: PathBuf,
    /// The model's own name of its family.
    pub family: String,
    /// Learned values.
    pub parameters: usize,
    /// Tokens that can be told apart.
    pub vocabulary: usize,
    /// Whether it brought a tokenizer.
    pub tokenizer: bool,
    /// The file of a tokenizer that it brought and that is not read, such as `spiece.model`.
    pub unread_tokenizer: Option<String>,
    /// Special tokens of its files that it does not have, and that were left out, such as `bos_token_id = 50256`.
    pub unknown_tokens: Vec<String>,
}

/// Reads a model folder as transformers writes it, or a GGUF file, and writes it as a run folder, which must not hold a run yet; `each`
/// hears how many parameters of how many are done.
pub fn import(path: &Path, out: &Path, each: &mut dyn FnMut(usize, usize)) -> Result<Summary> {
    let folder = Folder::new(out);
    if folder.has_run() {
        return Err(whatwhere_training::Error::RunExists { folder: out.into() }.into());
    }
    let mut model = match path.is_file() {
        true => gguf::read(path, each)?,
        false => huggingface::read(path, each)?,
    };
    if let Some((path, text)) = &model.tokenizer {
        whatwhere_data::Tokenizer::from_json(text.as_bytes())
            .map_err(|e| Error::content(path, e))?;
    }
    model.imported.hash_files(&model.files)?;
    let Model { settings, parameters, tokenizer, unread, unknown, imported, .. } = model;
    let summary = Summary {
        run: out.into(),
        family: imported.family.clone(),
        parameters: parameters.iter().map(|parameter| parameter.values.len()).sum(),
        vocabulary: settings.vocabulary,
        tokenizer: tokenizer.is_some(),
        unread_tokenizer: unread,
        unknown_tokens: unknown,
    };
    imported.save(
        &folder,
        settings,
        &parameters,
        tokenizer.as_ref().map(|(_, text)| text.as_str()),
    )?;
    Ok(summary)
}
