use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::{OneOrList, one_or_list};

use super::{Pattern, PatternContext, PatternSettings};
use crate::Error;

/// And: what every part shows.
/// `and` of causal and another pattern makes it causal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct And {
    /// The parts, names or tables, at least one; default `causal` and `prefix`.
    #[serde(deserialize_with = "one_or_list")]
    #[schemars(with = "OneOrList<Pattern>")]
    pub of: Vec<Pattern>,
}

impl Default for And {
    fn default() -> Self {
        Self { of: vec![super::Causal::default().into(), super::Prefix::default().into()] }
    }
}

impl PatternSettings for And {
    fn check(&self) -> Result<(), Error> {
        super::check_parts("and", &self.of)
    }

    fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        let mut parts = self.of.iter().map(|part| part.build(context));
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

    fn needs_documents(&self) -> bool {
        self.of.iter().any(Pattern::needs_documents)
    }

    fn differs_by_head(&self) -> bool {
        self.of.iter().any(Pattern::differs_by_head)
    }
}
