//! What a case found, as a row of the table.

use std::collections::BTreeMap;

use serde::Serialize;
use whatwhere_bench::format::{self, Column};

use crate::{cases::Case, rival::Side};

/// One line of results.
#[derive(Serialize)]
pub(crate) struct Row {
    case: String,
    /// Of one step.
    ours_ms: f64,
    rival: String,
    rival_ms: f64,
    /// Ours over the rival in tokens per second: above 1, ours is faster.
    ratio: f64,
    target: Option<f64>,
    /// Whether speed and memory reach their targets; true where there are none.
    met: bool,
    ours_tokens_per_second: f64,
    rival_tokens_per_second: f64,
    ours_mib: f64,
    rival_mib: f64,
    /// Ours over the rival in memory.
    memory_ratio: f64,
    memory_target: Option<f64>,
    /// Pages the system had to find and clear for one step, of 4 KiB or 2 MiB.
    ours_fresh_pages: f64,
    rival_fresh_pages: f64,
    /// Milliseconds of every way the rival has.
    ways: BTreeMap<String, f64>,
}

impl Row {
    /// The fastest way of the rival counts for speed, the smallest for memory.
    pub(crate) fn new(case: &Case, ours: &Side, rivals: &BTreeMap<String, Side>) -> Self {
        let (name, fastest) = rivals
            .iter()
            .min_by(|a, b| a.1.best.total_cmp(&b.1.best))
            .expect("every case has a rival");
        let smallest = rivals.values().map(|side| side.peak).fold(f64::INFINITY, f64::min);
        // The rival's job has as many tokens as ours.
        let speed = |ms: f64| case.ours.tokens() as f64 / ms * 1e3;
        let (ratio, memory_ratio) = (fastest.best / ours.best, ours.peak / smallest);
        Self {
            case: case.name.to_owned(),
            ours_ms: ours.best,
            rival: name.clone(),
            rival_ms: fastest.best,
            ratio,
            target: case.target,
            met: case.target.is_none_or(|target| ratio >= target)
                && case.memory.is_none_or(|target| memory_ratio <= target),
            ours_tokens_per_second: speed(ours.best),
            rival_tokens_per_second: speed(fastest.best),
            ours_mib: ours.peak,
            rival_mib: smallest,
            memory_ratio,
            memory_target: case.memory,
            ours_fresh_pages: ours.fresh,
            rival_fresh_pages: fastest.fresh,
            ways: rivals.iter().map(|(name, side)| (name.clone(), side.best)).collect(),
        }
    }
}

impl format::Row for Row {
    const COLUMNS: &'static [Column] = &COLUMNS;

    fn cells(&self) -> Vec<String> {
        let show = |value: Option<f64>| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
        };
        vec![
            self.case.clone(),
            format!("{:.0}", self.ours_tokens_per_second),
            self.rival.clone(),
            format!("{:.0}", self.rival_tokens_per_second),
            show(Some(self.ratio)),
            show(self.target),
            format!("{:.0}", self.ours_mib),
            format!("{:.0}", self.rival_mib),
            show(Some(self.memory_ratio)),
            show(self.memory_target),
            if self.met { "yes" } else { "no" }.to_owned(),
            format!("{:.0}", self.ours_fresh_pages),
            format!("{:.0}", self.rival_fresh_pages),
        ]
    }
}

/// Titles and widths of the table's columns; those of text are aligned left.
const COLUMNS: [Column; 13] = [
    ("case", 28, true),
    ("tokens/s", 8, false),
    ("rival", 19, true),
    ("tokens/s", 8, false),
    ("ratio", 5, false),
    ("target", 6, false),
    ("MiB", 5, false),
    ("rival's", 7, false),
    ("of rival", 8, false),
    ("target", 6, false),
    ("met", 3, true),
    ("fresh", 6, false),
    ("rival's", 7, false),
];

#[cfg(test)]
mod tests {
    use whatwhere_kernels::Precision;

    use super::*;
    use crate::cases::cases;

    #[test]
    fn every_case_fits_its_column_and_has_a_name_of_its_own() {
        let names: Vec<&str> = [Precision::F32, Precision::Bf16]
            .into_iter()
            .flat_map(cases)
            .map(|case| case.name)
            .collect();
        for (i, name) in names.iter().enumerate() {
            assert!(name.chars().count() <= COLUMNS[0].1, "{name}");
            assert!(!names[..i].contains(name), "{name} twice");
        }
    }
}
