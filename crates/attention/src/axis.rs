//! One list per axis: its choices, their names in settings, and dispatch to what they have in common.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};

/// Declares the settings of an axis: an enum over its choices that reads and writes `kind = "name"`.
macro_rules! axis {
    ($(#[$doc:meta])* $axis:ident: $role:ident { $($(#[$attribute:meta])* $choice:ident => $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind")]
        pub enum $axis {
            $(
                #[doc = concat!("`", $name, "`; see [`", stringify!($choice), "`].")]
                $(#[$attribute])*
                #[serde(rename = $name)]
                $choice($choice),
            )*
        }

        impl $axis {
            /// The names of all choices, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Every choice with its defaults: what tests, docs and comparisons iterate over.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$choice(Default::default()),)*]
            }

            /// The choice's name in settings.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$choice(_) => $name,)* }
            }

            /// What the source says of every choice, in the order of the list; each has a file of its name.
            pub fn about() -> Vec<$crate::about::About> {
                vec![$($crate::about::About::of_file($name, include_str!(concat!($name, ".rs"))),)*]
            }

            /// The choice in its role.
            pub(crate) fn role(&self) -> &dyn $role {
                match self { $(Self::$choice(choice) => choice,)* }
            }
        }

        $(
            impl From<$choice> for $axis {
                fn from(choice: $choice) -> Self {
                    Self::$choice(choice)
                }
            }
        )*
    };
}

pub(crate) use axis;

/// Reads `"rotary"` or `{ kind = "rotary", base = 500000.0 }`.
pub(crate) fn name_or_table<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    one(toml::Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Reads one choice or a list of them.
pub(crate) fn one_or_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let choices = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(choices) => choices.into_iter().map(one).collect(),
        single => one(single).map(|choice| vec![choice]),
    };
    choices.map_err(serde::de::Error::custom)
}

fn one<T: DeserializeOwned>(value: toml::Value) -> Result<T, toml::de::Error> {
    let table = match value {
        toml::Value::String(name) => toml::Table::from_iter([("kind".into(), name.into())]).into(),
        other => other,
    };
    T::deserialize(table)
}
