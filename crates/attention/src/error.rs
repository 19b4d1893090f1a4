//! What can be wrong with settings, shapes and calls.

/// Settings or tensors that are refused: what was wrong, what was found, what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting with a value it cannot have.
    #[error("{setting} = {found}: {reason}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// What was found.
        found: String,
        /// What would be right.
        reason: String,
    },
    /// Choices that have no meaning together.
    #[error("{first} with {second}: {reason}")]
    Combination {
        /// One choice.
        first: String,
        /// The other.
        second: String,
        /// Why they do not go together.
        reason: &'static str,
    },
    /// Settings that could not be read.
    #[error("{0}")]
    Read(String),
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
    Kernels(#[from] whatwhere_kernels::Error),
}

impl Error {
    /// A setting with a value it cannot have.
    pub fn setting(
        setting: &'static str,
        found: impl std::fmt::Display,
        reason: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, found: found.to_string(), reason: reason.into() }
    }

    /// Choices that have no meaning together.
    pub fn combination(first: &str, second: &str, reason: &'static str) -> Self {
        Self::Combination { first: first.into(), second: second.into(), reason }
    }
}
