//! What people look at: `report.html`, one file that needs no network, beside `results.json` and `results.csv`.
//!
//! First the verdict in words, then the table it rests on, then the charts, and last the conditions.

mod curves;
mod explain;
mod heads;
mod lengths;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use whatwhere_files as files;

pub use lengths::{Read, save_lengths};

use crate::{
    Error,
    chart::{escape, inline, page, standalone},
    results::Results,
};

/// Writes the report and the figures; returns the report's path.
pub fn save(results: &[Results], folder: &Path) -> Result<PathBuf, Error> {
    make_folder(folder)?;
    let json = serde_json::to_string_pretty(results).map_err(|e| Error::Request(e.to_string()))?;
    write(&folder.join("results.json"), &json)?;
    let csv: String = results.iter().map(Results::csv).collect();
    write(&folder.join("results.csv"), &csv)?;
    for part in results {
        // Beside the runs that they show.
        let charts = part.folder.join("charts");
        make_folder(&charts)?;
        for chart in curves::all(part) {
            write(&charts.join(format!("{}.svg", chart.name)), &standalone(&chart.svg))?;
        }
    }
    let report = folder.join("report.html");
    write(&report, &html(results))?;
    Ok(report)
}

/// The report of some comparisons.
pub fn html(results: &[Results]) -> String {
    let title = match results {
        [one] => one.title.clone(),
        _ => "Which position encoding?".into(),
    };
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    for part in results {
        if results.len() > 1 {
            body += &format!("<h2>{}</h2>\n", escape(&part.title));
        }
        section(part, &mut body);
    }
    page(&title, &body)
}

fn section(results: &Results, body: &mut String) {
    *body += &explain::conditions(results);
    *body += "<h3>Verdict</h3>\n<ul>\n";
    for sentence in results.verdict() {
        *body += &format!("<li>{}</li>\n", inline(&sentence));
    }
    *body += match results.not_ranked {
        None => "</ul>\n<h3>Ranking</h3>\n",
        Some(_) => "</ul>\n<h3>Figures, not ranked</h3>\n",
    };
    *body += &results.ranking_table().html();
    *body += &explain::choices(results);
    if let Some(lengths) = results.lengths_table() {
        *body += &format!("<h3>Loss at other lengths, without training</h3>\n{}", lengths.html());
    }
    for said in results.evidence() {
        *body += &format!("<p class=\"note\">{}</p>\n", escape(&sentence(&said)));
    }
    for chart in curves::all(results) {
        *body += &figure(&format!("{}{}", chart.svg, chart.legend), chart.note);
    }
    heads::maps(results, body);
    heads::roles(results, body);
    heads::deltas(results, body);
    *body += "<h3>Arithmetic</h3>\n";
    *body += &results.arithmetic_table().html();
    *body += &explain::settings(results);
}

/// With a capital and a full stop.
fn sentence(said: &str) -> String {
    let mut rest = said.chars();
    let first = rest.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), rest.as_str())
}

fn figure(svg: &str, note: &str) -> String {
    format!("<figure>{svg}<figcaption>{}</figcaption></figure>\n", escape(note))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    Ok(files::replace(path, |writer| writer.write_all(text.as_bytes()))?)
}

/// Makes a folder with all above it.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder)
        .map_err(|e| Error::Request(format!("{} could not be made: {e}", folder.display())))
}
