//! The figures of a comparison for other programs: comma-separated values.

use std::fmt::Write;

use crate::{
    compare::Trained,
    results::{Outcome, Results},
};

impl Results {
    /// One line for each run and length.
    pub fn csv(&self) -> String {
        let keys: Vec<String> = self.axes.iter().map(|(key, _)| quoted(key)).collect();
        let mut text = format!(
            "cell,{}state,seed,steps,parameters,scaling,length,loss,perplexity,bits_per_byte,accuracy,bleu,tokens_per_second,jobs,peak_memory,flops_visible,flops_computed,reason\n",
            keys.iter().map(|key| format!("{key},")).collect::<String>()
        );
        for cell in &self.cells {
            let values: String =
                cell.values.iter().map(|value| format!("{},", quoted(value))).collect();
            let head = format!("{},{values}", quoted(&cell.name));
            match &cell.outcome {
                Outcome::Refused { reason } | Outcome::Failed { reason } => {
                    let state = if matches!(cell.outcome, Outcome::Refused { .. }) {
                        "refused"
                    } else {
                        "failed"
                    };
                    let _ = writeln!(text, "{head}{state},,,,,,,,,,,,,,,,{}", quoted(reason));
                }
                Outcome::Trained { runs } => {
                    runs.iter().for_each(|run| rows(&mut text, &head, run))
                }
            }
        }
        text
    }
}

/// The rows of one run: its quality, then its other lengths.
fn rows(text: &mut String, head: &str, run: &Trained) {
    let optional = |value: Option<String>| value.unwrap_or_default();
    let cost = &run.cost;
    let start = format!("{head}trained,{},{},{}", run.seed, run.steps, cost.parameters);
    let end = format!(
        "{},{:.1},{},{},{},{}",
        optional(run.bleu.map(|bleu| bleu.to_string())),
        cost.tokens_per_second,
        cost.jobs,
        optional(cost.peak_memory.map(|bytes| bytes.to_string())),
        cost.flops.visible,
        cost.flops.computed
    );
    let figures = |quality: &whatwhere_training::Evaluation| {
        let bits = optional(quality.bits_per_byte.map(|bits| bits.to_string()));
        format!("{},{},{bits},{}", quality.loss, quality.perplexity, quality.accuracy)
    };
    if run.lengths.is_empty() {
        let _ = writeln!(text, "{start},,{},{},{end},", run.length, figures(&run.quality));
    }
    for at in &run.lengths {
        let scaling = optional(at.scaling.clone());
        let reason = at.missing.as_deref().map_or(String::new(), quoted);
        let figures = at.figures.as_ref().map_or(",,,".into(), |found| figures(&found.whole));
        let _ = writeln!(text, "{start},{scaling},{},{figures},{end},{reason}", at.length);
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"").replace('\n', " ")),
        false => text.into(),
    }
}
