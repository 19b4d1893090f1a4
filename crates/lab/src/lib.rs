//! Many runs side by side, lengths beyond the trained one, and pictures of what was learned.
//!
//! - [`grid`] makes cells of settings that take several values, [`budget`] says what each may spend.
//! - [`compare`] trains and measures them, [`extrapolate`] tries lengths nobody trained, [`cost`] predicts and counts.
//! - [`reproduce`] holds published claims against what is measured here.
//! - [`search`] finds the settings at which a cell does best; [`standard`] is the comparison that runs without being asked for.
//! - [`record`] keeps what a comparison was asked to be; [`results`] sums up over seeds by [`statistics`]; [`table`] and [`lengths`] lay it out, [`verdict`] says it in words, [`report`] shows it
//!   with the drawings of [`chart`].
//! - [`heads`] measures what trained heads do, and what a model loses without them.
//! - [`show`] draws encodings, patterns and what trained heads do; [`view`] answers the page on which all this is looked at.

mod alike;
pub mod budget;
pub mod chart;
pub mod compare;
pub mod cost;
mod error;
mod evidence;
pub mod extrapolate;
pub mod grid;
pub mod heads;
pub mod lengths;
mod measure;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod search;
mod settings;
pub mod show;
pub mod standard;
pub mod statistics;
pub mod table;
pub mod verdict;
pub mod view;

pub use error::Error;
