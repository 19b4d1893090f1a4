//! What was learned, looked at: attention maps of some heads, and the angles that PoPE learns.

use std::ops::ControlFlow;

use whatwhere_attention::Position;
use whatwhere_training::Run;
use whatwhere_transformer::{Family, Parameter, Site};

use super::figure;
use crate::{
    chart::{Heat, escape},
    heads::{self, THRESHOLD},
    results::{CellResult, Results},
    show::{self, Reading},
    table::Table,
};

/// Tokens of a map: more cannot be read.
const TOKENS: usize = 40;
/// Maps of a report.
const MAPS: usize = 8;

/// What the trained cells of a comparison learned, as HTML.
#[derive(Default)]
pub(super) struct Learned {
    /// For each cell the sharpest head of its last layer, over the same held-out text.
    maps: String,
    /// What the heads of every cell do, measured over its sample.
    roles: String,
    /// A map of every δ for each cell that learns some.
    deltas: String,
}

impl Learned {
    /// Opens the first run of every trained cell that can still be opened, one after the other.
    pub(super) fn of(results: &Results) -> Self {
        let mut learned = Self::default();
        for (index, (cell, run)) in runs(results).enumerate() {
            if let Some(svg) = (index < MAPS).then(|| map(cell, &run)).flatten() {
                learned.maps += &format!("<figure>{svg}</figure>\n");
            }
            if let Some((words, table)) = measured(cell, &run) {
                let (name, words) = (escape(&cell.name), escape(&words));
                let table = table.html();
                learned.roles +=
                    &format!("<details><summary>{name}: {words}</summary>{table}</details>\n");
            }
            learned.deltas += &deltas(cell, &run).unwrap_or_default();
        }
        learned
    }

    /// A section for each that has something to show.
    pub(super) fn html(&self) -> String {
        let mut html = String::new();
        if !self.maps.is_empty() {
            html += "<h3>Attention maps</h3>\n<p>The sharpest head of the last layer of each cell, first seed: how much each token \
                     (row) takes of which (column). <code>whatwhere show attention</code> draws the others.</p>\n<div \
                     class=\"panels\">\n";
            html += &self.maps;
            html += "</div>\n";
        }
        if !self.roles.is_empty() {
            html += &format!(
                "<h3>What heads do</h3>\n<p>Mean weight of each head on keys of a kind, and by how many nats the loss grows \
                 without it, over the same beginning of the held-out data, first seed. A role needs {THRESHOLD} of the \
                 way from a uniform head to one that does nothing else. <code>whatwhere show heads</code> measures more of \
                 them, and on more text.</p>\n{}",
                self.roles
            );
        }
        if !self.deltas.is_empty() {
            html += "<h3>Phases that polar positions learn</h3>\n";
            html += &self.deltas;
        }
        html
    }
}

/// The heads of a run, in a few words and as a table.
fn measured(cell: &CellResult, run: &Run) -> Option<(String, Table)> {
    let text = &cell.runs().first()?.sample;
    if run.model().family() == Family::EncoderDecoder {
        return None; // the sample is one side of a pair
    }
    let reading = Reading::new(run, text, None).ok()?;
    // Who tells classes predicts no token of a text that it could lose.
    let predicts = run.model().classifier.is_none();
    let batches = predicts.then(|| heads::ablation::batches_of(&reading)).transpose().ok()?;
    let watch = &mut |_| ControlFlow::Continue(());
    let report = heads::measure(&reading, batches.as_deref(), watch).ok()?;
    let mut counts: Vec<(String, usize)> = Vec::new();
    for role in report.heads.iter().filter_map(|head| head.role) {
        let name = role.name();
        match counts.iter_mut().find(|(found, _)| *found == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let words = match words.is_empty() {
        true => "no head has a role".into(),
        false => format!("{} of {} heads", words.join(", "), report.heads.len()),
    };
    let mut rows = show::heads_table(&report).into_iter();
    let head = rows.next()?;
    Some((words, Table { head, rows: rows.collect(), ..Table::default() }))
}

fn map(cell: &CellResult, run: &Run) -> Option<String> {
    if run.model().family() != Family::Decoder {
        return None;
    }
    let text = &cell.runs().first()?.sample;
    let layer = run.settings.model.decoder_depth().checked_sub(1)?;
    let (weights, [heads, queries, keys]) = run.attention_weights(text, layer).ok()?;
    let of = |head: usize| &weights[head * queries * keys..(head + 1) * queries * keys];
    let sharpest = (0..heads).min_by(|a, b| entropy(of(*a)).total_cmp(&entropy(of(*b))))?;
    let tokenizer = run.tokenizer().ok()?;
    let tokens: Vec<String> =
        run.encode(text).ok()?.iter().map(|id| show::visible(&tokenizer.token(*id))).collect();
    let shown = queries.min(TOKENS);
    let values = of(sharpest)
        .chunks(keys)
        .take(shown)
        .map(|row| row.iter().take(shown).map(|weight| f64::from(*weight)).collect())
        .collect();
    let names: Vec<String> = tokens.into_iter().take(shown).collect();
    let heat = Heat {
        title: format!("{}, head {sharpest}", cell.name),
        x: "key".into(),
        y: "query".into(),
        columns: names.clone(),
        rows: names,
        values,
        range: Some((0.0, 1.0)),
        diverging: false,
    };
    Some(heat.svg())
}

fn entropy(weights: &[f32]) -> f64 {
    weights.iter().filter(|w| **w > 0.0).map(|w| -f64::from(*w) * f64::from(w.ln())).sum()
}

/// A map of every δ of a run; nothing if it learns none.
fn deltas(cell: &CellResult, run: &Run) -> Option<String> {
    let attention = run.settings.model.attention(Site::Decoder, 0).ok()?;
    let phases = attention.position.iter().find_map(Position::phases)?;
    let (all, ending) = (run.model().parameters(), format!(".{phases}"));
    let found: Vec<&Parameter> =
        all.iter().filter(|parameter| parameter.name.ends_with(&ending)).collect();
    if found.is_empty() {
        return None;
    }
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for (layer, parameter) in found.iter().enumerate() {
        let width = parameter.shape.last().copied().unwrap_or(1).max(1);
        for (head, row) in parameter.values.chunks(width).enumerate() {
            rows.push(format!("{layer}.{head}"));
            values.push(row.iter().map(|angle| f64::from(*angle)).collect());
        }
    }
    let heat = Heat {
        title: format!("δ of {}", cell.name),
        x: "channel, from fast to slow".into(),
        y: "layer.head".into(),
        columns: Vec::new(),
        rows,
        values,
        range: None,
        diverging: false,
    };
    Some(figure(
        &heat.svg(),
        "The learned phase of every channel, in radians, first seed. It starts uniform or at 0, and is kept between −2π and 0; \
         the colors reach from the least to the greatest that was learned.",
    ))
}

/// The first run of every trained cell that can still be opened.
fn runs(results: &Results) -> impl Iterator<Item = (&CellResult, Run)> {
    results.cells.iter().filter_map(|cell| {
        let seed = cell.runs().first()?.seed;
        let folder = results.folder.join("runs").join(&cell.folder).join(format!("seed-{seed}"));
        Run::open(folder).ok().map(|run| (cell, run))
    })
}
