//! Causal: a query sees the keys up to its own place.
//! For language models. Half the cost of full.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::pattern as kernels;

use super::{Scene, Seeing};
use crate::Error;

/// a query sees the keys up to its own place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Causal {}

impl Seeing for Causal {
    fn build(&self, _scene: &Scene) -> Result<Box<dyn kernels::Pattern>, Error> {
        Ok(Box::new(kernels::Causal::upper_left()))
    }

    fn is_causal(&self) -> bool {
        true
    }
}
