//! Or: what any part shows.
//! Longformer is `or` of window and global, BigBird of window, random and global.

use serde::{Deserialize, Deserializer, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Pattern, Scene, Seeing};
use crate::{Error, axis::one_or_list};

/// What any part shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Or {
    /// The parts, names or tables, at least one; default `window` and `global`.
    #[serde(deserialize_with = "parts")]
    pub of: Vec<Pattern>,
}

impl Default for Or {
    fn default() -> Self {
        Self { of: vec![super::Window::default().into(), super::Global::default().into()] }
    }
}

fn parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pattern>, D::Error> {
    one_or_list(deserializer)
}

impl Seeing for Or {
    fn check(&self) -> Result<(), Error> {
        super::check_parts("or", &self.of)
    }

    fn build(&self, scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        let mut parts = self.of.iter().map(|part| part.build(scene));
        let first = parts.next().unwrap_or_else(|| Ok(Box::new(kernels::Full)))?;
        parts.try_fold(first, |joined, next| {
            Ok(Box::new(kernels::Or(joined, next?)) as Box<dyn kernels::Pattern>)
        })
    }

    fn reach(&self) -> Option<usize> {
        self.of.iter().map(Pattern::reach).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn is_causal(&self) -> bool {
        self.of.iter().all(Pattern::is_causal)
    }
}
