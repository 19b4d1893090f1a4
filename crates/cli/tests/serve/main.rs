//! `whatwhere serve` over HTTP: the real program, runs of all families.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod families;
mod faults;
mod load;
mod openai;
