//! Many runs side by side, and pictures of what they learned.
//!
//! [`show`] draws encodings, patterns and what trained heads do; [`chart`] is what it draws with: lines, labelled dots,
//! heat maps and bars as SVG, and pages to put them on.

pub mod chart;
mod error;
pub mod show;

pub use error::Error;
