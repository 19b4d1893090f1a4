//! The page itself: one script and one style, bundled from `page/` by `.ci/page` and committed, so that building needs Rust alone.

/// The script.
pub const SCRIPT: &str = include_str!("../../page/bundle/page.js");

/// The style.
pub const STYLE: &str = include_str!("../../page/bundle/page.css");

/// What asks the module in a page without a server, apart from the page.
const WORKER: &str = include_str!("../../page/bundle/worker.js");

/// The page that asks a server: script and style lie at `page/page.js` and `page/page.css` beside it.
pub fn page() -> String {
    html(
        "<link rel=\"stylesheet\" href=\"page/page.css\">",
        "<script src=\"page/page.js\"></script>",
    )
}

/// The page with everything inside; `data` is JSON.
pub(super) fn whole(data: &str) -> String {
    let data = json("data", data);
    html(&format!("<style>\n{STYLE}</style>"), &format!("{data}\n<script>\n{SCRIPT}</script>"))
}

/// The page with a module inside, as base64; `within` is JSON.
pub(super) fn alone(within: &str, module: &str) -> String {
    let within = json("alone", within);
    html(
        &format!("<style>\n{STYLE}</style>"),
        &format!(
            "{within}\n<script id=\"module\" type=\"text/plain\">{module}</script>\n\
             <script id=\"worker\" type=\"text/plain\">\n{WORKER}</script>\n<script>\n{SCRIPT}</script>"
        ),
    )
}

/// JSON in a page.
fn json(id: &str, json: &str) -> String {
    // Within a script `</` would end it, and `<!--` begin a comment.
    let json = json.replace('<', "\\u003c");
    format!("<script id=\"{id}\" type=\"application/json\">{json}</script>")
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
