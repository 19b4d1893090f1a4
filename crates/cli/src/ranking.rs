//! The tables of a comparison, and its verdict.

use std::io::{self, Write};

use whatwhere_lab::results::Results;

/// Prints the tables, then the verdict.
pub(crate) fn print(results: &Results, out: &mut impl Write) -> io::Result<()> {
    let seeds = results.seeds;
    let plural = if seeds == 1 { "" } else { "s" };
    writeln!(out, "{} — {}, {seeds} seed{plural}", results.title, results.budget)?;
    writeln!(out)?;
    let ranking = results.ranking_table();
    writeln!(out, "{}", ranking.text())?;
    if let Some(lengths) = results.lengths_table() {
        writeln!(out, "{}", lengths.text())?;
        for note in &lengths.notes {
            writeln!(out, "{note}")?;
        }
        writeln!(out)?;
    }
    results.evidence().iter().try_for_each(|said| writeln!(out, "{said}"))?;
    for sentence in results.verdict().into_iter().chain(results.conditions()) {
        writeln!(out, "{sentence}")?;
    }
    writeln!(out)
}
