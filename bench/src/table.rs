//! What a case found, as a row of the table.

use std::collections::BTreeMap;

use serde::Serialize;
use whatwhere_bench::format::{self, Column};

use crate::cases::{Case, Measure};

/// One line of results; what was not measured or has no meaning in a case is absent.
#[derive(Default, Serialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) ours_ms: Option<f64>,
    pub(crate) rival: String,
    pub(crate) rival_ms: Option<f64>,
    /// Rival over ours, of what the case measures: above 1, ours needs less.
    ratio: Option<f64>,
    pub(crate) target: Option<f64>,
    /// Whether the ratio reaches the target; true where there is none.
    met: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ours_gflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rival_gflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ours_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rival_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<f64>,
    /// Milliseconds of every way of torch's that agreed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ways: BTreeMap<String, f64>,
}

impl Row {
    pub(crate) fn new(case: &Case, rival: String) -> Self {
        Self { case: case.name.clone(), rival, target: case.target, ..Self::default() }
    }

    /// Fills in what follows from the measurements.
    pub(crate) fn finish(&mut self, case: &Case, peak: f64) {
        let (ours, rival) = match case.measure {
            Measure::Time => (self.ours_ms, self.rival_ms),
            Measure::Memory => (self.ours_mib, self.rival_mib),
        };
        self.ratio = rival.zip(ours).map(|(rival, ours)| rival / ours);
        self.met = self.target.is_none_or(|target| self.ratio.is_some_and(|r| r >= target));
        let gflops = |flops: Option<f64>, ms: Option<f64>| Some(flops? / ms? / 1e6);
        self.ours_gflops = gflops(case.ours.flops(), self.ours_ms);
        self.rival_gflops = gflops(case.rival_flops(), self.rival_ms);
        self.peak_share = self.ours_gflops.map(|gflops| gflops / peak);
    }
}

impl format::Row for Row {
    const COLUMNS: &'static [Column] = &COLUMNS;

    fn cells(&self) -> Vec<String> {
        let show = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
        };
        vec![
            self.case.clone(),
            show(self.ours_ms, 2),
            self.rival.clone(),
            show(self.rival_ms, 2),
            show(self.ratio, 2),
            show(self.target, 2),
            match self.target {
                Some(_) if self.met => "yes".to_owned(),
                Some(_) => "no".to_owned(),
                None => "–".to_owned(),
            },
            show(self.ours_gflops, 0),
            show(self.rival_gflops, 0),
            self.peak_share
                .map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
            show(self.ours_mib, 1),
            show(self.rival_mib, 1),
            self.error.map_or_else(|| "–".to_owned(), |error| format!("{error:.0e}")),
        ]
    }
}

/// Titles and widths of the table's columns; those of text are aligned left.
const COLUMNS: [Column; 13] = [
    ("case", 51, true),
    ("ours ms", 8, false),
    ("rival", 35, true),
    ("rival ms", 8, false),
    ("ratio", 5, false),
    ("target", 6, false),
    ("met", 3, true),
    ("GFLOP/s", 7, false),
    ("rival's", 7, false),
    ("of peak", 7, false),
    ("MiB", 7, false),
    ("rival's", 7, false),
    ("error", 5, false),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;

    #[test]
    fn every_case_fits_its_column_and_has_a_name_of_its_own() {
        let names: Vec<String> = cases().into_iter().map(|case| case.name).collect();
        for (i, name) in names.iter().enumerate() {
            assert!(name.chars().count() <= COLUMNS[0].1, "{name}");
            assert!(!names[..i].contains(name), "{name} twice");
        }
    }

    #[test]
    fn a_case_is_met_when_the_rival_needs_as_many_times_more_as_hoped() {
        let case = &cases()[0]; // target 1.5
        for (rival_ms, met) in [(1.6, true), (1.4, false)] {
            let mut row = Row::new(case, "torch SDPA".into());
            (row.ours_ms, row.rival_ms) = (Some(1.0), Some(rival_ms));
            row.finish(case, 100.0);
            assert_eq!((row.ratio, row.met), (Some(rival_ms), met));
        }
    }
}
