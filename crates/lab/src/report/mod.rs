//! What people look at: `report.html`, one file that needs no network, beside `results.json` and `results.csv`.
//!
//! First the verdict in words, then the table it rests on, then the charts, and last the conditions.

mod confusion;
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
use whatwhere_training::lock::Lock;

use curves::Chart;
pub use lengths::{Read, save_lengths};

use crate::{
    Error,
    chart::{escape, inline, page, standalone},
    results::Results,
};

const RESULTS: &str = "results.json";

/// Writes the report and the figures; returns the report's path.
pub fn save(results: &[Results], folder: &Path) -> Result<PathBuf, Error> {
    make_folder(folder)?;
    let csv: String = results.iter().map(|part| part.runs_table().csv()).collect();
    write(&folder.join("results.csv"), &csv)?;
    let charts: Vec<Vec<Chart>> = results.iter().map(curves::all).collect();
    for (part, charts) in results.iter().zip(&charts) {
        // Beside the runs that they show.
        let folder = part.folder.join("charts");
        make_folder(&folder)?;
        for chart in charts {
            write(&folder.join(format!("{}.svg", chart.name)), &standalone(&chart.svg))?;
        }
    }
    let report = folder.join("report.html");
    write(&report, &with_charts(results, &charts))?;
    // Last, as a sign that all of it is of these results.
    write(&folder.join(RESULTS), &json(results)?)?;
    Ok(report)
}

/// [`save`] for processes that share a folder: one after the other, and the same only once.
pub fn save_once(results: &[Results], folder: &Path) -> Result<PathBuf, Error> {
    make_folder(folder)?;
    let _turn = Lock::wait(&folder.join(".report.lock"))?;
    let report = folder.join("report.html");
    let written = fs::read_to_string(folder.join(RESULTS)).ok();
    match written == Some(json(results)?) && report.is_file() {
        true => Ok(report),
        false => save(results, folder),
    }
}

fn json(results: &[Results]) -> Result<String, Error> {
    serde_json::to_string_pretty(results).map_err(|e| Error::Request(e.to_string()))
}

/// The report of some comparisons.
pub fn html(results: &[Results]) -> String {
    let charts: Vec<Vec<Chart>> = results.iter().map(curves::all).collect();
    with_charts(results, &charts)
}

fn with_charts(results: &[Results], charts: &[Vec<Chart>]) -> String {
    let title = match results {
        [one] => one.title.clone(),
        _ => "Which position encoding?".into(),
    };
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    for (part, charts) in results.iter().zip(charts) {
        if results.len() > 1 {
            body += &format!("<h2>{}</h2>\n", escape(&part.title));
        }
        section(part, charts, &mut body);
    }
    page(&title, &body)
}

fn section(results: &Results, charts: &[Chart], body: &mut String) {
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
    for chart in charts {
        *body += &figure(&format!("{}{}", chart.svg, chart.legend), chart.note);
    }
    *body += &confusion::html(results);
    *body += &heads::Learned::of(results).html();
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
