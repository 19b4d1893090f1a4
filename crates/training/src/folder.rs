//! The run folder: the only thing that training hands to everything after it.
//!
//! | file | content |
//! |---|---|
//! | `run.json` | the format of the folder, and the program that wrote it |
//! | `config.toml` | the settings, every value written out |
//! | `tokenizer.json` | in the format of the `tokenizers` library |
//! | `data.json` | what each split has: documents, bytes, tokens, and which documents are held out |
//! | `model.safetensors` | the weights with the best validation loss (the last ones where nothing is validated) |
//! | `last.safetensors` | weights, optimizer and data state of the last checkpoint, to go on from |
//! | `adapter.safetensors` | of a run with adapters: what it learned, apart from the weights of `model.safetensors` |
//! | `transfer.json` | of a run that started from another: what was taken, drawn and left out |
//! | `import.json` | of a model that was not trained here: where it came from, its special tokens, its chat template |
//! | `metrics.jsonl` | one record per line |
//! | `events.out.tfevents.*` | the same for TensorBoard |

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use whatwhere_data::{Description, Tokenizer};
use whatwhere_files as files;

use crate::{Error, RunSettings, hash, imported::Imported, trainer::saving};

/// The format of run folders that this program writes; it reads all before it but what 2 renamed. 2: `positions` of the
/// pattern `global` and the parameter `center` of `predicted`, which were `places` and `place`. 1: files with hashes. 0,
/// without a `run.json`: files without.
pub(crate) const FORMAT: u64 = 2;

/// What `run.json` says.
#[derive(Deserialize, Serialize)]
struct Written {
    format: u64,
    version: String,
}

/// The names inside a run folder.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder that may not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `config.toml`.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// `tokenizer.json`.
    pub fn tokenizer(&self) -> PathBuf {
        self.0.join("tokenizer.json")
    }

    /// `data.json`.
    pub fn data(&self) -> PathBuf {
        self.0.join("data.json")
    }

    /// `model.safetensors`.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// `last.safetensors`.
    pub fn last(&self) -> PathBuf {
        self.0.join("last.safetensors")
    }

    /// `adapter.safetensors`.
    pub fn adapter(&self) -> PathBuf {
        self.0.join("adapter.safetensors")
    }

    /// `transfer.json`.
    pub fn transfer(&self) -> PathBuf {
        self.0.join("transfer.json")
    }

    /// `import.json`.
    pub fn import(&self) -> PathBuf {
        self.0.join("import.json")
    }

    /// `metrics.jsonl`.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// Whether a run has begun here.
    pub fn has_run(&self) -> bool {
        self.config().is_file()
    }

    /// `run.json`.
    fn written(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Writes the format.
    pub(crate) fn save_format(&self) -> Result<(), Error> {
        let written = Written { format: FORMAT, version: env!("CARGO_PKG_VERSION").into() };
        let text = serde_json::to_string(&written).expect("words can be written");
        Ok(files::replace(&self.written(), |writer| writeln!(writer, "{text}"))?)
    }

    /// Refuses a folder of a later program.
    fn check_format(&self) -> Result<(), Error> {
        let path = self.written();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::file(&path, "read")(e)),
        };
        let Written { format, version } = serde_json::from_slice(&text)
            .map_err(|e| Error::Settings(format!("{}: found {e}", path.display())))?;
        if format <= FORMAT {
            return Ok(());
        }
        Err(Error::Format { folder: self.0.clone(), found: format, version, known: FORMAT })
    }

    /// Writes the tokenizer; returns its hash.
    pub(crate) fn save_tokenizer(&self, tokenizer: &Tokenizer) -> Result<String, Error> {
        let text = tokenizer.to_json()?;
        files::replace(&self.tokenizer(), |writer| writer.write_all(text.as_bytes()))?;
        Ok(hash::of_bytes(text.as_bytes()))
    }

    /// Refuses another tokenizer than the one with this hash, which files of before do not have; returns the hash.
    pub(crate) fn check_tokenizer(&self, expected: Option<&String>) -> Result<String, Error> {
        let path = self.tokenizer();
        let found = hash::of_bytes(&fs::read(&path).map_err(Error::file(&path, "read"))?);
        match expected {
            Some(expected) if *expected != found => Err(Error::changed(path, &found, expected)),
            _ => Ok(found),
        }
    }

    /// The tokenizer, which must be the one that a model's metadata tell of; an imported model may have come without.
    pub(crate) fn load_tokenizer(
        &self,
        metadata: &BTreeMap<String, String>,
        imported: Option<&Imported>,
    ) -> Result<Option<Tokenizer>, Error> {
        let hash = metadata.get(saving::TOKENIZER);
        if imported.is_some() && hash.is_none() {
            return Ok(None);
        }
        self.check_tokenizer(hash)?;
        let tokenizer = Tokenizer::load(&self.tokenizer())?;
        Ok(Some(match imported {
            None => tokenizer,
            Some(imported) => imported.tokenizer(tokenizer),
        }))
    }

    /// Writes what the data are.
    pub fn save_data(&self, description: &Description) -> Result<(), Error> {
        let json = serde_json::to_string_pretty(description)
            .map_err(|e| Error::Settings(format!("{}: {e}", self.data().display())))?;
        Ok(files::replace(&self.data(), |writer| writeln!(writer, "{json}"))?)
    }

    /// Writes the settings.
    pub fn save_settings(&self, settings: &RunSettings) -> Result<(), Error> {
        let text = settings.to_toml()?;
        Ok(files::replace(&self.config(), |writer| writer.write_all(text.as_bytes()))?)
    }

    /// Reads the settings of the run.
    pub fn load_settings(&self) -> Result<RunSettings, Error> {
        let path = self.config();
        if !self.has_run() {
            return Err(Error::NoRun { folder: self.0.clone() });
        }
        self.check_format()?;
        let text = fs::read_to_string(&path).map_err(Error::file(&path, "read"))?;
        RunSettings::read(&text, &[])
            .map_err(|e| Error::Settings(format!("{}: {e}", path.display())))
    }
}
