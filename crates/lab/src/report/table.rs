//! The tables of a report.

use crate::{
    chart::escape,
    results::{CellResult, Measure, Outcome, Results},
    statistics::{Summary, Verdict},
    verdict::figure,
};

/// Cells, best first; those that were not trained last, with the reason.
pub(super) fn ranking(results: &Results) -> String {
    let is_task = results.measure == Measure::Accuracy;
    let has_bleu = results.cells.iter().any(|cell| cell.bleu.is_some());
    let mut head: Vec<&str> = vec![""];
    head.extend(if is_task {
        &["accuracy", "solved", "lift-off"][..]
    } else {
        &["loss", "bits per byte"]
    });
    if has_bleu {
        head.push("BLEU");
    }
    let against = format!("against {}", results.baseline);
    head.extend([
        against.as_str(),
        "",
        "tokens/s",
        "peak memory",
        "parameters",
        "attention, visible",
        "computed",
    ]);
    let mut html = row("th", head.iter().map(|cell| escape(cell)));
    for cell in results.ranking() {
        let mut cells = vec![escape(&cell.name)];
        if is_task {
            cells.push(shown(cell.accuracy));
            cells.push(format!("{} of {}", cell.solved.unwrap_or(0), cell.runs().len()));
            cells.push(cell.lift_off.map_or("–".into(), |lift| format!("{:.0}", lift.mean)));
        } else {
            cells.extend([shown(cell.loss), shown(cell.bits_per_byte)]);
        }
        if has_bleu {
            cells.push(cell.bleu.map_or("–".into(), |bleu| format!("{:.2}", bleu.mean)));
        }
        cells.extend(difference(results, cell));
        cells.extend(cost(cell));
        html += &row("td", cells);
    }
    for cell in &results.cells {
        let (word, reason) = match &cell.outcome {
            Outcome::Trained { .. } => continue,
            Outcome::Refused { reason } => ("does not compose", reason),
            Outcome::Failed { reason } => ("failed", reason),
        };
        let span = head.len() - 1;
        html += &format!(
            "<tr><td>{}</td><td colspan=\"{span}\" style=\"text-align:left;white-space:normal\">{word}: {}</td></tr>\n",
            escape(&cell.name),
            escape(reason)
        );
    }
    let conditions = results.conditions().map_or(String::new(), |said| format!(" {said}"));
    format!(
        "<div class=\"scroll\"><table>\n{html}</table></div>\n<p class=\"note\">Mean over seeds, ± half of the 95 % confidence \
         interval. Attention in MFLOP for each token of a forward pass: of the pairs its pattern shows, and of the pairs in \
         every block that the kernels compute.{conditions}</p>\n"
    )
}

fn difference(results: &Results, cell: &CellResult) -> [String; 2] {
    let Some(difference) = cell.difference else { return ["".into(), "".into()] };
    let verdict = match cell.verdict {
        Some(Verdict::WithinNoise) => "within noise",
        Some(Verdict::Unknown) | None => "one seed",
        Some(verdict) if results.measure.is_better(verdict) => "better",
        Some(_) => "worse",
    };
    let margin = difference.margin.map_or(String::new(), |margin| format!(" ± {margin:.3}"));
    [format!("{:+.3}{margin}", difference.mean), verdict.into()]
}

fn cost(cell: &CellResult) -> [String; 5] {
    let run = cell.runs().first();
    let mega = |flops: f64| format!("{:.3}", flops / 1e6);
    [
        cell.tokens_per_second.map_or("–".into(), |speed| format!("{:.0}", speed.mean)),
        cell.peak_memory().map_or("–".into(), |bytes| format!("{} MiB", bytes >> 20)),
        run.map_or("–".into(), |run| run.cost.parameters.to_string()),
        run.map_or("–".into(), |run| mega(run.cost.flops.visible)),
        run.map_or("–".into(), |run| mega(run.cost.flops.computed)),
    ]
}

/// Loss at every length, with the scalings of rotary in rows of their own.
pub(super) fn scalings(results: &Results) -> String {
    let first = results.cells.iter().find(|cell| !cell.lengths.is_empty());
    let plain = first.into_iter().flat_map(|cell| &cell.lengths).filter(|at| at.scaling.is_none());
    let lengths: Vec<usize> = plain.map(|at| at.length).collect();
    if lengths.len() < 2 {
        return String::new();
    }
    let mut html =
        row("th", std::iter::once("read at".into()).chain(lengths.iter().map(ToString::to_string)));
    for cell in results.ranking() {
        let mut ways: Vec<Option<&str>> =
            cell.lengths.iter().map(|at| at.scaling.as_deref()).collect();
        ways.sort_unstable();
        ways.dedup();
        for way in ways {
            let name =
                way.map_or(cell.name.clone(), |way| format!("{} with {way} scaling", cell.name));
            let mut cells = vec![escape(&name)];
            for length in &lengths {
                let at = cell
                    .lengths
                    .iter()
                    .find(|at| at.length == *length && at.scaling.as_deref() == way);
                cells.push(match at {
                    Some(at) if at.loss.is_some() => shown(at.loss),
                    Some(at) => {
                        let reason = escape(at.missing.as_deref().unwrap_or("not measured"));
                        format!("<span title=\"{reason}\">cannot</span>")
                    }
                    None => String::new(),
                });
            }
            html += &row("td", cells);
        }
    }
    format!(
        "<h3>Loss at other lengths, without training</h3>\n<div class=\"scroll\"><table>\n{html}</table></div>\n"
    )
}

fn shown(summary: Option<Summary>) -> String {
    summary.map_or("–".into(), |summary| figure(&summary))
}

fn row(tag: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells: String = cells.into_iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
    format!("<tr>{cells}</tr>\n")
}
