//! What all settings share: lists of choices, their names in TOML, refusals, and the schema that describes them.
//!
//! [`choice!`] declares a list: an enum that reads `"rotary"` or `{ kind = "rotary", base = 500000.0 }`. A struct of
//! settings derives `serde` and `schemars`; its doc comments and defaults become the schema, from which [`mod@reference`]
//! makes what `whatwhere config --choices`, the docs and editors show. A value out of range is a [`Refusal`].
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// Everything is seen.
//! #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields, default)]
//! pub struct Full {}
//!
//! /// What is near is seen.
//! #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields, default)]
//! pub struct Window {
//!     /// How far; default 0.
//!     pub left: usize,
//! }
//!
//! whatwhere_settings::choice! {
//!     /// What is seen.
//!     Pattern { Full => "full", Window => "window", }
//! }
//!
//! #[derive(Deserialize)]
//! struct Layer { pattern: Pattern }
//! let layer: Layer = toml::from_str("pattern = { kind = 'window', left = 3 }")?;
//! assert_eq!(layer.pattern, Window { left: 3 }.into());
//! let layer: Layer = toml::from_str("pattern = 'full'")?;
//! assert_eq!(layer.pattern.name(), "full");
//! # Ok::<(), toml::de::Error>(())
//! ```

mod choice;
mod read;
pub mod reference;
mod refusal;
pub mod schema;
mod share;

pub use read::{Numbers, OneOrList, name_or_bool, name_or_table, one_or_list};
pub use refusal::{Refusal, Refuses};
pub use share::Share;
