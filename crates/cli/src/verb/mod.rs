//! The verbs, one file each.

pub(crate) mod classify;
pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod convert;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod extrapolate;
pub(crate) mod fill;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod logits;
pub(crate) mod merge;
pub(crate) mod piece;
pub(crate) mod quantize;
pub(crate) mod reproduce;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod train;
pub(crate) mod translate;
pub(crate) mod view;
pub(crate) mod weights;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use whatwhere_training::{RunSettings, full_key, presets};

/// Where settings come from.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// A TOML file of settings.
    pub(crate) config: Option<PathBuf>,
    /// Settings that come with the program; `whatwhere config --presets` lists them.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub(crate) preset: Option<String>,
    /// What to learn from: a file or folder, in place of the settings' own.
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Change a setting, such as steps=500 or position=polar, or with its full name model.attention.position=polar; can be
    /// repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) changes: Vec<String>,
}

impl Settings {
    /// Whether any were named.
    pub(crate) fn are_given(&self) -> bool {
        self.config.is_some() || self.preset.is_some()
    }

    /// Whether somebody chose a tokenizer: in a file of settings or by a change, not by a preset.
    pub(crate) fn name_a_tokenizer(&self, settings: &RunSettings) -> bool {
        let is_one = |change: &String| {
            let key = full_key(change.split('=').next().unwrap_or(change).trim());
            key.is_ok_and(|key| key == "data.tokenizer" || key.starts_with("data.tokenizer."))
        };
        let in_file = self.config.is_some() && settings.data.tokenizer.is_some();
        in_file || self.changes.iter().any(is_one)
    }

    /// The settings with all changes, checked; defaults where none were named.
    pub(crate) fn read(&self) -> anyhow::Result<RunSettings> {
        let (text, origin) = self.text()?;
        self.changed(&text).with_context(|| origin)
    }

    /// [`Self::read`] with the model of another run, whose weights are to fit.
    pub(crate) fn read_onto(&self, other: &RunSettings) -> anyhow::Result<RunSettings> {
        let (text, origin) = self.text()?;
        let own = RunSettings::read(&text, &[])?;
        let both = RunSettings { model: other.model.clone(), ..own };
        self.changed(&both.to_toml()?).with_context(|| origin)
    }

    /// The settings as TOML before any change, and where they are from.
    fn text(&self) -> anyhow::Result<(String, String)> {
        Ok(match (&self.config, &self.preset) {
            (Some(path), _) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("{} could not be read", path.display()))?;
                (text, path.display().to_string())
            }
            (None, Some(name)) => match presets::find(name) {
                Some(preset) => (preset.text.to_owned(), format!("preset {name}")),
                None => {
                    let names: Vec<&str> = presets::ALL.iter().map(|p| p.name).collect();
                    bail!("no preset is called {name}; there are {}", names.join(", "));
                }
            },
            (None, None) => (String::new(), "settings".into()),
        })
    }

    /// These settings with changes and other data, checked.
    pub(crate) fn changed(&self, text: &str) -> anyhow::Result<RunSettings> {
        let mut settings = RunSettings::read(text, &self.changes)?;
        if let Some(path) = &self.data {
            settings.read_from(path)?;
        }
        Ok(settings)
    }

    /// A name for a run with these settings.
    pub(crate) fn name(&self) -> String {
        let stem = self.config.as_ref().and_then(|path| path.file_stem());
        let name = stem.map(|stem| stem.to_string_lossy().into_owned());
        name.or(self.preset.clone()).unwrap_or_else(|| "run".into())
    }
}

/// `--jobs`: at least one run at a time.
pub(crate) fn jobs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|jobs| *jobs > 0).ok_or_else(|| "expected a number, at least 1".into())
}

/// What to know of a folder where nothing keeps processes apart.
pub(crate) fn without_locks(folder: &Path) -> String {
    format!(
        "warning: {} is on a file system without locks: nothing keeps another process from the same run",
        folder.display()
    )
}

/// The command as it could be typed again.
pub(crate) fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| {
        match word.is_empty()
            || word.contains(|c: char| !(c.is_alphanumeric() || "-_./=,:+".contains(c)))
        {
            true => format!("'{}'", word.replace('\'', r"'\''")),
            false => word,
        }
    });
    std::iter::once("whatwhere".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
