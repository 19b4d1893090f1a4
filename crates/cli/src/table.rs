//! Rows as text: a table for people, one JSON object per line for programs.

use std::{
    env,
    io::{IsTerminal, Write, stdout},
};

use serde::Serialize;

use crate::{
    choices::Axis,
    tour::{Row, Setup},
};

/// How rows are written.
pub(crate) enum Form {
    Json,
    Table(Paint),
}

impl Form {
    pub(crate) fn of_stdout(json: bool) -> Self {
        if json { Self::Json } else { Self::Table(Paint::of_stdout()) }
    }

    /// What stands above the first row.
    pub(crate) fn head(&self, setup: &Setup, out: &mut impl Write) -> std::io::Result<()> {
        let Self::Table(paint) = self else { return Ok(()) };
        let Setup { batch, heads, head_dim, length, threads, simd, .. } = setup;
        writeln!(
            out,
            "forward + backward in f32: batch {batch}, {heads} heads of {head_dim}, \
             {length} tokens, {threads} threads, {simd}"
        )?;
        writeln!(
            out,
            "errors: against the definition in f64, relative to its largest number or 1"
        )?;
        writeln!(out)?;
        let line = line(["", "visible", "time", "tokens/s", "learned", "out err", "grad err", ""]);
        writeln!(out, "{}", paint.bold(line.trim_end()))
    }

    /// One row; `first` of its axis gets a heading.
    pub(crate) fn row(
        &self,
        setup: &Setup,
        row: &Row,
        first: bool,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let paint = match self {
            Self::Json => {
                let line = serde_json::to_string(&Line { row, setup })?;
                return writeln!(out, "{line}");
            }
            Self::Table(paint) => paint,
        };
        if first {
            let (axis, question) = Axis::question(row.axis);
            writeln!(out, "{}  {}", paint.bold(axis), paint.dim(question))?;
        }
        let cells = line([
            row.name,
            &format!("{:.1} %", 100.0 * row.visible),
            &time(row.milliseconds),
            &grouped(row.tokens_per_second.round() as u64),
            &grouped(row.learned as u64),
            &format!("{:.0e}", row.out_error),
            &format!("{:.0e}", row.gradient_error),
            "",
        ]);
        writeln!(out, "{cells}{}", paint.dim(row.about))
    }
}

/// A row with the sizes it was measured at, so that a line can stand alone.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    #[serde(flatten)]
    setup: &'a Setup,
}

fn line(cells: [&str; 8]) -> String {
    let [name, visible, time, speed, learned, out, gradient, about] = cells;
    format!(
        "  {name:<17}{visible:>8}{time:>11}{speed:>10}{learned:>10}{out:>9}{gradient:>10}  {about}"
    )
}

/// Three digits or more.
fn time(milliseconds: f64) -> String {
    let decimals = if milliseconds < 10.0 { 2 } else { 1 };
    format!("{milliseconds:.decimals$} ms")
}

/// Thousands apart: `1 048 576`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Bold and dim on terminals that want them.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Off when standard output is no terminal, and when `NO_COLOR` is set, see <https://no-color.org>.
    fn of_stdout() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { on: stdout().is_terminal() && !refused && !dumb }
    }

    fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_048_576, "1 048 576")] {
            assert_eq!(grouped(number), text);
        }
    }
}
