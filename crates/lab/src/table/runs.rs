//! Every run of a comparison at every length, for other programs.

use whatwhere_training::Evaluation;

use super::Table;
use crate::{
    compare::Trained,
    results::{Outcome, Results},
};

/// What stands behind a cell's name and its values.
const COLUMNS: [&str; 17] = [
    "state",
    "seed",
    "steps",
    "parameters",
    "scaling",
    "length",
    "loss",
    "perplexity",
    "bits_per_byte",
    "accuracy",
    "bleu",
    "tokens_per_second",
    "jobs",
    "peak_memory",
    "flops_visible",
    "flops_computed",
    "reason",
];

impl Results {
    /// One row for each run and length; one for each cell that was not trained, with the reason.
    pub fn runs_table(&self) -> Table {
        let keys = self.axes.iter().map(|(key, _)| key.as_str());
        let head = std::iter::once("cell").chain(keys).chain(COLUMNS).map(Into::into).collect();
        let mut rows = Vec::new();
        for cell in &self.cells {
            let start: Vec<String> =
                std::iter::once(&cell.name).chain(&cell.values).cloned().collect();
            let of_cell = |row: [String; COLUMNS.len()]| start.iter().cloned().chain(row).collect();
            match &cell.outcome {
                Outcome::Refused { reason } => rows.push(of_cell(without("refused", reason))),
                Outcome::Failed { reason } => rows.push(of_cell(without("failed", reason))),
                Outcome::Trained { runs } => {
                    rows.extend(runs.iter().flat_map(of_run).map(of_cell));
                }
            }
        }
        Table { head, rows, ..Table::default() }
    }
}

fn without(state: &str, reason: &str) -> [String; COLUMNS.len()] {
    let mut row = [const { String::new() }; COLUMNS.len()];
    row[0] = state.into();
    row[COLUMNS.len() - 1] = reason.into();
    row
}

/// The rows of one run: its quality, or that at each length it was read at.
fn of_run(run: &Trained) -> Vec<[String; COLUMNS.len()]> {
    let row =
        |scaling: Option<&str>, length: usize, found: Option<&Evaluation>, reason: Option<&str>| {
            let figure = |value: fn(&Evaluation) -> Option<f64>| {
                found.and_then(value).map_or(String::new(), |value| value.to_string())
            };
            let cost = &run.cost;
            [
                "trained".into(),
                run.seed.to_string(),
                run.steps.to_string(),
                cost.parameters.to_string(),
                scaling.unwrap_or_default().into(),
                length.to_string(),
                figure(|found| Some(found.loss)),
                figure(|found| Some(found.perplexity)),
                figure(|found| found.bits_per_byte),
                figure(|found| Some(found.accuracy)),
                run.bleu.map_or(String::new(), |bleu| bleu.to_string()),
                format!("{:.1}", cost.tokens_per_second),
                cost.jobs.to_string(),
                cost.peak_memory.map_or(String::new(), |bytes| bytes.to_string()),
                cost.flops.visible.to_string(),
                cost.flops.computed.to_string(),
                reason.unwrap_or_default().into(),
            ]
        };
    if run.lengths.is_empty() {
        return vec![row(None, run.length, Some(&run.quality), None)];
    }
    let at = run.lengths.iter().map(|at| {
        let found = at.figures.as_ref().map(|figures| &figures.whole);
        row(at.scaling.as_deref(), at.length, found, at.missing.as_deref())
    });
    at.collect()
}
