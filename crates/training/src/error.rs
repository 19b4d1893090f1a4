//! What can be wrong with settings, files and texts.

use std::{
    io,
    path::{Path, PathBuf},
};

use whatwhere_settings::Refusal;

/// What a run refuses or could not do: what was wrong, what was found, what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Settings that are refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file the system did not let us read or write.
    #[error("{} could not be {done}: {found}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done with it.
        done: &'static str,
        /// What the system said. Part of the message, hence not also its source.
        found: io::Error,
    },
    /// A file that could not be written.
    #[error(transparent)]
    Unwritten(#[from] whatwhere_files::Error),
    /// A run folder that another process trains into.
    #[error(
        "{} is in use by {holder}; wait for it to end, or choose another folder",
        folder.display()
    )]
    Busy {
        /// The run folder.
        folder: PathBuf,
        /// Who holds it, as far as the lock file says.
        holder: String,
    },
    /// A record that is broken, with sound ones after it.
    #[error(
        "{} line {line}: found {found:?}, expected a JSON object with a whole number \"step\"",
        path.display()
    )]
    Record {
        /// The file of records.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// How the line begins.
        found: String,
    },
    /// A text and references that do not belong together.
    #[error(
        "{hypotheses} segments with {references} lists of references; expected as many, and at least 1"
    )]
    Segments {
        /// Segments to score.
        hypotheses: usize,
        /// Lists of references.
        references: usize,
    },
    /// A segment without a reference.
    #[error("segment {segment} has no reference, expected at least 1")]
    Reference {
        /// The segment, from 1.
        segment: usize,
    },
    /// A question that a run cannot answer.
    #[error("{0}")]
    Settings(String),
    /// A checkpoint that is not whole.
    #[error("{}: found {found}; use an older checkpoint or train again", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// A file of a run folder that is not the one its run has written.
    #[error(
        "{} was changed, or is of another run: its SHA-256 is {found}, the run wrote {expected}; restore it, or train again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// The hash of what is there, shortened.
        found: String,
        /// The hash of what was written, shortened.
        expected: String,
    },
    /// A run folder of a program that came after this one.
    #[error(
        "{} has format {found}, written by whatwhere {version}; this program reads formats up to {known}: use that one or a later one",
        folder.display()
    )]
    Format {
        /// The run folder.
        folder: PathBuf,
        /// Its format.
        found: u64,
        /// The program that wrote it.
        version: String,
        /// The latest format this program knows.
        known: u64,
    },
    /// A run that would need more memory than there is.
    #[error(
        "training needs about {:.1} GB, {} parameters among it; there are {:.1} GB: use a smaller model, batch or length, or model.recompute",
        *needed as f64 / 1e9, parameters, *available as f64 / 1e9
    )]
    Memory {
        /// Bytes, estimated.
        needed: u64,
        /// Bytes of the machine, or of the group this process is in.
        available: u64,
        /// Learned values.
        parameters: u64,
    },
    /// A folder without a run.
    #[error("{} holds no run: found no config.toml, expected the folder of a training run", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder that has a run already.
    #[error("{} holds a run already", folder.display())]
    RunExists {
        /// The folder.
        folder: PathBuf,
    },
    /// Data that are not those a run began with.
    #[error(
        "the data of {} have changed since the run began; restore them, or start a new run",
        folder.display()
    )]
    DataChanged {
        /// The run folder.
        folder: PathBuf,
    },
    /// A loss that is not a number, or has exploded.
    #[error(
        "step {step}: loss {loss}, gradient norm {grad_norm}; stopped, {} keeps the last good checkpoint. \
         Try a lower training.lr, a longer warm-up, or a smaller training.clip",
        folder.display()
    )]
    Diverged {
        /// The update that failed.
        step: u64,
        /// Its loss.
        loss: f64,
        /// Its global gradient norm.
        grad_norm: f64,
        /// The run folder.
        folder: PathBuf,
    },
    /// What the data refuse.
    #[error(transparent)]
    Data(#[from] whatwhere_data::Error),
    /// What the model refuses.
    #[error(transparent)]
    Model(#[from] whatwhere_transformer::Error),
    /// Ranks that cannot work together.
    #[error("{0}")]
    Ranks(String),
    /// Another rank that cannot go on.
    #[error("rank {rank}: {said}")]
    Rank {
        /// Which.
        rank: usize,
        /// What it says.
        said: String,
    },
    /// Ctrl-C that could not be listened for.
    #[error("could not listen for Ctrl-C: {0}")]
    Signal(io::Error),
}

impl Error {
    /// Whether all ranks come to it by the same figures, so that none waits for another.
    pub fn is_of_all_ranks(&self) -> bool {
        matches!(self, Self::Diverged { .. })
    }

    pub(crate) fn file(
        path: impl AsRef<Path>,
        done: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |found| Self::File { path, done, found }
    }

    pub(crate) fn changed(path: impl AsRef<Path>, found: &str, expected: &str) -> Self {
        let short = |hash: &str| hash.chars().take(12).collect();
        Self::Changed { path: path.as_ref().into(), found: short(found), expected: short(expected) }
    }
}
