//! What can be wrong with a model's settings and inputs.

use whatwhere_settings::Refusal;

/// Settings or inputs that are refused: what was wrong, what was found, what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that are refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
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
