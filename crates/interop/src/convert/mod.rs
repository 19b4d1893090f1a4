//! Surgery: a model under another encoding or with other heads, exactly where that can be, otherwise as a start for training.
//!
//! `position.rs` has the paths between encodings, `heads.rs` those between numbers of key heads, `recovery.rs` trains what a
//! path has cost. Start at [`convert`].

mod heads;
mod position;
mod recovery;

use serde::Serialize;
use toml::Value;
use whatwhere_transformer::{Model, ModelSettings, Parameter};

use crate::{Error, error::Result};

pub use recovery::{Loss, Recovery};

/// What to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// The encoding, by its name or as a table of TOML.
    pub position: Option<Value>,
    /// Heads of keys and values.
    pub kv_heads: Option<usize>,
    /// Tokens of a text that the model must hold: tables are made as long, where their length is not said.
    pub length: usize,
}

/// What a change keeps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// From what to what.
    pub change: String,
    /// Whether logits stay as they were, up to rounding.
    pub exact: bool,
    /// Tokens of a text up to which it is exact; nothing if there is no bound.
    pub length: Option<usize>,
    /// How it is done, or what it loses.
    pub how: String,
}

/// A model after its conversion.
#[derive(Debug)]
pub struct Converted {
    /// Its settings.
    pub settings: ModelSettings,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// What was done.
    pub steps: Vec<Step>,
}

impl Conversion {
    /// An encoding by its name, or as a table: `{ kind = "t5", buckets = 64 }`.
    pub fn position(text: &str) -> Result<Value> {
        let table = format!("position = {text}").parse::<toml::Table>();
        let value = match table {
            Ok(mut table) => table.remove("position"),
            Err(_) => Some(Value::String(text.into())),
        };
        match value {
            Some(Value::String(name)) => Ok(Value::String(name)),
            Some(Value::Table(table)) if table.contains_key("kind") => Ok(Value::Table(table)),
            _ => Err(Error::Refused(format!(
                "position = {text}: expected a name such as learned, or a table such as {{ kind = \"t5\", buckets = 64 }}"
            ))),
        }
    }
}

/// The model with another encoding, other heads, or both.
pub fn convert(model: &Model, conversion: &Conversion) -> Result<Converted> {
    let mut converted = Converted {
        settings: model.settings().clone(),
        parameters: model.parameters(),
        steps: Vec::new(),
    };
    if let Some(kind) = model.settings().recurrent {
        let name = kind.name();
        let reason = "has neither positions nor key heads of its own to convert";
        return Err(Error::Refused(format!("recurrent = {name}: {reason}")));
    }
    if conversion.position.is_none() && conversion.kv_heads.is_none() {
        return Err(Error::Refused("nothing to convert: name a position or kv_heads".into()));
    }
    if let Some(kv_heads) = conversion.kv_heads {
        heads::convert(&mut converted, kv_heads)?;
    }
    if let Some(to) = &conversion.position {
        position::convert(&mut converted, to, conversion.length.max(1))?;
    }
    converted.settings.check()?;
    Ok(converted)
}

impl Converted {
    /// Whether every step is exact.
    pub fn is_exact(&self) -> bool {
        self.steps.iter().all(|step| step.exact)
    }

    /// Rewrites the parameters whose names end so.
    fn rewrite(&mut self, end: &str, mut write: impl FnMut(&mut Parameter)) {
        let all = self.parameters.iter_mut();
        all.filter(|one| one.name.ends_with(end)).for_each(&mut write);
    }
}
