//! Tables of results, once for all who show them: as aligned text, and as HTML.

use std::fmt::Write;

use crate::{
    chart::escape,
    results::{CellResult, LengthResult, Measure, Outcome, Results},
    statistics::{Summary, Verdict},
    verdict::{figure, speed},
};

/// Rows of words and figures under a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What columns are; the first is the name of a row.
    pub head: Vec<String>,
    /// As many entries as the head has, or fewer.
    pub rows: Vec<Vec<String>>,
    /// Rows that have words in place of figures: name and words.
    pub words: Vec<(String, String)>,
    /// What has to be known to read it, a sentence each.
    pub notes: Vec<String>,
}

impl Results {
    /// Cells, best first; those that were not trained last, with the reason.
    pub fn ranking_table(&self) -> Table {
        let is_task = self.measure == Measure::Accuracy;
        let has = |value: fn(&CellResult) -> bool| self.cells.iter().any(value);
        let (has_bleu, has_bits) =
            (has(|cell| cell.bleu.is_some()), has(|cell| cell.bits_per_byte.is_some()));
        let has_difference = has(|cell| cell.difference.is_some());
        let mut head = vec![""];
        head.extend(match self.measure {
            Measure::Accuracy => &["accuracy", "solved", "lift-off"][..],
            Measure::Loss if has_bits => &["loss", "bits per byte"],
            Measure::Loss => &["loss"],
            Measure::BitsPerByte => &["bits per byte", "nats per token"],
        });
        let against = format!("against {}", self.baseline);
        if has_difference {
            head.extend([against.as_str(), ""]);
        }
        if has_bleu {
            head.push("BLEU");
        }
        head.extend(["tokens/s", "peak memory", "parameters"]);
        let row = |cell: &CellResult| {
            let mut row = vec![cell.name.clone()];
            row.push(shown(cell.measured(self.measure)));
            match self.measure {
                Measure::Accuracy => {
                    row.push(format!("{} of {}", cell.solved.unwrap_or(0), cell.runs().len()));
                    row.push(cell.lift_off.map_or(dash(), |lift| format!("{:.0}", lift.mean)));
                }
                Measure::Loss if has_bits => row.push(shown(cell.bits_per_byte)),
                Measure::Loss => {}
                Measure::BitsPerByte => row.push(shown(cell.loss)),
            }
            if has_difference {
                row.extend(self.difference(cell));
            }
            if has_bleu {
                row.push(cell.bleu.map_or(dash(), |bleu| format!("{:.2}", bleu.mean)));
            }
            row.push(cell.tokens_per_second.map_or(dash(), |found| speed(&found)));
            row.push(cell.peak_memory().map_or(dash(), |bytes| format!("{} MiB", bytes >> 20)));
            let parameters = cell.runs().first().map(|run| run.cost.parameters);
            row.push(parameters.map_or(dash(), |count| count.to_string()));
            row
        };
        let rows = self.ranking().into_iter().map(row).collect();
        let words = self.cells.iter().filter_map(|cell| match &cell.outcome {
            Outcome::Trained { .. } => None,
            Outcome::Refused { reason } => {
                Some((cell.name.clone(), format!("does not compose: {reason}")))
            }
            Outcome::Failed { reason } => Some((cell.name.clone(), format!("failed: {reason}"))),
        });
        let words = words.collect();
        let mut notes = vec![match (self.measure, self.seeds) {
            (_, 1) => "One run each.".to_owned(),
            _ => "Mean over seeds, ± half of the 95 % confidence interval.".into(),
        }];
        if self.measure == Measure::Loss {
            notes.push("Loss in nats per token.".into());
        }
        if is_task {
            notes.push(
                "Lift-off: the update at which three quarters of the answers are right.".into(),
            );
        }
        notes.push(
            "Tokens/s: mean over stretches of the training, ± half of its 95 % confidence interval. Peak memory: the most that \
             the whole process held while it trained, data and moments of the optimizer included."
                .into(),
        );
        notes.extend(self.conditions());
        Table { head: head.into_iter().map(Into::into).collect(), rows, words, notes }
    }

    /// The difference to the baseline, and what it amounts to.
    fn difference(&self, cell: &CellResult) -> [String; 2] {
        let Some(difference) = cell.difference else { return [String::new(), String::new()] };
        let verdict = match cell.verdict {
            Some(Verdict::WithinNoise) => "within noise",
            Some(Verdict::Unknown) | None => "one seed",
            Some(verdict) if self.measure.is_better(verdict) => "better",
            Some(_) => "worse",
        };
        let margin = difference.margin.map_or(String::new(), |margin| format!(" ± {margin:.3}"));
        [format!("{:+.3}{margin}", difference.mean), verdict.into()]
    }

    /// Loss at every length, with the scalings of rotary in rows of their own; nothing if only one was read.
    pub fn lengths_table(&self) -> Option<Table> {
        let first = self.cells.iter().find(|cell| !cell.lengths.is_empty());
        let plain =
            first.into_iter().flat_map(|cell| &cell.lengths).filter(|at| at.scaling.is_none());
        let lengths: Vec<usize> = plain.map(|at| at.length).collect();
        if lengths.len() < 2 {
            return None;
        }
        let head = std::iter::once(String::new());
        let head = head.chain(lengths.iter().map(|length| format!("at {length}"))).collect();
        let unit = match self.measure {
            Measure::BitsPerByte => Measure::BitsPerByte,
            _ => Measure::Loss,
        };
        let mut table = Table { head, ..Table::default() };
        table.notes.push(format!(
            "In {}, read at windows of other lengths without training.",
            unit.unit()
        ));
        for cell in self.ranking() {
            let mut ways: Vec<Option<&str>> =
                cell.lengths.iter().map(|at| at.scaling.as_deref()).collect();
            ways.sort_unstable();
            ways.dedup();
            for way in ways {
                let of = |length: &usize| {
                    let is =
                        |at: &&LengthResult| at.length == *length && at.scaling.as_deref() == way;
                    cell.lengths.iter().find(is)
                };
                let scaled = way.map_or(String::new(), |way| format!(" with {way} scaling"));
                let mut row = vec![format!("{}{scaled}", cell.name)];
                for length in &lengths {
                    let at = of(length);
                    row.push(match at {
                        Some(at) => shown(at.measured(self.measure)),
                        None => String::new(),
                    });
                    if let Some(reason) = at.and_then(|at| at.missing.as_ref()) {
                        let note = format!("– at {length}: {reason}.");
                        if !table.notes.contains(&note) {
                            table.notes.push(note);
                        }
                    }
                }
                table.rows.push(row);
            }
        }
        Some(table)
    }

    /// Arithmetic of a forward pass, in MFLOP for each token.
    pub fn arithmetic_table(&self) -> Table {
        let mega = |flops: f64| format!("{:.3}", flops / 1e6);
        let rows = self.cells.iter().filter_map(|cell| {
            let flops = &cell.runs().first()?.cost.flops;
            let figures = [flops.matrices, flops.visible, flops.computed].map(mega);
            Some([cell.name.clone()].into_iter().chain(figures).collect())
        });
        Table {
            head: ["", "matrices", "attention, visible", "attention, computed"].map(Into::into).into(),
            rows: rows.collect(),
            words: Vec::new(),
            notes: vec![
                "MFLOP for each token of a forward pass. Visible: of the pairs that the pattern shows. Computed: of the pairs \
                 in every block that the kernels compute."
                    .into(),
            ],
        }
    }
}

impl Table {
    /// Columns of text: the first to the left, all others to the right.
    pub fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let length = |text: &String| text.chars().count();
        let names = self.words.iter().map(|(name, _)| length(name));
        let width = |column: usize| {
            let widest = all().filter_map(|row| row.get(column)).map(length).max().unwrap_or(0);
            if column == 0 { widest.max(names.clone().max().unwrap_or(0)) } else { widest }
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let first = widths.first().copied().unwrap_or(0);
        let mut text = String::new();
        for row in all() {
            let mut line = String::new();
            for (column, (entry, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = match column {
                    0 => write!(line, "{entry:<width$}"),
                    _ => write!(line, "  {entry:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        for (name, words) in &self.words {
            let _ = writeln!(text, "{name:<first$}  {words}");
        }
        text
    }

    /// A table that scrolls by itself where it is wider than the page, and its notes.
    pub fn html(&self) -> String {
        let row = |tag: &str, cells: &[String]| {
            let cells: String =
                cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let mut html = format!(
            "<div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>",
            row("th", &self.head)
        );
        html.extend(self.rows.iter().map(|cells| row("td", cells)));
        for (name, words) in &self.words {
            let span = self.head.len().saturating_sub(1).max(1);
            html += &format!(
                "<tr><td>{}</td><td colspan=\"{span}\" class=\"reason\">{}</td></tr>\n",
                escape(name),
                escape(words)
            );
        }
        html += "</tbody></table></div>\n";
        if !self.notes.is_empty() {
            html += &format!("<p class=\"note\">{}</p>\n", escape(&self.notes.join(" ")));
        }
        html
    }
}

fn shown(summary: Option<Summary>) -> String {
    summary.map_or(dash(), |summary| figure(&summary))
}

fn dash() -> String {
    "–".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_aligned_and_html_escaped() {
        let table = Table {
            head: ["", "loss"].map(Into::into).into(),
            rows: vec![
                ["a & b", "1.5"].map(Into::into).into(),
                ["c", "12.25"].map(Into::into).into(),
            ],
            words: vec![("longer name".into(), "failed: why".into())],
            notes: vec!["A note.".into()],
        };
        assert_eq!(
            table.text(),
            "              loss\na & b          1.5\nc            12.25\nlonger name  failed: why\n"
        );
        let html = table.html();
        assert!(html.contains("<td>a &amp; b</td><td>1.5</td>"), "{html}");
        assert!(html.contains("colspan=\"1\"") && html.contains("A note."), "{html}");
    }
}
