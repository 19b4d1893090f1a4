//! What can be wrong with settings, shapes and calls.

use whatwhere_settings::Refusal;

/// Settings or tensors that are refused: what was wrong, what was found, what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings, or something asked of a call, that cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A tensor of the wrong shape.
    #[error("{what} has shape {found:?}, expected {expected}")]
    Shape {
        /// The tensor.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// What would be right.
        expected: String,
    },
    /// A call the kernels refuse.
    #[error(transparent)]
    Kernels(whatwhere_kernels::Error),
}

impl From<whatwhere_kernels::Error> for Error {
    fn from(error: whatwhere_kernels::Error) -> Self {
        match error {
            whatwhere_kernels::Error::Refused(refusal) => Self::Refused(refusal),
            other => Self::Kernels(other),
        }
    }
}
