//! And: what every part shows.
//! `and` of causal and another pattern makes it causal.

use serde::{Deserialize, Deserializer, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Pattern, Scene, Seeing};
use crate::{Error, axis::one_or_list};

/// What every part shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct And {
    /// The parts, names or tables, at least one; default `causal` and `prefix`.
    #[serde(deserialize_with = "parts")]
    pub of: Vec<Pattern>,
}

impl Default for And {
    fn default() -> Self {
        Self { of: vec![super::Causal::default().into(), super::Prefix::default().into()] }
    }
}

fn parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pattern>, D::Error> {
    one_or_list(deserializer)
}

impl Seeing for And {
    fn check(&self) -> Result<(), Error> {
        super::check_parts("and", &self.of)
    }

    fn build(&self, scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        let mut parts = self.of.iter().map(|part| part.build(scene));
        let first = parts.next().unwrap_or_else(|| Ok(Box::new(kernels::Full)))?;
        parts.try_fold(first, |joined, next| {
            Ok(Box::new(kernels::And(joined, next?)) as Box<dyn kernels::Pattern>)
        })
    }

    fn reach(&self) -> Option<usize> {
        self.of.iter().filter_map(Pattern::reach).min()
    }

    fn is_causal(&self) -> bool {
        self.of.iter().any(Pattern::is_causal)
    }
}
