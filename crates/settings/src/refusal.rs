//! What can be wrong with settings.

use std::{borrow::Cow, fmt::Display};

/// Settings that are refused: what was wrong, what was found, what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A setting with a value it cannot have.
    #[error("{setting} = {found}: {reason}")]
    Setting {
        /// The setting's name.
        setting: Cow<'static, str>,
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
    /// Settings that were not understood.
    #[error("{0}")]
    Unreadable(String),
}

/// Constructors of refusals for every error that can hold one.
pub trait Refuses: From<Refusal> {
    /// A setting with a value it cannot have.
    fn setting(
        setting: impl Into<Cow<'static, str>>,
        found: impl Display,
        reason: impl Into<String>,
    ) -> Self {
        let (setting, found) = (setting.into(), found.to_string());
        Refusal::Setting { setting, found, reason: reason.into() }.into()
    }

    /// Choices that have no meaning together.
    fn combination(first: &str, second: &str, reason: &'static str) -> Self {
        Refusal::Combination { first: first.into(), second: second.into(), reason }.into()
    }

    /// Settings that were not understood, with what the reader found.
    fn unreadable(found: impl Display) -> Self {
        Refusal::Unreadable(found.to_string()).into()
    }
}

impl<E: From<Refusal>> Refuses for E {}
