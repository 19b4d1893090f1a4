//! A run folder for other programs.
//!
//! An imported model goes back under the config it came with. A trained one is tried under the families that could have its
//! settings: a config is written for each, read as any other, and taken if it means the same model.

mod candidate;
mod huggingface;
mod rotary;
pub(crate) mod same;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};
use whatwhere_attention::Projections;
use whatwhere_training::Run;
use whatwhere_transformer::{Family, ModelSettings, Site};

pub use huggingface::to_huggingface;

use crate::{
    Error,
    error::Result,
    huggingface::{config::Config, family},
    onnx,
    table::Names,
};

/// What an export has done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exported {
    /// The folder or file.
    pub path: PathBuf,
    /// The family by the name that its reader has for it.
    pub family: String,
    /// Tensors in it.
    pub tensors: usize,
}

/// Ends a refusal of settings that a format has no words for.
pub(crate) const INSTEAD: &str = "--to onnx carries every setting";

/// A refusal that ends with [`INSTEAD`], if that is so of this run; or else why ONNX does not carry its settings either.
pub(crate) fn truly<T>(result: Result<T>, run: &Run) -> Result<T> {
    result.map_err(|error| match error {
        Error::Refused(text) => Error::Refused(match text.strip_suffix(INSTEAD) {
            None => text,
            Some(before) => match onnx::refusal(run) {
                None => text,
                Some(reason) => format!("{before}nor does --to onnx carry them: {reason}"),
            },
        }),
        other => other,
    })
}

/// Refuses to write where something is.
pub(crate) fn must_be_new(out: &Path, kind: &str) -> Result<()> {
    if out.exists() {
        let found = format!("there is something already, expected the name of a new {kind}");
        return Err(Error::content(out, found));
    }
    Ok(())
}

/// A model in the words of a family of transformers.
pub(crate) struct Worded {
    /// `config.json`.
    pub(crate) config: Map<String, Value>,
    pub(crate) family: String,
    /// What the config means: the run's settings, or the same with biases of zeros.
    pub(crate) settings: ModelSettings,
    pub(crate) names: Names,
}

/// Refuses a run that no format has: one that tells classes, is recurrent or compares states that are not projected.
pub(crate) fn must_be_known_to_others(settings: &ModelSettings) -> Result<()> {
    if let Some(kind) = settings.recurrent {
        let name = kind.name();
        return Err(Error::Refused(format!(
            "recurrent = {name}: what is written for others are Transformers; no format here has a recurrence"
        )));
    }
    let stacks =
        [(Site::Encoder, settings.encoder_depth()), (Site::Decoder, settings.decoder_depth())];
    let crosses = if settings.family == Family::EncoderDecoder { settings.layers } else { 0 };
    for (site, layers) in stacks.into_iter().chain([(Site::Cross, crosses)]) {
        for layer in 0..layers {
            let projections = settings.attention(site, layer)?.projections;
            if projections != Projections::All {
                let name = format!("{projections:?}").to_lowercase();
                return Err(Error::Refused(format!(
                    "attention.projections = {name}: attention elsewhere projects queries, keys, values and output"
                )));
            }
        }
    }
    match settings.classes {
        0 => Ok(()),
        classes => Err(Error::Refused(format!(
            "the run tells {classes} classes, and what is written for others predicts tokens; export the run it started from"
        ))),
    }
}

/// The words for a run: those it came with, or those of the first family that has its settings.
pub(crate) fn worded(run: &Run) -> Result<Worded> {
    let settings = &run.settings.model;
    must_be_known_to_others(settings)?;
    if let Some(imported) = &run.imported
        && !imported.config.is_empty()
        && let Ok(words) = read(&imported.config, settings)
    {
        return Ok(words);
    }
    let mut nearest: Option<(usize, String)> = None;
    let wide = same::widened(settings);
    let wide = wide.check().is_ok().then_some(&wide);
    for settings in [Some(settings), wide].into_iter().flatten() {
        for config in candidate::all(settings)? {
            match read(&config, settings) {
                Ok(words) => return Ok(words),
                Err(far) if nearest.as_ref().is_none_or(|(least, _)| far.0 < *least) => {
                    nearest = Some(far);
                }
                Err(_) => {}
            }
        }
    }
    let nearest = nearest.map_or_else(String::new, |(_, reason)| format!("; {reason}"));
    let reason = "no family of transformers has the settings of this run";
    Err(Error::Refused(format!("{reason}{nearest}; {INSTEAD}")))
}

/// Reads a config as an import would; it must mean these settings, or else says how far it is from them, and why.
fn read(
    config: &Map<String, Value>,
    settings: &ModelSettings,
) -> std::result::Result<Worded, (usize, String)> {
    let name = config.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let far = |error: Error| (usize::MAX, format!("{name}: {error}"));
    let mut read = Config::new(Path::new("config.json"), "", config.clone());
    let family = family::find(&read).map_err(far)?;
    // Heads are known by their tensors; these are all that any family asks for.
    read.tensors = family::heads(settings);
    let meant = (family.settings)(&read).and_then(|meant| meant.model()).map_err(far)?;
    let differs = same::differences(&meant, settings).map_err(far)?;
    if let Some(first) = differs.first() {
        return Err((differs.len(), format!("the nearest is {name}, but {first}")));
    }
    let names = (family.names)(&read).map_err(far)?;
    Ok(Worded { config: config.clone(), family: name, settings: settings.clone(), names })
}
