//! Training: what a run writes and reads beside its tensors.
//!
//! - [`files`] replaces a file whole or not at all, [`lock`] keeps a run folder to one process.

mod error;
pub mod files;
pub mod journal;
pub mod lock;

pub use error::Error;
