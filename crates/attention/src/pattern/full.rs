//! Full: every query sees every key.
//! For encoders and cross-attention. Cost queries × keys.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::Error;

/// every query sees every key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Full {}

impl Seeing for Full {
    fn build(&self, _scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Full))
    }

    fn is_causal(&self) -> bool {
        false
    }
}
