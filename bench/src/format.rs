//! How rows are written: aligned for people, Markdown for documents, one JSON object per line for programs.

use std::io::{self, Write};

use serde::Serialize;

/// Title and width of a column, and whether it is aligned left, as text is.
pub type Column = (&'static str, usize, bool);

/// A form of output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Columns of fixed width.
    Table,
    /// A table of Markdown.
    Markdown,
    /// One object per line.
    Json,
}

/// A line of a table.
pub trait Row: Serialize {
    /// What its columns are.
    const COLUMNS: &'static [Column];

    /// One text for each column.
    fn cells(&self) -> Vec<String>;
}

impl Format {
    /// What comes before the rows: the machine, and the columns' titles.
    pub fn start<R: Row>(self, machine: &[String], to: &mut impl Write) -> io::Result<()> {
        let titles: Vec<String> = R::COLUMNS.iter().map(|column| column.0.to_owned()).collect();
        match self {
            Self::Json => Ok(()),
            Self::Table => {
                machine.iter().try_for_each(|line| writeln!(to, "{line}"))?;
                writeln!(to, "\n{}", aligned(&titles, R::COLUMNS))
            }
            Self::Markdown => {
                machine.iter().try_for_each(|line| writeln!(to, "- {line}"))?;
                let rules = R::COLUMNS.iter().map(|column| if column.2 { "---" } else { "---:" });
                let rules: Vec<&str> = rules.collect();
                writeln!(to, "\n| {} |\n| {} |", titles.join(" | "), rules.join(" | "))
            }
        }
    }

    /// One row.
    pub fn row<R: Row>(self, row: &R, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Json => writeln!(to, "{}", serde_json::to_string(row)?),
            Self::Table => writeln!(to, "{}", aligned(&row.cells(), R::COLUMNS)),
            Self::Markdown => writeln!(to, "| {} |", row.cells().join(" | ")),
        }
    }
}

fn aligned(cells: &[String], columns: &[Column]) -> String {
    let padded = cells.iter().zip(columns).map(|(cell, &(_, width, left))| {
        if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}
