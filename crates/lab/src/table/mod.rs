//! Tables of results, once for all who show them: as aligned text, as HTML, and as comma-separated values.

mod comparison;
mod runs;

use std::fmt::Write;

use crate::chart::escape;

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

    /// Comma-separated values of head and rows, for other programs.
    pub fn csv(&self) -> String {
        let line = |row: &Vec<String>| {
            let entries: Vec<String> = row.iter().map(|entry| quoted(entry)).collect();
            entries.join(",") + "\n"
        };
        std::iter::once(&self.head).chain(&self.rows).map(line).collect()
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

fn quoted(entry: &str) -> String {
    match entry.contains([',', '"', '\n']) {
        true => format!("\"{}\"", entry.replace('"', "\"\"").replace('\n', " ")),
        false => entry.into(),
    }
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
        assert_eq!(table.csv(), ",loss\na & b,1.5\nc,12.25\n");
        let html = table.html();
        assert!(html.contains("<td>a &amp; b</td><td>1.5</td>"), "{html}");
        assert!(html.contains("colspan=\"1\"") && html.contains("A note."), "{html}");
    }

    #[test]
    fn values_with_commas_quotes_and_breaks_stay_one_value() {
        let entries = ["a,b", "say \"so\"", "two\nlines", "plain"].map(Into::into).into();
        let table = Table { head: entries, ..Table::default() };
        assert_eq!(table.csv(), "\"a,b\",\"say \"\"so\"\"\",\"two lines\",plain\n");
    }
}
