//! From TOML to choices: a name, a table, or a list of them.

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use toml::{Table, Value};

/// Reads a choice by its name, which stands for a table with nothing but `kind`, or by its table.
pub fn name_or_table<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: impl FnOnce(Value) -> Result<T, toml::de::Error>,
) -> Result<T, D::Error> {
    let table = match Value::deserialize(deserializer)? {
        Value::String(name) => Table::from_iter([("kind".into(), name.into())]).into(),
        other => other,
    };
    read(table).map_err(D::Error::custom)
}

/// Reads one choice or a list of them, for serde's `deserialize_with`.
pub fn one_or_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let choices = match Value::deserialize(deserializer)? {
        Value::Array(choices) => choices.into_iter().map(T::deserialize).collect(),
        single => T::deserialize(single).map(|choice| vec![choice]),
    };
    choices.map_err(D::Error::custom)
}

/// Reads a choice by its name, or by the boolean that the setting once was.
pub fn name_or_bool<'de, D: Deserializer<'de>, T: DeserializeOwned + From<bool>>(
    deserializer: D,
) -> Result<T, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Boolean(is_on) => Ok(is_on.into()),
        name => T::deserialize(name).map_err(D::Error::custom),
    }
}

/// A number, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number or a list of numbers, none below 0")]
pub enum Numbers {
    /// One number.
    One(usize),
    /// Several.
    Many(Vec<usize>),
}

impl From<usize> for Numbers {
    fn from(number: usize) -> Self {
        Self::One(number)
    }
}

/// What [`one_or_list`] reads, for schemars' `with`.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum OneOrList<T> {
    /// One choice.
    One(T),
    /// Several.
    List(Vec<T>),
}
