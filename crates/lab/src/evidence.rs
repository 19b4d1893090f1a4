//! What the figures of a comparison rest on, in words.

use std::collections::BTreeMap;

use crate::{
    grid::Cell,
    results::{CellResult, Outcome, Results},
};

impl Results {
    /// What the figures rest on: what was held out, what some cells were given by their encoding, and why lengths have no figure.
    pub fn evidence(&self) -> Vec<String> {
        let mut said: Vec<String> = Vec::new();
        for sentence in self.cells.iter().flat_map(CellResult::runs).flat_map(|run| &run.held_out) {
            if !said.contains(sentence) {
                said.push(sentence.clone());
            }
        }
        said.extend(self.scaled());
        let mut missing: BTreeMap<&str, BTreeMap<usize, Vec<&str>>> = BTreeMap::new();
        for cell in &self.cells {
            for at in &cell.lengths {
                if let (Some(reason), None) = (&at.missing, &at.scaling) {
                    let lengths = missing.entry(reason).or_default();
                    lengths.entry(at.length).or_default().push(&cell.name);
                }
            }
        }
        for (reason, lengths) in missing {
            let all: Vec<String> = lengths.keys().map(usize::to_string).collect();
            let mut cells: Vec<&str> = lengths.into_values().flatten().collect();
            cells.sort_unstable();
            cells.dedup();
            let whose = match cells.len() == self.cells.len() {
                true => String::new(),
                false => format!(" for {}", cells.join(", ")),
            };
            said.push(format!("no loss at {}{whose}: {reason}", all.join(", ")));
        }
        said
    }

    /// Which cells have embeddings of another scale than the others, if their encodings ask for it.
    fn scaled(&self) -> Option<String> {
        let key = "model.scale_embeddings";
        if self.axes.iter().any(|(axis, _)| axis == key) {
            return None;
        }
        let given = |cell: &&CellResult| cell.own.iter().any(|(k, v)| k == key && v == "true");
        let names: Vec<&str> =
            self.cells.iter().filter(given).map(|cell| cell.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            format!("embeddings are multiplied by √width, as published, for {}", names.join(", "))
        })
    }
}

/// What was read, and by which cells where they read different things.
pub(crate) fn data_in_words(cells: &[Cell], outcomes: &[Outcome]) -> Option<String> {
    let mut read: Vec<(&str, Vec<&str>)> = Vec::new();
    for (cell, outcome) in cells.iter().zip(outcomes) {
        let Some(run) = outcome.runs().first().filter(|run| !run.data.is_empty()) else { continue };
        match read.iter_mut().find(|(data, _)| *data == run.data) {
            Some((_, names)) => names.push(&cell.name),
            None => read.push((&run.data, vec![&cell.name])),
        }
    }
    let each = |(data, names): &(&str, Vec<&str>)| format!("{data} for {}", names.join(", "));
    match &read[..] {
        [] => None,
        [(only, _)] => Some((*only).to_owned()),
        several => Some(several.iter().map(each).collect::<Vec<_>>().join("; ")),
    }
}
