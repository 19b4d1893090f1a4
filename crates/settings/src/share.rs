//! A share of things in a row, such as channels or heads.

use std::{fmt, ops::Range};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Refusal, Refuses};

/// Some of several things: the first ones, written as one number above 0 and up to 1, or those from one share to another,
/// written as two, `[0.5, 1.0]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub struct Share {
    start: f64,
    end: f64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    /// The first ones.
    First(f64),
    /// From one share to another.
    Between([f64; 2]),
}

impl From<Written> for Share {
    fn from(written: Written) -> Self {
        match written {
            Written::First(end) => Self::first(end),
            Written::Between([start, end]) => Self::between(start, end),
        }
    }
}

impl From<Share> for Written {
    fn from(share: Share) -> Self {
        match share.start == 0.0 {
            true => Self::First(share.end),
            false => Self::Between([share.start, share.end]),
        }
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::first(1.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start == 0.0 {
            true => write!(f, "{}", self.end),
            false => write!(f, "[{}, {}]", self.start, self.end),
        }
    }
}

impl Share {
    /// The first ones.
    pub const fn first(end: f64) -> Self {
        Self { start: 0.0, end }
    }

    /// Those from one share to another.
    pub const fn between(start: f64, end: f64) -> Self {
        Self { start, end }
    }

    /// Which of `count` things, both ends rounded to the nearest whole number.
    pub fn of(self, count: usize) -> Range<usize> {
        let place = |share: f64| (share * count as f64).round() as usize;
        place(self.start)..place(self.end)
    }

    /// [`Self::check`], and refuses a share that leaves none of `count` things.
    pub fn check_of(self, setting: &'static str, count: usize) -> Result<(), Refusal> {
        self.check(setting)?;
        match self.of(count).is_empty() {
            true => Err(Refusal::setting(setting, self, format!("leaves none of {count}"))),
            false => Ok(()),
        }
    }

    /// Refuses shares outside of 0 to 1, and those with nothing in them.
    pub fn check(self, setting: &'static str) -> Result<(), Refusal> {
        if self.start >= 0.0 && self.start < self.end && self.end <= 1.0 {
            return Ok(());
        }
        let reason = "a share is above 0 and at most 1; two of them, such as [0.5, 1.0], rise";
        Err(Refusal::setting(setting, self, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_the_first_ones_and_two_are_from_to() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Table {
            heads: Share,
        }
        for (text, of_eight) in [
            ("heads = 0.5", 0..4),
            ("heads = 1", 0..8),
            ("heads = [0.5, 1.0]", 4..8),
            ("heads = [0.25, 0.5]", 2..4),
        ] {
            let table: Table = toml::from_str(text).unwrap();
            assert_eq!(table.heads.of(8), of_eight, "{text}");
            table.heads.check("heads").unwrap();
            let written = toml::to_string(&table).unwrap();
            assert_eq!(toml::from_str::<Table>(&written).unwrap(), table, "{written}");
        }
        for text in ["heads = 0.0", "heads = 1.5", "heads = [0.5, 0.5]", "heads = [-0.5, 0.5]"] {
            let table: Table = toml::from_str(text).unwrap();
            let error = table.heads.check("heads").unwrap_err().to_string();
            assert!(
                error.starts_with("heads = ") && error.contains(": a share is above 0"),
                "{error}"
            );
        }
    }
}
