//! The words of a call: the choices of `whatwhere_attention`, read as in TOML, and the arrays that stand beside them.
//!
//! What a layer initialises is handed in here: `{"kind": "t5", "table": table}`. The package takes arrays out of the words
//! and leaves their index, `{"$array": 0}`; what is left is a choice with its settings, defaults and refusals.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Map, Value};
use whatwhere_attention::{AttentionSettings, Mixing, Pattern, Position, Score};
use whatwhere_kernels::attention::Shape;
use whatwhere_settings::Refuses;

use crate::{Error, arrays::Arrays};

/// What a call computes, apart from its tensors and the places they stand at.
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

/// An encoding: one that layers have, or one that only a call can have.
#[derive(Clone, Debug)]
pub(crate) enum Encoding {
    Position(Word<Position>),
    Table(Table),
    Distances(Distances),
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

/// Transformer-XL after its projection, which the package multiplies out where it has a gradient.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Distances {
    #[serde(rename = "kind")]
    _kind: String,
    pub(crate) table: Option<Array>,
    pub(crate) left: usize,
    pub(crate) content: Option<Array>,
    pub(crate) distance: Option<Array>,
}

impl Encoding {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Position(word) => word.choice.name(),
            Self::Table(_) => "table",
            Self::Distances(_) => "transformer_xl",
        }
    }
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = match value.get("kind").and_then(Value::as_str) {
            Some("table") => Table::deserialize(value).map(Self::Table),
            Some("$distances") => Distances::deserialize(value).map(Self::Distances),
            _ => Word::deserialize(value).map(Self::Position),
        };
        read.map_err(D::Error::custom)
    }
}

impl Settings {
    /// The encodings as these arrays make them, once nothing is refused that a layer would refuse.
    pub(crate) fn resolve(&self, shape: &Shape, arrays: &Arrays) -> Result<Vec<Encoding>, Error> {
        let all: Result<Vec<Encoding>, Error> =
            self.position.iter().map(|encoding| encoding.resolve(arrays)).collect();
        let all = all?;
        for (i, encoding) in all.iter().enumerate() {
            if all[..i].iter().any(|other| other.name() == encoding.name()) {
                let reason = "an encoding can be listed once";
                return Err(Error::combination(encoding.name(), encoding.name(), reason));
            }
        }
        let position = all.iter().filter_map(|encoding| match encoding {
            Encoding::Position(word) => Some(word.choice.clone()),
            Encoding::Table(_) | Encoding::Distances(_) => None,
        });
        let settings = AttentionSettings {
            width: shape.heads.saturating_mul(shape.head_dim).max(1),
            heads: shape.heads.max(1),
            head_dim: Some(shape.head_dim.max(1)),
            score: self.score.choice.clone(),
            soft_cap: self.soft_cap,
            pattern: self.pattern.choice.clone(),
            position: position.collect(),
            mixing: self.mixing.clone(),
            ..Default::default()
        };
        settings.check()?;
        if let Some(encoding) =
            all.iter().find(|encoding| !matches!(encoding, Encoding::Position(_)))
            && !self.mixing.has_scores()
        {
            let reason = "without scores there is nothing to add to";
            return Err(Error::combination(self.mixing.name(), encoding.name(), reason));
        }
        Ok(all)
    }
}

impl Encoding {
    /// What is left out follows from the arrays; what a layer would draw is refused.
    fn resolve(&self, arrays: &Arrays) -> Result<Self, Error> {
        use whatwhere_attention::position::DeltaInit;
        let Self::Position(word) = self else { return Ok(self.clone()) };
        if word.choice.embeds() {
            let reason = "is added to embeddings, once, before the first layer; add it to the input of your model";
            return Err(Error::setting("position", word.choice.name(), reason));
        }
        let mut word = word.clone();
        match &mut word.choice {
            Position::T5(t5) => {
                let table = word.arrays.get("table").copied();
                let (_, found) = arrays.get("position.table", table, "[heads, buckets]")?;
                if !word.given.contains("buckets") {
                    t5.buckets = found.get(1).copied().unwrap_or(0);
                }
            }
            Position::Shaw(shaw) => {
                let both = ["keys", "values"].map(|name| word.arrays.get(name).copied());
                let Some(table) = both[0].or(both[1]) else {
                    let reason =
                        "hand in keys, values or both, [heads or 1, 2·reach + 1, head_dim]";
                    return Err(Error::setting("position.keys", "none", reason));
                };
                let (_, found) = arrays.at(table.index)?;
                (shaw.keys, shaw.values) = (both[0].is_some(), both[1].is_some());
                if !word.given.contains("reach") {
                    shaw.reach = found.get(1).map_or(0, |count| count / 2);
                }
                if !word.given.contains("per_head") {
                    shaw.per_head = found.first() != Some(&1);
                }
            }
            Position::Polar(polar) if polar.delta == DeltaInit::Uniform => {
                let reason = "expected an array, `zero` or `off`; a uniform start is yours to draw";
                return Err(Error::setting("position.delta", "uniform", reason));
            }
            Position::Alibi(_) if word.given.contains("learned") => {
                let reason = "slopes that are handed in learn if their array has a gradient";
                return Err(Error::setting("position.learned", "a value", reason));
            }
            Position::TransformerXl(_) => {
                let reason = "hand in `projection`, `content` and `distance`";
                return Err(Error::setting("position", "transformer_xl", reason));
            }
            Position::Disentangled(_) => {
                let reason = "its vectors go through the projections of a layer, which arrays do not have; use a model";
                return Err(Error::setting("position", "disentangled", reason));
            }
            _ => {}
        }
        Ok(Self::Position(word))
    }
}
