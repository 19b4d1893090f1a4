//! The ranking of a comparison as a table, and its verdict.

use std::io::{self, Write};

use whatwhere_lab::{
    results::{CellResult, Measure, Outcome, Results},
    statistics::Summary,
    verdict::figure,
};

/// Prints the table, then the verdict.
pub(crate) fn print(results: &Results, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} — {}, {} seed{}",
        results.title,
        results.budget,
        results.seeds,
        plural(results.seeds)
    )?;
    writeln!(out)?;
    let mut rows = vec![head(results)];
    rows.extend(results.ranking().into_iter().map(|cell| row(results, cell)));
    let unfinished =
        results.cells.iter().filter(|cell| !matches!(cell.outcome, Outcome::Trained { .. }));
    rows.extend(unfinished.map(|cell| vec![cell.name.clone(), state(&cell.outcome).into()]));
    aligned(&rows, out)?;
    writeln!(out)?;
    for sentence in results.verdict().into_iter().chain(results.conditions()) {
        writeln!(out, "{sentence}")?;
    }
    writeln!(out)
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn state(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Trained { .. } => "trained",
        Outcome::Refused { .. } => "does not compose",
        Outcome::Failed { .. } => "failed",
    }
}

/// The lengths of any cell, without those scaled.
fn lengths(results: &Results) -> Vec<usize> {
    let first = results.cells.iter().find(|cell| !cell.lengths.is_empty());
    let plain = first.into_iter().flat_map(|cell| &cell.lengths).filter(|at| at.scaling.is_none());
    plain.map(|at| at.length).collect()
}

fn head(results: &Results) -> Vec<String> {
    let mut head = vec![String::new()];
    match results.measure {
        Measure::Accuracy => {
            head.extend(["accuracy", "solved", "lift-off"].map(Into::into));
            head.push(format!("vs {}", results.baseline));
        }
        Measure::Loss => {
            head.push("loss".into());
            head.push(format!("vs {}", results.baseline));
        }
    }
    head.extend(lengths(results).iter().map(|length| format!("at {length}")));
    if results.cells.iter().any(|cell| cell.bleu.is_some()) {
        head.push("BLEU".into());
    }
    head.extend(["tokens/s", "memory", "parameters"].map(Into::into));
    head
}

fn row(results: &Results, cell: &CellResult) -> Vec<String> {
    let mut row = vec![cell.name.clone()];
    let shown = |summary: Option<Summary>| summary.map_or("–".into(), |summary| figure(&summary));
    match results.measure {
        Measure::Accuracy => {
            row.push(shown(cell.accuracy));
            row.push(format!("{}/{}", cell.solved.unwrap_or(0), results.seeds));
            row.push(cell.lift_off.map_or("–".into(), |lift| format!("{:.0}", lift.mean)));
        }
        Measure::Loss => row.push(shown(cell.loss)),
    }
    row.push(
        cell.difference.map_or(String::new(), |difference| format!("{:+.3}", difference.mean)),
    );
    for length in lengths(results) {
        row.push(shown(cell.at(length).and_then(|at| at.loss)));
    }
    if results.cells.iter().any(|cell| cell.bleu.is_some()) {
        row.push(cell.bleu.map_or("–".into(), |bleu| format!("{:.2}", bleu.mean)));
    }
    row.push(cell.tokens_per_second.map_or("–".into(), |speed| format!("{:.0}", speed.mean)));
    row.push(cell.peak_memory().map_or("–".into(), |bytes| format!("{} MiB", bytes >> 20)));
    row.push(cell.runs().first().map_or("–".into(), |run| run.cost.parameters.to_string()));
    row
}

/// The first column to the left, all others to the right.
fn aligned(rows: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter(|row| row.len() > 2)
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let first = rows
        .iter()
        .filter_map(|row| row.first())
        .map(|cell| cell.chars().count())
        .max()
        .unwrap_or(0);
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = if column == 0 { first } else { widths[column] };
            let space = " ".repeat(pad.saturating_sub(cell.chars().count()));
            match column {
                0 => line += &format!("{cell}{space}"),
                _ if row.len() <= 2 => line += &format!("  {cell}"),
                _ => line += &format!("  {space}{cell}"),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
