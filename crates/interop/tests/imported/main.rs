//! Models of others through the importer: tiny ones of every family, GGUF files, trained ones where they are at hand, and files
//! that are broken.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod entries;
mod fixtures;
mod gguf;
mod hostile;
mod int8;
mod onnx;
mod published;
mod readers;
mod tied;
mod trained;
mod vocabulary;
mod weights;
mod writer;
mod written;
