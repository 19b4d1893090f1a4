//! What cells of a comparison were not given alike, in words: updates and tokens, lengths, and a warm-up that did not end.

use whatwhere_data::BatchSize;
use whatwhere_training::TrainingSettings;

use crate::{
    budget::Budget,
    compare::{Comparison, Trained},
    grid::Cell,
    results::Outcome,
};

/// Sentences, none if everything is alike.
pub(crate) fn unlike(comparison: &Comparison, cells: &[Cell], outcomes: &[Outcome]) -> Vec<String> {
    let trained: Vec<(&Cell, &TrainingSettings, &Trained)> = cells
        .iter()
        .zip(outcomes)
        .filter_map(|(cell, outcome)| {
            let settings = cell.settings.as_ref().ok()?;
            Some((cell, &settings.training, outcome.runs().first()?))
        })
        .collect();
    let groups = |said: &dyn Fn(&TrainingSettings, &Trained) -> String| {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for (cell, training, run) in &trained {
            let (said, name) = (said(training, run), format!("`{}`", cell.name));
            match groups.iter_mut().find(|(other, _)| *other == said) {
                Some((_, names)) => names.push(name),
                None => groups.push((said, vec![name])),
            }
        }
        let each = groups.iter().map(|(said, names)| format!("{said} for {}", names.join(", ")));
        (groups.len() > 1).then(|| each.collect::<Vec<_>>().join("; "))
    };
    let mut words = Vec::new();
    // Of tokens, minutes and arithmetic all have as much, whatever their updates are.
    if matches!(comparison.budget, None | Some(Budget::Steps(_)))
        && let Some(each) =
            groups(&|training, run| format!("{} updates of {}", run.steps, batch(training)))
    {
        words.push(format!(
            "cells did not learn from as much, {each}: a loss says how much a cell read, too; --budget tokens=N gives all as many"
        ));
    }
    if let Some(each) = groups(&|_, run| format!("{} tokens", run.length)) {
        words.push(format!(
            "each cell is measured at the length that it was trained with, {each}: more context lowers a loss by itself"
        ));
    }
    let is_short = |(_, training, run): &&(&Cell, &TrainingSettings, &Trained)| {
        training.schedule.warmup() > run.steps
    };
    let short: Vec<_> = trained.iter().filter(is_short).collect();
    if let [(_, training, run), ..] = short[..] {
        let names: Vec<String> =
            short.iter().map(|(cell, ..)| format!("`{}`", cell.name)).collect();
        let whose = match short.len() == trained.len() {
            true => String::new(),
            false => format!(" for {}", names.join(", ")),
        };
        words.push(format!(
            "warning: the learning rate never reached its peak{whose}: the warm-up has {} updates, the runs have {}",
            training.schedule.warmup(),
            run.steps
        ));
    }
    words
}

/// What an update reads at the most.
fn batch(training: &TrainingSettings) -> String {
    let times = match training.accumulate {
        1 => String::new(),
        batches => format!("{batches} × "),
    };
    match training.batch {
        BatchSize::Rows(rows) => format!("{times}{rows} × {} tokens", training.length),
        BatchSize::Tokens { tokens } => format!("{times}{tokens} tokens"),
    }
}

/// Updates of all runs: one number, or the least and the most.
pub(crate) fn updates(cells: &[Cell]) -> String {
    let steps =
        || cells.iter().filter_map(|cell| Some(cell.settings.as_ref().ok()?.training.steps));
    match (steps().min(), steps().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most} updates"),
        (least, _) => format!("{} updates", least.unwrap_or(0)),
    }
}
