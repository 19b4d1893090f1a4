//! Charts on a page, or as a file of their own.

use super::svg::escape;

/// The colours of charts, for light and dark screens and print.
pub const STYLE: &str = include_str!("chart.css");

const PAGE: &str = include_str!("page.css");
/// A file of its own brings its own ground.
const GROUND: &str = "\
.chart { background: #fff; }
@media screen and (prefers-color-scheme: dark) { .chart { background: #12161d; } }
";

/// A chart as an SVG file: with its style inside.
pub fn standalone(svg: &str) -> String {
    match svg.split_once('>') {
        Some((opening, rest)) => format!("{opening}><style>\n{STYLE}{GROUND}</style>{rest}"),
        None => svg.to_owned(),
    }
}

/// A whole HTML page with the style of charts: it needs no network and no scripts. `body` is HTML already.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{PAGE}{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
}
