//! What is predicted, and how often.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::{Refuses, schema::in_order};

use crate::{Error, Result};

/// Predict each token from those before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NextToken {}

/// Predict tokens that were hidden, from both sides. Devlin et al. 2019, <https://arxiv.org/abs/1810.04805>.
/// In a task, the answer is what is hidden.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Masked {
    /// Share of the positions to predict; default 0.15.
    pub share: f64,
    /// Share of these that show the mask; default 0.8.
    pub hidden: f64,
    /// Share of these that show a random token; the rest show the token itself; default 0.1.
    pub random: f64,
}

impl Default for Masked {
    fn default() -> Self {
        Self { share: 0.15, hidden: 0.8, random: 0.1 }
    }
}

impl Masked {
    pub(super) fn check(&self) -> Result<()> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            let reason = "a share of positions is above 0 and at most 1";
            return Err(Error::setting("objective.share", self.share, reason));
        }
        for (setting, share) in
            [("objective.hidden", self.hidden), ("objective.random", self.random)]
        {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::setting(setting, share, "a share is at least 0 and at most 1"));
            }
        }
        if self.hidden + self.random > 1.0 + 1e-9 {
            let reason = format!("with hidden = {} the sum is above 1", self.hidden);
            return Err(Error::setting("objective.random", self.random, reason));
        }
        if self.hidden + self.random < 0.5 {
            let reason = format!(
                "with random = {} most positions would show the token to predict; expected a sum of 0.5 or more",
                self.random
            );
            return Err(Error::setting("objective.hidden", self.hidden, reason));
        }
        Ok(())
    }
}

/// A prefix language model: the first part of each sequence is seen in both directions and not predicted, the rest is
/// predicted token by token. Raffel et al. 2020 (T5), <https://arxiv.org/abs/1910.10683>. For a decoder, which then reads a
/// prompt in both directions. In a task, the prompt is the prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Prefix {
    /// The largest share of a sequence that is given; lengths are drawn evenly from 0 to it, for each sequence anew; default
    /// 0.5.
    pub share: f64,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { share: 0.5 }
    }
}

impl Prefix {
    pub(super) fn check(&self) -> Result<()> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            let reason =
                "a share of a sequence is above 0 and at most 1; without a prefix, use next_token";
            return Err(Error::setting("objective.share", self.share, reason));
        }
        Ok(())
    }
}

/// Predict the target from the source and the target so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Translate {}

/// How many examples a task has. They are the same for every seed of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct Examples {
    /// For training; 0 draws new ones without end; default 1,000,000.
    pub train: usize,
    /// For validation; default 10,000.
    pub valid: usize,
    /// For the test; default 10,000.
    pub test: usize,
}

impl Default for Examples {
    fn default() -> Self {
        Self { train: 1_000_000, valid: 10_000, test: 10_000 }
    }
}
