//! Many runs side by side, and pictures of what they learned.
//!
//! [`chart`] draws: lines, labelled dots, heat maps and bars as SVG, and pages to put them on.

pub mod chart;
mod error;

pub use error::Error;
