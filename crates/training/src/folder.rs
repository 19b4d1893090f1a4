//! The run folder: the only thing that training hands to everything after it.
//!
//! | file | content |
//! |---|---|
//! | `config.toml` | the settings, every value written out |
//! | `tokenizer.json` | in the format of the `tokenizers` library |
//! | `model.safetensors` | the weights with the best validation loss (the last ones where nothing is validated) |
//! | `last.safetensors` | weights, optimiser and data state of the last checkpoint, to go on from |
//! | `metrics.jsonl` | one record per line |
//! | `events.out.tfevents.*` | the same for TensorBoard |

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use crate::{Error, RunSettings, files};

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

    /// `model.safetensors`.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// `last.safetensors`.
    pub fn last(&self) -> PathBuf {
        self.0.join("last.safetensors")
    }

    /// `metrics.jsonl`.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// Whether a run has begun here.
    pub fn has_run(&self) -> bool {
        self.config().is_file()
    }

    /// Writes the settings.
    pub fn save_settings(&self, settings: &RunSettings) -> Result<(), Error> {
        let text = settings.to_toml()?;
        files::replace(&self.config(), |writer| writer.write_all(text.as_bytes()))
    }

    /// Reads the settings of the run.
    pub fn load_settings(&self) -> Result<RunSettings, Error> {
        let path = self.config();
        if !self.has_run() {
            return Err(Error::NoRun { folder: self.0.clone() });
        }
        let text = fs::read_to_string(&path).map_err(Error::file(&path, "read"))?;
        RunSettings::read(&text, &[])
            .map_err(|e| Error::Settings(format!("{}: {e}", path.display())))
    }
}
