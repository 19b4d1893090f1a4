//! Training: what a run writes and reads beside its tensors.
//!
//! - [`schedule`] says how fast to learn at a step, [`statistics`] how good a loss is in figures people compare.
//! - [`bleu`] and [`chrf`] score translations, with the figures of sacreBLEU.
//! - [`journal`] and [`tensorboard`] record a run; both go on after a stop without repeating a step.
//! - [`files`] replaces a file whole or not at all, [`lock`] keeps a run folder to one process.
//! - [`interrupt`] lets a run stop between two steps.

pub mod bleu;
pub mod chrf;
mod error;
pub mod files;
pub mod interrupt;
pub mod journal;
pub mod lock;
mod ngrams;
pub mod schedule;
pub mod statistics;
pub mod tensorboard;

pub use error::Error;
