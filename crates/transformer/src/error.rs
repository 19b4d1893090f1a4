//! What can be wrong with a model's settings and inputs.

/// Settings or inputs that are refused: what was wrong, what was found, what would be right.
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
    /// Settings that could not be read.
    #[error("{0}")]
    Read(String),
    /// An input that does not fit the model.
    #[error("{0}")]
    Input(String),
    /// Parameters that do not fit the model.
    #[error("parameter {name}: {reason}")]
    Parameter {
        /// The parameter's name.
        name: String,
        /// What was found and what would be right.
        reason: String,
    },
    /// What a layer refuses.
    #[error(transparent)]
    Attention(#[from] whatwhere_attention::Error),
}

impl Error {
    pub(crate) fn setting(
        setting: &'static str,
        found: impl std::fmt::Display,
        reason: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, found: found.to_string(), reason: reason.into() }
    }
}
