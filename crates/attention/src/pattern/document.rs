use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;
use whatwhere_settings::Refuses;

use super::{PatternContext, PatternSettings};
use crate::Error;

/// Document: a query sees the keys of its own document.
/// Krell et al. 2021, <https://arxiv.org/abs/2107.02027>. For texts packed into one sequence; the call says where they start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Document {}

impl PatternSettings for Document {
    fn build(&self, context: &PatternContext) -> Result<Box<dyn kernels::Pattern>, Error> {
        let starts = context.documents.ok_or_else(|| {
            let reason = "the call must say where documents start (`Input::documents`)";
            Error::setting("pattern", "document", reason)
        })?;
        Ok(Box::new(kernels::Documents::new(starts.to_vec())?))
    }

    fn is_causal(&self) -> bool {
        false
    }

    fn needs_documents(&self) -> bool {
        true
    }
}
