//! Corpora, tokenizers, synthetic tasks and batches for sequence models. Knows no tensors: a batch is plain vectors.
//!
//! [`DataSettings`] say what to read; [`Corpus::load`] reads it, trains or loads the [`Tokenizer`] and encodes the splits;
//! [`Batches`] cuts a split into batches, each a pure function of seed and step, so that a resumed run needs only its step.
//!
//! ```
//! use whatwhere_data::{BatchSettings, BatchSize, Batches, Corpus, DataSettings, Split};
//!
//! let corpus = Corpus::from_texts(vec!["to be or not to be ".repeat(100)], &DataSettings::default())?;
//! let settings = BatchSettings { batch: BatchSize::Rows(4), length: 16, ..Default::default() };
//! let batch = Batches::new(&corpus, Split::Train, &settings)?.get(0)?;
//! assert_eq!(batch.tokens[1..16], batch.targets[..15]);
//! # Ok::<(), whatwhere_data::Error>(())
//! ```
//!
//! Start reading at [`Corpus`], then `batches/`; `read/` knows the file formats, `task/` has one file for each task.

mod batches;
mod corpus;
mod embedded;
mod encode;
mod error;
mod frame;
pub mod music;
mod read;
pub mod settings;
mod split;
pub mod task;
mod tokenizer;
mod tokens;
mod watch;

pub use batches::{Batch, BatchSettings, BatchSize, Batches, Labels, SourceSide};
pub use corpus::{Corpus, Description, Pair, Part, Split};
pub use embedded::shakespeare;
pub use error::{Error, Result};
pub use frame::Framed;
pub use settings::{DataSettings, Objective, Source, TokenizerSettings};
pub use tokenizer::{Decoder, Special, SpecialTokens, Tokenizer};
pub use tokens::Tokens;
pub use watch::{Watch, Work};
