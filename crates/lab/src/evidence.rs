//! What the figures of a comparison rest on, in words.

use std::collections::{BTreeMap, BTreeSet};

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
        said.extend(self.texts_in_words());
        said.extend(self.unlike.iter().cloned());
        said.extend(self.scaled());
        said.extend(self.kinds_in_words());
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

    /// How well texts that were drawn anew would know an accuracy: seeds say nothing of that.
    fn texts_in_words(&self) -> Option<String> {
        let told = || {
            let runs = self.cells.iter().flat_map(CellResult::runs);
            runs.filter_map(|run| run.classification.as_ref())
        };
        let texts: BTreeSet<u64> = told().map(|figures| figures.texts).collect();
        let (least, most) = (texts.first()?, texts.last()?);
        let texts = match least == most {
            true => least.to_string(),
            false => format!("{least} to {most}"),
        };
        let margin = told().map(|figures| figures.margin).fold(0.0, f64::max);
        Some(format!(
            "each accuracy is of {texts} held-out texts, by which it is known up to ± {margin:.3} (95 %)"
        ))
    }

    /// Kinds of machines (processor and instruction set) that cells were trained on, as far as they are known.
    fn kinds(&self) -> BTreeMap<String, Kind<'_>> {
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        for cell in &self.cells {
            for machine in cell.runs().iter().flat_map(|run| &run.cost.machines) {
                let kind = kinds.entry(machine.kind()).or_default();
                kind.instructions = &machine.instructions;
                kind.hosts.insert(&machine.host);
                if !kind.cells.contains(&cell.name.as_str()) {
                    kind.cells.push(&cell.name);
                }
            }
        }
        kinds
    }

    /// Whether speeds are of machines that cannot be compared.
    pub(crate) fn has_several_kinds(&self) -> bool {
        self.kinds().len() > 1
    }

    fn kinds_in_words(&self) -> Option<String> {
        let kinds = self.kinds();
        if kinds.len() < 2 {
            return None;
        }
        let each = kinds.iter().map(|(kind, Kind { hosts, cells, .. })| {
            let hosts: Vec<&str> = hosts.iter().copied().collect();
            format!("{kind} ({}) for {}", hosts.join(", "), cells.join(", "))
        });
        let each = each.collect::<Vec<_>>().join("; ");
        let sets: BTreeSet<&str> = kinds.values().map(|kind| kind.instructions).collect();
        let bits = match sets.len() {
            1 => "",
            _ => {
                ", and other instruction sets round otherwise, so that losses differ a little by machine, too"
            }
        };
        Some(format!(
            "cells come from different kinds of machines, {each}: their speeds cannot be compared{bits}"
        ))
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

/// What was trained on machines of one kind.
#[derive(Default)]
struct Kind<'a> {
    instructions: &'a str,
    hosts: BTreeSet<&'a str>,
    cells: Vec<&'a str>,
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
