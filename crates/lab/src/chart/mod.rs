//! Charts as SVG, written by hand: lines, labelled dots, heat maps, bars and small multiples, and a page to put them on.
//!
//! A chart is plain data with one method, `svg`, which returns one `<svg>` element that carries classes and no colors.
//! [`STYLE`] gives the colors, for light and dark screens and for print; [`page`] and [`standalone`] put both together.
//! Whatever the data, a chart is well-formed: values that are not finite are left out, and an empty chart says so.
//!
//! Series differ by color *and* by marker, and are named where they end, so that nobody has to match colors.
//! Start reading at [`Lines`]; `axis.rs` decides what an axis shows, `frame.rs` what all charts with two axes share.

mod axis;
mod bars;
mod frame;
mod heat;
mod labels;
mod lines;
mod marker;
mod page;
mod panels;
mod scatter;
mod svg;
#[cfg(test)]
mod tests;

pub use axis::{Axis, Scale};
pub use bars::{Bar, Bars};
pub use heat::Heat;
pub use lines::{Lines, Series};
pub use page::{STYLE, inline, page, standalone};
pub use panels::{Content, Panel, Panels};
pub use scatter::{Dot, Scatter};
pub use svg::escape;
