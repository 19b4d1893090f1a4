//! Names of settings: `position` is `model.attention.position`, as long as one setting alone is called so.
//!
//! Every table is asked for its fields through serde, so that a setting has a short name from the day it exists, and
//! settings without a default have one, too.

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value},
    forward_to_deserialize_any,
};
use whatwhere_attention::AttentionSettings;
use whatwhere_data::DataSettings;
use whatwhere_transformer::ModelSettings;

use crate::{RunSettings, TrainingSettings};

/// Tables whose settings need no more than their own name, by where they stand.
fn tables() -> [(&'static str, &'static [&'static str]); 4] {
    [
        ("training", fields::<TrainingSettings>()),
        ("data", fields::<DataSettings>()),
        ("model", fields::<ModelSettings>()),
        ("model.attention", fields::<AttentionSettings>()),
    ]
}

/// Attention is as wide as the model, and has no width of its own to set.
const NOT_SET: &str = "model.attention.width";

/// The full key of a setting; of `optimizer.beta2` the first part may be a short name.
///
/// # Errors
/// In words, if no setting is called so, or several are: these are then named.
pub fn full_key(key: &str) -> Result<String, String> {
    let first = key.split('.').next().unwrap_or(key);
    if fields::<RunSettings>().contains(&first) {
        return Ok(key.into());
    }
    let keys = |(table, fields): (&str, &'static [&'static str])| -> Vec<(String, &'static str)> {
        let full = |field: &&'static str| (format!("{table}.{field}"), *field);
        fields.iter().map(full).filter(|(key, _)| key != NOT_SET).collect()
    };
    let all: Vec<(String, &str)> = tables().into_iter().flat_map(keys).collect();
    let found: Vec<&str> =
        all.iter().filter(|(_, name)| *name == first).map(|(key, _)| key.as_str()).collect();
    match found[..] {
        [only] => Ok(format!("{only}{}", &key[first.len()..])),
        [] => {
            let mut known: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
            known.sort_unstable();
            known.dedup();
            Err(format!("no setting is called {first}; there are {}", known.join(", ")))
        }
        _ => Err(format!("several settings are called {first}; say which: {}", found.join(", "))),
    }
}

/// `position=alibi` to `model.attention.position=alibi`.
pub(crate) fn expanded(change: &str) -> Result<String, String> {
    match change.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok(format!("{}={value}", full_key(key.trim())?))
        }
        _ => Ok(change.into()), // wrong in a way that `set` has words for
    }
}

/// The fields that serde reads of a struct.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut found: &'static [&'static str] = &[];
    let _ = T::deserialize(Asked(&mut found)); // always an error: nothing is there to be read
    found
}

/// Remembers which fields were asked for, and gives none.
struct Asked<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("only the fields are asked for"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_stand_for_the_only_setting_called_so() {
        for (short, full) in [
            ("position", "model.attention.position"),
            ("position.base", "model.attention.position.base"),
            ("kv_heads", "model.attention.kv_heads"),
            ("head_dim", "model.attention.head_dim"),
            ("soft_cap", "model.attention.soft_cap"),
            ("feed_forward", "model.feed_forward"),
            ("width", "model.width"),
            ("attention.dropout", "model.attention.dropout"),
            ("tokenizer", "data.tokenizer"),
            ("tokenizer.vocabulary", "data.tokenizer.vocabulary"),
            ("objective", "data.objective"),
            ("lr", "training.lr"),
            ("seed", "seed"),
            ("training.steps", "training.steps"),
            ("data", "data"),
        ] {
            assert_eq!(full_key(short).as_deref(), Ok(full), "{short}");
        }
    }

    #[test]
    fn names_of_several_settings_or_none_are_refused_with_those_there_are() {
        for (name, keys) in [
            ("dropout", "model.dropout, model.attention.dropout"),
            ("bias", "model.bias, model.attention.bias"),
        ] {
            let expected = format!("several settings are called {name}; say which: {keys}");
            assert_eq!(full_key(name), Err(expected));
        }
        let unknown = full_key("postion").unwrap_err();
        assert!(unknown.starts_with("no setting is called postion; there are"), "{unknown}");
        assert!(unknown.contains("kv_heads") && unknown.contains("position"), "{unknown}");
    }

    #[test]
    fn every_table_tells_its_fields() {
        for (table, fields) in tables() {
            assert!(fields.len() > 5, "{table}: {fields:?}");
        }
        let settings = toml::Table::try_from(RunSettings::default()).unwrap();
        let known = fields::<RunSettings>();
        assert!(settings.keys().all(|key| known.contains(&key.as_str())), "{known:?}");
    }
}
