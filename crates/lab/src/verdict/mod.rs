//! The verdict in words, each sentence with its evidence.
//!
//! Names of cells stand between backticks, because a choice may be called `none` or `full`.

mod speed;

pub use speed::speed;

use crate::{
    results::{CellResult, LengthResult, Measure, Outcome, Results},
    statistics::{Summary, Verdict},
};

/// A loss that grows by more than this from the trained length to the longest does not reach that far.
const HOLDS: f64 = 0.1;

impl Results {
    /// Sentences, the most important first.
    pub fn verdict(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.not_ranked_in_words());
        words.extend(self.best());
        words.extend(self.baseline_in_words());
        words.extend(self.against_baseline());
        words.extend(self.lengths_in_words());
        words.extend(self.speed_in_words());
        words.extend(self.not_trained());
        if self.seeds == 1 {
            words.push(
                "One seed: differences between seeds are not known, so small gaps may be chance."
                    .into(),
            );
        }
        words
    }

    fn not_ranked_in_words(&self) -> Option<String> {
        let reason = self.not_ranked.as_ref()?;
        Some(format!("These are not ranked: {reason}."))
    }

    fn best(&self) -> Option<String> {
        if self.not_ranked.is_some() {
            return None;
        }
        let ranking = self.ranking();
        let best = ranking.first()?;
        if self.measure == Measure::Accuracy {
            let solved = |cell: &&&CellResult| cell.solved.unwrap_or(0) > 0;
            let names: Vec<String> = ranking
                .iter()
                .filter(solved)
                .map(|cell| {
                    let lift = cell.lift_off.map_or(String::new(), |lift| {
                        format!(", lift-off after {:.0} updates", lift.mean)
                    });
                    let (name, solved) = (marked(&cell.name), cell.solved.unwrap_or(0));
                    format!("{name} ({solved} of {} seeds{lift})", self.seeds)
                })
                .collect();
            return Some(match names.is_empty() {
                true => format!(
                    "The task is not solved by any of them within {}; {} comes nearest, with {} {}.",
                    self.budget,
                    marked(&best.name),
                    percent(&best.accuracy?),
                    self.unit(self.measure)
                ),
                false => format!("The task is solved by {}.", list(&names)),
            });
        }
        let summary = best.measured(self.measure)?;
        let next = ranking.get(1).and_then(|cell| Some((cell, cell.measured(self.measure)?)));
        let gap = next.map_or(String::new(), |(cell, loss)| {
            format!(", followed by {} with {}", marked(&cell.name), figure(&loss))
        });
        let why = match self.measure {
            Measure::BitsPerByte => {
                " Tokenizers differ, so that nats per token say nothing here; bits per byte of the same text do."
            }
            _ => "",
        };
        let first = match self.measure {
            Measure::ClassAccuracy => "highest accuracy",
            _ => "lowest loss at the trained length",
        };
        Some(format!(
            "{} has the {first}: {} {}{gap}.{why}",
            marked(&best.name),
            figure(&summary),
            self.unit(self.measure),
        ))
    }

    /// Why others are held against another cell than was asked for.
    pub fn baseline_in_words(&self) -> Option<String> {
        let missing = self.baseline_missing.as_ref()?;
        let cell = self.cells.iter().find(|cell| cell.name == *missing);
        let why = match cell.map(|cell| &cell.outcome) {
            Some(Outcome::Trained { .. }) => "has no finished run",
            _ => "could not be trained",
        };
        Some(format!(
            "{} {why}, so that the others are held against {}.",
            marked(missing),
            marked(&self.baseline)
        ))
    }

    fn against_baseline(&self) -> Vec<String> {
        let (mut better, mut worse, mut same) = (Vec::new(), Vec::new(), Vec::new());
        for cell in self.ranking() {
            let (Some(verdict), Some(difference)) = (cell.verdict, cell.difference) else {
                continue;
            };
            let name = format!(
                "{} ({:+.3} ± {:.3})",
                marked(&cell.name),
                difference.mean,
                difference.margin.unwrap_or(0.0)
            );
            match verdict {
                Verdict::Unknown => {}
                Verdict::WithinNoise => same.push(name),
                verdict if self.measure.is_better(verdict) => better.push(name),
                _ => worse.push(name),
            }
        }
        let unit = match self.measure {
            Measure::Accuracy => "share of the answers".into(),
            Measure::ClassAccuracy => "share of the texts".into(),
            measure => self.unit(measure),
        };
        let say = |names: Vec<String>, what: &str| {
            let baseline = marked(&self.baseline);
            (!names.is_empty()).then(|| format!("{what} {baseline}, in {unit}: {}.", list(&names)))
        };
        [
            say(better, "Better beyond noise than"),
            say(worse, "Worse beyond noise than"),
            say(same, "Within noise, no difference shown to"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn lengths_in_words(&self) -> Vec<String> {
        let trained = self.cells.iter().flat_map(CellResult::runs).map(|run| run.length).next();
        let measured = |at: &&LengthResult| at.measured(self.measure).is_some();
        let lengths = self.cells.iter().flat_map(|cell| &cell.lengths).filter(measured);
        let (Some(trained), Some(longest)) = (trained, lengths.map(|at| at.length).max()) else {
            return Vec::new();
        };
        if longest <= trained {
            return Vec::new();
        }
        let mean = |at: &LengthResult| Some(at.measured(self.measure)?.mean);
        let mut found: Vec<(String, f64)> = Vec::new();
        for cell in self.ranking() {
            let Some(near) = cell.at(trained).and_then(mean) else { continue };
            for curve in cell.length_curves() {
                if let Some(far) = curve.at(longest).and_then(mean) {
                    found.push((curve.name(&marked(&cell.name)), far - near));
                }
            }
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        let factor = longest as f64 / trained as f64;
        let unit = self.unit(self.measure.at_lengths());
        let name = |(name, growth): &(String, f64)| format!("{name} ({growth:+.2})");
        let (hold, lose): (Vec<_>, Vec<_>) = found.iter().partition(|(_, growth)| *growth <= HOLDS);
        let mut words = Vec::new();
        if !hold.is_empty() {
            let names: Vec<String> = hold.into_iter().map(name).collect();
            words.push(format!("Trained at {trained} and read at {longest} ({factor:.0} ×), these hold their loss (change in {unit}): {}.", list(&names)));
        }
        if !lose.is_empty() {
            let names: Vec<String> = lose.into_iter().map(name).collect();
            words.push(format!("These lose it at {longest}: {}.", list(&names)));
        }
        words
    }

    fn not_trained(&self) -> Vec<String> {
        self.cells
            .iter()
            .filter_map(|cell| match &cell.outcome {
                Outcome::Trained { runs } => self.unfinished(runs.len()).map(|said| {
                    format!("Not all runs of {} are there: {said}.", marked(&cell.name))
                }),
                Outcome::Refused { reason } => {
                    Some(format!("{} does not compose: {reason}.", marked(&cell.name)))
                }
                Outcome::Failed { reason } => {
                    Some(format!("{} failed: {reason}.", marked(&cell.name)))
                }
            })
            .collect()
    }
}

impl Results {
    /// That a cell has fewer runs than it should have.
    pub(crate) fn unfinished(&self, runs: usize) -> Option<String> {
        let plural = if self.seeds == 1 { "" } else { "s" };
        (runs < self.seeds as usize)
            .then(|| format!("{runs} of {} run{plural} finished", self.seeds))
    }
}

/// `1.234 ± 0.012`, with the margin where there is one.
pub fn figure(summary: &Summary) -> String {
    let margin = summary.margin.map_or(String::new(), |margin| format!(" ± {margin:.3}"));
    format!("{:.3}{margin}", summary.mean)
}

fn percent(summary: &Summary) -> String {
    format!("{:.1} %", 100.0 * summary.mean)
}

/// A name that cannot be mistaken for a word.
fn marked(name: &str) -> String {
    format!("`{name}`")
}

fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
