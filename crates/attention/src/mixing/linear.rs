//! Linear: weights are `φ(q)·φ(k)` with φ = elu + 1, so that keys and values sum up in a state of constant size.
//! Katharopoulos et al. 2020, <https://arxiv.org/abs/2006.16236>. Cost linear in the length; poor at sharp retrieval.

use serde::{Deserialize, Serialize};

use super::Weighing;

/// `φ(q)·φ(k) / Σ φ(q)·φ(k)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {}

impl Weighing for Linear {
    fn has_scores(&self) -> bool {
        false
    }
}
