//! How a command ends that did not do what it was asked: an error with advice, or a code alone.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The end of a command that has said all there is to say; only its code is left.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) u8);

impl Ended {
    /// Stopped by Ctrl-C or SIGTERM.
    pub(crate) const INTERRUPTED: Self = Self(130);
    /// Nothing came out, or not all that was asked for.
    pub(crate) const FAILED: Self = Self(1);
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ended with code {}", self.0)
    }
}

impl std::error::Error for Ended {}
