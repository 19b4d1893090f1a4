//! Which class was told as which: a map for each cell, over all its seeds.

use super::figure;
use crate::{
    chart::Heat,
    results::{CellResult, Results},
};

/// Classes of a map: more cannot be read.
const CLASSES: usize = 64;

/// A section with a map for each cell that tells classes; nothing where none does.
pub(super) fn html(results: &Results) -> String {
    let maps: String = results.ranking().into_iter().filter_map(map).collect();
    if maps.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Confusion</h3>\n<p>Of the held-out texts of each class (row), the share that was told as which (column), \
         over all seeds.</p>\n<div class=\"panels\">\n{maps}</div>\n"
    )
}

fn map(cell: &CellResult) -> Option<String> {
    let found: Vec<_> = cell.runs().iter().filter_map(|run| run.classification.as_ref()).collect();
    let classes: Vec<String> =
        found.first()?.classes.iter().map(|figures| figures.class.clone()).collect();
    if classes.len() > CLASSES {
        return None;
    }
    let count = |row: usize, column: usize| -> u64 {
        found.iter().map(|found| found.confusion[row][column]).sum()
    };
    let values = (0..classes.len()).map(|row| {
        let all: u64 = (0..classes.len()).map(|column| count(row, column)).sum();
        (0..classes.len()).map(|column| count(row, column) as f64 / all as f64).collect()
    });
    let heat = Heat {
        title: cell.name.clone(),
        x: "told as".into(),
        y: "class".into(),
        columns: classes.clone(),
        rows: classes.clone(),
        values: values.collect(),
        range: Some((0.0, 1.0)),
        diverging: false,
    };
    Some(figure(&heat.svg(), ""))
}
