//! The page itself: one script and one style, bundled from `page/` by `.ci/page` and committed, so that building needs Rust alone.

/// The script.
pub const SCRIPT: &str = include_str!("../../page/bundle/page.js");

/// The style.
pub const STYLE: &str = include_str!("../../page/bundle/page.css");

/// The page that asks a server: script and style lie at `page/page.js` and `page/page.css` beside it.
pub fn page() -> String {
    html(
        "<link rel=\"stylesheet\" href=\"page/page.css\">",
        "<script src=\"page/page.js\"></script>",
    )
}

/// The page with everything inside; `data` is JSON.
pub(super) fn whole(data: &str) -> String {
    // Within a script `</` would end it, and `<!--` begin a comment.
    let data = data.replace('<', "\\u003c");
    html(
        &format!("<style>\n{STYLE}</style>"),
        &format!(
            "<script id=\"data\" type=\"application/json\">{data}</script>\n<script>\n{SCRIPT}</script>"
        ),
    )
}

fn html(style: &str, script: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>whatwhere</title>\n{style}\n</head>\n<body>\n\
         <noscript>This page draws with JavaScript.</noscript>\n{script}\n</body>\n</html>\n"
    )
}
