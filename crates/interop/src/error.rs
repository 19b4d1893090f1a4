//! What can be wrong with the models of others.

use std::{
    io,
    path::{Path, PathBuf},
};

/// What an import refuses or could not do: what was wrong, what was found, what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file the system did not let us read.
    #[error("{} could not be read: {found}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said. Part of the message, hence not also its source.
        found: io::Error,
    },
    /// A file whose content is not what its name says, or says what we cannot do.
    #[error("{}: {found}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was found, and what would be right.
        found: String,
    },
    /// A model that is refused.
    #[error("{0}")]
    Refused(String),
    /// A tensor that is missing, left over, or of another shape.
    #[error("tensor {name}: found {found}, expected {expected}")]
    Tensor {
        /// Its name in the model's file.
        name: String,
        /// What is there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// What our settings refuse.
    #[error(transparent)]
    Model(#[from] whatwhere_transformer::Error),
    /// What the run folder refuses.
    #[error(transparent)]
    Run(#[from] whatwhere_training::Error),
    /// What the tokenizer refuses.
    #[error(transparent)]
    Data(#[from] whatwhere_data::Error),
}

impl Error {
    pub(crate) fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |found| Self::File { path, found }
    }

    pub(crate) fn content(path: impl AsRef<Path>, found: impl ToString) -> Self {
        Self::Content { path: path.as_ref().into(), found: found.to_string() }
    }

    pub(crate) fn tensor(
        name: impl Into<String>,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        Self::Tensor { name: name.into(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;
