//! The words of a call: the choices of `whatwhere_attention`, read as in TOML, and the arrays that stand beside them.
//!
//! What a layer initialises is handed in here: `{"kind": "t5", "table": table}`. The package takes arrays out of the words
//! and leaves their index, `{"$array": 0}`; what is left is a choice with its settings, defaults and refusals.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Map, Value};
use whatwhere_attention::{AttentionSettings, Mixing, Pattern, Position, Score, slot::Handed};
use whatwhere_kernels::attention::Shape;
use whatwhere_settings::Refuses;

use crate::{Error, arrays::Arrays};

/// What a call computes, apart from its tensors and the positions they stand at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) score: Word<Score>,
    pub(crate) soft_cap: Option<f32>,
    pub(crate) pattern: Word<Pattern>,
    pub(crate) position: Vec<Encoding>,
    pub(crate) mixing: Mixing,
}

/// Stands for an array: its index among those that come with a call.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Array {
    #[serde(rename = "$array")]
    pub(crate) index: usize,
}

/// A choice, and what was handed in for it.
#[derive(Clone, Debug)]
pub(crate) struct Word<T> {
    pub(crate) choice: T,
    arrays: BTreeMap<String, Array>,
    given: BTreeSet<String>,
}

impl<T> Word<T> {
    /// The array of this name.
    pub(crate) fn array(&self, name: &str) -> Option<Array> {
        self.arrays.get(name).copied()
    }

    /// Refuses arrays that nothing asks for.
    pub(crate) fn check_arrays(&self, choice: &str, known: &[&str]) -> Result<(), Error> {
        match self.arrays.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if known.is_empty() => {
                Err(Error::unreadable(format!("unknown field `{name}`, {choice} takes no array")))
            }
            Some(name) => {
                let known = known.join("`, `");
                Err(Error::unreadable(format!("unknown field `{name}`, expected `{known}`")))
            }
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut words, mut arrays) = (Map::new(), BTreeMap::new());
        for (name, value) in Map::<String, Value>::deserialize(deserializer)? {
            // A list of numbers is somebody's table and no index.
            match value.is_object().then(|| Array::deserialize(&value)) {
                Some(Ok(array)) => {
                    arrays.insert(name, array);
                }
                _ => {
                    words.insert(name, value);
                }
            }
        }
        let given = words.keys().cloned().collect();
        let choice = T::deserialize(Value::Object(words)).map_err(D::Error::custom)?;
        Ok(Self { choice, arrays, given })
    }
}

/// An encoding: one that layers have, or a table of one's own.
#[derive(Clone, Debug)]
pub(crate) enum Encoding {
    Position(Word<Position>),
    Table(Table),
}

/// A bias by head and distance, `[heads, left + 1 + right]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "kind")]
    _kind: String,
    pub(crate) table: Option<Array>,
    #[serde(default)]
    pub(crate) left: usize,
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = match value.get("kind").and_then(Value::as_str) {
            Some("table") => Table::deserialize(value).map(Self::Table),
            _ => Word::deserialize(value).map(Self::Position),
        };
        read.map_err(D::Error::custom)
    }
}

/// Settings as the arrays of a call make them.
pub(crate) struct Resolved {
    /// Those of a layer that would compute the same.
    pub(crate) settings: AttentionSettings,
    /// The words of its encodings, in the same order.
    pub(crate) words: Vec<Word<Position>>,
    pub(crate) tables: Vec<Table>,
}

impl Settings {
    /// The encodings as these arrays make them, once nothing is refused that a layer would refuse.
    pub(crate) fn resolve(&self, shape: &Shape, arrays: &Arrays) -> Result<Resolved, Error> {
        let (mut words, mut tables) = (Vec::new(), Vec::new());
        for encoding in &self.position {
            match encoding {
                Encoding::Position(word) => words.push(word.resolve(arrays)?),
                Encoding::Table(table) => tables.push(table.clone()),
            }
        }
        if tables.len() > 1 {
            return Err(Error::combination("table", "table", "an encoding can be listed once"));
        }
        let settings = AttentionSettings {
            // Even, because nothing here is as wide as a model, and encodings that wave over its width ask for pairs.
            width: shape.heads.saturating_mul(shape.head_dim).saturating_mul(2).max(2),
            heads: shape.heads.max(1),
            head_dim: Some(shape.head_dim.max(1)),
            score: self.score.choice.clone(),
            soft_cap: self.soft_cap,
            pattern: self.pattern.choice.clone(),
            position: words.iter().map(|word| word.choice.clone()).collect(),
            mixing: self.mixing.clone(),
            ..Default::default()
        };
        settings.check()?;
        if !tables.is_empty() && !self.mixing.has_scores() {
            let reason = "without scores there is nothing to add to";
            return Err(Error::combination(self.mixing.name(), "table", reason));
        }
        Ok(Resolved { settings, words, tables })
    }
}

impl Word<Position> {
    /// What is left out follows from the arrays; what a layer would draw is refused.
    fn resolve(&self, arrays: &Arrays) -> Result<Self, Error> {
        if self.choice.embeds() {
            let reason = "is added to embeddings, once, before the first layer; add it to the input of your model";
            return Err(Error::setting("position", self.choice.name(), reason));
        }
        let others = self.choice.only_of_layers();
        if let Some(setting) = others.iter().find(|setting| self.given.contains(**setting)) {
            let reason = "is of layers alone: arrays that are handed in learn if they have a gradient, and go through no projection";
            return Err(Error::setting(format!("position.{setting}"), "a value", reason));
        }
        let mut handed =
            Handed { settings: self.given.iter().cloned().collect(), ..Default::default() };
        for (name, array) in &self.arrays {
            handed.arrays.insert(name.clone(), arrays.at(array.index)?.1.to_vec());
        }
        Ok(Self { choice: self.choice.with_arrays(&handed)?, ..self.clone() })
    }
}
