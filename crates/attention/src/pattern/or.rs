use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::{OneOrList, one_or_list};

use super::{Pattern, PatternContext, PatternSettings};
use crate::Error;

/// Or: what any part shows.
/// Longformer is `or` of window and global, BigBird of window, random and global.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Or {
    /// The parts, names or tables, at least one; default `window` and `global`.
    #[serde(deserialize_with = "one_or_list")]
    #[schemars(with = "OneOrList<Pattern>")]
    pub of: Vec<Pattern>,
}

impl Default for Or {
    fn default() -> Self {
        Self { of: vec![super::Window::default().into(), super::Global::default().into()] }
    }
}

impl PatternSettings for Or {
    fn check(&self) -> Result<(), Error> {
        super::check_parts("or", &self.of)
    }

    fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        let mut parts = self.of.iter().map(|part| part.build(context));
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

    fn needs_documents(&self) -> bool {
        self.of.iter().any(Pattern::needs_documents)
    }

    fn differs_by_head(&self) -> bool {
        self.of.iter().any(Pattern::differs_by_head)
    }
}
