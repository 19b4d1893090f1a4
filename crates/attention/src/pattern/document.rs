//! Document: a query sees the keys of its own document.
//! Krell et al. 2021, <https://arxiv.org/abs/2107.02027>. For texts packed into one sequence; the call says where they start.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::Error;

/// a query sees the keys of its own document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {}

impl Seeing for Document {
    fn build(&self, scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        let starts = scene.documents.ok_or_else(|| {
            let reason = "the call must say where documents start (`Input::documents`)";
            Error::setting("pattern", "document", reason)
        })?;
        Ok(Box::new(kernels::Documents::new(starts.to_vec())?))
    }

    fn is_causal(&self) -> bool {
        false
    }
}
