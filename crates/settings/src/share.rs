//! A share of things, such as channels or heads.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Refusal, Refuses};

/// A number above 0 and up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Share(pub f64);

impl Default for Share {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Share {
    /// The first ones of `count` things, rounded to the nearest whole number.
    pub fn of(self, count: usize) -> Range<usize> {
        0..(self.0 * count as f64).round() as usize
    }

    /// Refuses a share outside (0, 1].
    pub fn check(self, setting: &'static str) -> Result<(), Refusal> {
        if self.0 > 0.0 && self.0 <= 1.0 {
            Ok(())
        } else {
            Err(Refusal::setting(setting, self.0, "a share is above 0 and at most 1"))
        }
    }
}
