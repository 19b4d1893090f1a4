//! Our settings, put together key by key from what a family's `config.json` says.

use toml::{Table, Value};
use whatwhere_transformer::ModelSettings;

use super::config::Config;
use crate::{Error, error::Result};

/// Settings of a model, as TOML would have them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Table);

/// A value of TOML.
pub(crate) struct Set(pub(crate) Value);

impl From<usize> for Set {
    fn from(value: usize) -> Self {
        // Sizes of a config are below 2^31.
        Self(Value::Integer(value as i64))
    }
}

impl From<f64> for Set {
    fn from(value: f64) -> Self {
        Self(Value::Float(value))
    }
}

impl From<bool> for Set {
    fn from(value: bool) -> Self {
        Self(Value::Boolean(value))
    }
}

impl From<&str> for Set {
    fn from(value: &str) -> Self {
        Self(Value::String(value.into()))
    }
}

impl From<Vec<f64>> for Set {
    fn from(values: Vec<f64>) -> Self {
        Self(Value::Array(values.into_iter().map(Value::Float).collect()))
    }
}

impl From<Vec<Settings>> for Set {
    fn from(values: Vec<Settings>) -> Self {
        Self(Value::Array(values.into_iter().map(|table| Value::Table(table.0)).collect()))
    }
}

impl From<Settings> for Set {
    fn from(value: Settings) -> Self {
        Self(Value::Table(value.0))
    }
}

impl Settings {
    /// A choice by its name, to be set further.
    pub(crate) fn kind(name: &str) -> Self {
        Self::default().set("kind", name)
    }

    /// Sets `path.to.key`.
    pub(crate) fn set(mut self, path: &str, value: impl Into<Set>) -> Self {
        let mut keys: Vec<&str> = path.split('.').collect();
        let last = keys.pop().unwrap_or_default();
        let mut table = &mut self.0;
        for key in keys {
            let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut().expect("families set tables and values apart");
        }
        table.insert(last.into(), value.into().0);
        self
    }

    /// Sets all of these in a table.
    pub(crate) fn set_within(self, table: &str, all: Self) -> Self {
        all.0.into_iter().fold(self, |settings, (key, value)| {
            settings.set(&format!("{table}.{key}"), Set(value))
        })
    }

    /// Sets a key unless its value is our default.
    pub(crate) fn set_unless<T: Into<Set> + PartialEq>(
        self,
        path: &str,
        default: T,
        value: T,
    ) -> Self {
        if value == default { self } else { self.set(path, value) }
    }

    /// Sets a key if there is a value.
    pub(crate) fn set_if<T: Into<Set>>(self, path: &str, value: Option<T>) -> Self {
        match value {
            None => self,
            Some(value) => self.set(path, value),
        }
    }

    /// ε of the norms.
    pub(crate) fn epsilon(self, value: f64) -> Self {
        self.set_unless("epsilon", 1e-5, value)
    }

    /// The feed-forward's activation by its name in transformers.
    pub(crate) fn activation(
        self,
        config: &Config,
        key: &str,
        name: &str,
        gated: bool,
    ) -> Result<Self> {
        let name = match name {
            "relu" => "relu",
            "gelu" | "gelu_python" => "gelu",
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_accurate" => "gelu_tanh",
            "silu" | "swish" if gated => return Ok(self.set("activation", "swiglu")),
            "silu" | "swish" => "silu",
            _ => return Err(config.wrong(key, "relu, gelu, gelu_new, gelu_pytorch_tanh or silu")),
        };
        Ok(self.set("activation", name).set_unless("gated", false, gated))
    }

    /// The settings of a model, checked.
    pub(crate) fn model(self) -> Result<ModelSettings> {
        let text = toml::to_string(&self.0).map_err(|e| Error::Refused(e.to_string()))?;
        Ok(ModelSettings::from_toml(&text)?)
    }
}
