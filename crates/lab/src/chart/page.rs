//! Charts on a page, or as a file of their own.

use super::svg::escape;

/// The colors of charts, for light and dark screens and print.
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

/// A paragraph as HTML: `code` between backticks and links between angle brackets as doc comments have them.
pub fn inline(words: &str) -> String {
    let mut html = String::new();
    for (i, part) in words.split('`').enumerate() {
        if i % 2 == 1 {
            html.push_str(&format!("<code>{}</code>", escape(part)));
            continue;
        }
        for (i, part) in part.split("<https://").enumerate() {
            match part.split_once('>') {
                Some((address, rest)) if i > 0 => {
                    let address = escape(&format!("https://{address}"));
                    html.push_str(&format!("<a href=\"{address}\">{address}</a>{}", escape(rest)));
                }
                _ => html.push_str(&escape(part)),
            }
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_comments_become_html() {
        assert_eq!(inline("a `b < c` d & e"), "a <code>b &lt; c</code> d &amp; e");
        let link = "see <a href=\"https://a.b/c\">https://a.b/c</a>, \"2 &gt; 1\"";
        assert_eq!(
            inline("see <https://a.b/c>, \"2 > 1\""),
            link.replace("\"2", "&quot;2").replace("1\"", "1&quot;")
        );
    }
}
