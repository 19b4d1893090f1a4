//! Softmax: weights are `exp(score)`, divided by their sum.
//! Bahdanau et al. 2015, <https://arxiv.org/abs/1409.0473>. The usual choice; cost follows the pattern.

use serde::{Deserialize, Serialize};

use super::Weighing;

/// `exp(score) / Σ exp(score)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Softmax {}

impl Weighing for Softmax {
    fn has_scores(&self) -> bool {
        true
    }
}
