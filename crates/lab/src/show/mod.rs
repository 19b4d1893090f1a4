//! Pictures of encodings, patterns, tasks and trained heads, as SVG files and one HTML page.
//!
//! [`position`] and [`pattern`] draw choices, [`overview`] all of them in one picture, [`task`] examples of a task, [`attention`] the heads of a run, [`heads`] what they do, and [`split`] takes scores apart into what
//! and where. Each returns a [`Page`], which [`Page::save`] writes. Nothing is drawn by a formula of its own: positions, biases,
//! angles, weights and scores come from the layers and kernels that models run on.

mod attention;
mod choice;
mod embedding;
mod figures;
mod heads;
mod overview;
mod page;
mod pattern;
mod position;
mod reading;
mod split;
mod task;
mod terms;

pub use attention::{Heads, attention};
pub(crate) use figures::{PatternFigures, PositionFigures};
pub use heads::{heads, heads_table};
pub use overview::overview;
pub use page::{Page, Picture, Section};
pub use pattern::pattern;
pub use position::position;
pub use reading::{Asked, Reader, Reading};
pub(crate) use reading::{document_starts, visible};
pub use split::{LONGEST_SPLIT, split, terms, terms_of};
pub use task::task;
pub use terms::{Kind, Parts, TERMS, Term, Terms};
