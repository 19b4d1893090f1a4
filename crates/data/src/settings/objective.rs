//! What is predicted, and how often.

use std::collections::{BTreeMap, BTreeSet};

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

/// Tell the class of a text or of a pair of texts, from one vector that `model.pooling` makes of its states; for an encoder or a
/// decoder. Read from `labeled` texts, or from a task whose answers are classes, such as `listops`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct Classify {
    /// Names of the classes in their order; default those of the training data, sorted.
    pub classes: Vec<String>,
    /// What a text counts in the training loss by its class: `even`, `balanced` (each class as much as any other, however
    /// rare), or numbers such as `{ spam = 3.0 }`, where other classes count 1; default `even`.
    pub class_weights: ClassWeights,
}

/// What a text counts in the training loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected \"even\", \"balanced\" or a table of numbers by class")]
pub enum ClassWeights {
    /// By a rule.
    Rule(WeightRule),
    /// So much by class; 1 for others.
    Each(BTreeMap<String, f64>),
}

/// A rule for what texts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightRule {
    /// Every text counts the same.
    Even,
    /// Every class counts the same: texts / (classes · texts of the class).
    Balanced,
}

impl Default for ClassWeights {
    fn default() -> Self {
        Self::Rule(WeightRule::Even)
    }
}

impl Classify {
    pub(super) fn check(&self) -> Result<()> {
        let different: BTreeSet<&String> = self.classes.iter().collect();
        let is_blank = self.classes.iter().any(|class| class.trim().is_empty());
        if self.classes.len() == 1 || different.len() < self.classes.len() || is_blank {
            let reason = "expected at least two different names; leave it out to take those of the training data";
            let found = format!("{:?}", self.classes);
            return Err(Error::setting("objective.classes", found, reason));
        }
        let ClassWeights::Each(weights) = &self.class_weights else { return Ok(()) };
        if let Some((class, weight)) = weights.iter().find(|(_, w)| !(**w > 0.0 && w.is_finite())) {
            let setting = "objective.class_weights";
            let reason = "a weight is above 0; to leave a class out, leave its texts out";
            return Err(Error::setting(setting, format!("{{ {class:?} = {weight} }}"), reason));
        }
        Ok(())
    }
}

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
