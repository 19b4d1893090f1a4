//! What can be wrong with a call.

use pyo3::{PyErr, exceptions::PyValueError};
use whatwhere_settings::Refusal;

/// Words or arrays that are refused: what was wrong, what was found, what would be right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Words that a layer would refuse as well.
    #[error(transparent)]
    Choice(#[from] whatwhere_attention::Error),
    /// Words that make no sense here.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A call the kernels refuse.
    #[error(transparent)]
    Kernels(#[from] whatwhere_kernels::Error),
    /// An array of the wrong shape.
    #[error("{what} has shape {found:?}, expected {expected}")]
    Shape { what: String, found: Vec<usize>, expected: String },
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        PyValueError::new_err(error.to_string())
    }
}
