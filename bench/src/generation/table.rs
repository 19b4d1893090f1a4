//! What a case found, as rows of the table: one for each rival.

use serde::Serialize;
use whatwhere_bench::format::{self, Column};

/// One line of results.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) ours_tokens_per_second: f64,
    pub(crate) rival: &'static str,
    /// Absent where the rival is not there.
    pub(crate) rival_tokens_per_second: Option<f64>,
    pub(crate) target: Option<f64>,
    /// How far both wrote the same, if that was asked: ids from the first on, of how many.
    pub(crate) same_ids: Option<[usize; 2]>,
}

impl Row {
    /// Ours over the rival's tokens per second: above 1, ours is faster.
    fn ratio(&self) -> Option<f64> {
        self.rival_tokens_per_second.map(|rival| self.ours_tokens_per_second / rival)
    }
}

impl format::Row for Row {
    const COLUMNS: &'static [Column] = &COLUMNS;

    fn cells(&self) -> Vec<String> {
        let show = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let met = match self.ratio().zip(self.target) {
            None => "–",
            Some((ratio, target)) if ratio >= target => "yes",
            Some(_) => "no",
        };
        vec![
            self.case.to_owned(),
            show(Some(self.ours_tokens_per_second), 0),
            self.rival.to_owned(),
            show(self.rival_tokens_per_second, 0),
            show(self.ratio(), 2),
            show(self.target, 2),
            met.to_owned(),
            self.same_ids.map_or_else(|| "–".to_owned(), |[same, of]| format!("{same} of {of}")),
        ]
    }
}

/// Titles and widths of the table's columns; those of text are aligned left.
const COLUMNS: [Column; 8] = [
    ("case", 28, true),
    ("tokens/s", 8, false),
    ("rival", 19, true),
    ("tokens/s", 8, false),
    ("ratio", 5, false),
    ("target", 6, false),
    ("met", 3, true),
    ("same ids", 9, false),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::CASES;

    #[test]
    fn every_case_fits_its_column_and_has_a_name_of_its_own() {
        for (i, case) in CASES.iter().enumerate() {
            assert!(case.name.chars().count() <= COLUMNS[0].1, "{}", case.name);
            assert!(CASES[..i].iter().all(|other| other.name != case.name), "{} twice", case.name);
            for rival in case.rivals {
                assert!(rival.name.chars().count() <= COLUMNS[2].1, "{}", rival.name);
            }
        }
    }
}
