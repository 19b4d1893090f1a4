//! What can be wrong with settings, files and tokens.

use std::{io, path::PathBuf};

use whatwhere_settings::Refusal;

/// Data that is refused: what was wrong, what was found, what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that are refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file that could not be read or written.
    #[error("{path}: {found}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        found: io::Error,
    },
    /// A file that could not be written.
    #[error(transparent)]
    Unwritten(#[from] whatwhere_files::Error),
    /// A file whose content is not what it should be.
    #[error("{name}: {reason}")]
    Content {
        /// The file, and the place in it where known.
        name: String,
        /// What was found and what would be right.
        reason: String,
    },
    /// A split with too little in it.
    #[error("the {split} split has {found}, expected {expected}")]
    Short {
        /// The split.
        split: &'static str,
        /// What it has.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A character without a token.
    #[error(
        "character {character:?} is not among the {vocabulary} tokens, and there is no token for unknown ones"
    )]
    Character {
        /// The character.
        character: char,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Work that was ended by who watched it.
    #[error("interrupted while the data were prepared; nothing was begun")]
    Interrupted,
    /// What the tokenizer refused.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

impl Error {
    pub(crate) fn content(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Content { name: name.into(), reason: reason.into() }
    }

    /// For `map_err`: names the file in front of what the system said.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |found| Self::File { path, found }
    }
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
