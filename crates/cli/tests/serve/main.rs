//! `whatwhere serve` over HTTP: the real program, runs of all families.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod deadlines;
mod described;
mod families;
mod faults;
mod llama;
mod load;
mod matrix;
mod openai;
