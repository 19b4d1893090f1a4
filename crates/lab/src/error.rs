//! What the lab refuses or could not do.

/// What was wrong, what was found, what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something asked for that does not exist or makes no sense.
    #[error("{0}")]
    Request(String),
    /// A folder that is kept for another comparison.
    #[error("{0}")]
    Taken(String),
    /// Processes that were to share a folder where none can be kept from what another does.
    #[error("{} is on a file system without locks, by which processes share runs", folder.display())]
    NoLocks {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// A file that could not be written.
    #[error(transparent)]
    Unwritten(#[from] whatwhere_files::Error),
    /// From a run.
    #[error(transparent)]
    Training(#[from] whatwhere_training::Error),
    /// From a corpus.
    #[error(transparent)]
    Data(#[from] whatwhere_data::Error),
    /// From a model.
    #[error(transparent)]
    Transformer(#[from] whatwhere_transformer::Error),
    /// From an attention layer.
    #[error(transparent)]
    Attention(#[from] whatwhere_attention::Error),
}
