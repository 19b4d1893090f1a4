//! The verdict in words, each sentence with its evidence.

use crate::{
    results::{CellResult, Measure, Outcome, Results},
    statistics::{Summary, Verdict},
};

/// A loss that grows by more than this from the trained length to the longest does not reach that far.
const HOLDS: f64 = 0.1;

impl Results {
    /// Sentences, the most important first.
    pub fn verdict(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.best());
        words.extend(self.against_baseline());
        words.extend(self.lengths_in_words());
        words.extend(self.cost_in_words());
        words.extend(self.not_trained());
        if self.seeds == 1 {
            words.push(
                "One seed: differences between seeds are not known, so small gaps may be chance."
                    .into(),
            );
        }
        words
    }

    fn best(&self) -> Option<String> {
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
                    format!(
                        "{} ({} of {} seeds{lift})",
                        cell.name,
                        cell.solved.unwrap_or(0),
                        self.seeds
                    )
                })
                .collect();
            let summary = best.accuracy?;
            return Some(match names.is_empty() {
                true => format!(
                    "None solves the task within {}; {} comes nearest with {} of the answers right.",
                    self.budget,
                    best.name,
                    percent(&summary)
                ),
                false => format!("The task is solved by {}.", list(&names)),
            });
        }
        let summary = best.loss?;
        let next = ranking.get(1).and_then(|cell| Some((cell, cell.loss?)));
        let gap = next.map_or(String::new(), |(cell, loss)| {
            format!(", then {} with {}", cell.name, figure(&loss))
        });
        Some(format!(
            "The lowest loss at the trained length has {}: {}{gap}.",
            best.name,
            figure(&summary)
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
                cell.name,
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
        let say = |names: Vec<String>, what: &str| {
            (!names.is_empty())
                .then(|| format!("Against {}, {what}: {}.", self.baseline, list(&names)))
        };
        [
            say(better, "better beyond noise"),
            say(worse, "worse beyond noise"),
            say(same, "within noise, no difference shown"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn lengths_in_words(&self) -> Vec<String> {
        let trained = self.cells.iter().flat_map(CellResult::runs).map(|run| run.length).next();
        let lengths =
            self.cells.iter().flat_map(|cell| &cell.lengths).filter(|at| at.loss.is_some());
        let (Some(trained), Some(longest)) = (trained, lengths.map(|at| at.length).max()) else {
            return Vec::new();
        };
        if longest <= trained {
            return Vec::new();
        }
        let growth = |cell: &CellResult, scaling: Option<&str>| {
            let far = cell
                .lengths
                .iter()
                .find(|at| at.length == longest && at.scaling.as_deref() == scaling);
            Some(far?.loss?.mean - cell.at(trained)?.loss?.mean)
        };
        let mut found: Vec<(String, f64)> = Vec::new();
        for cell in self.ranking() {
            let scalings = cell.lengths.iter().filter(|at| at.length == longest);
            for scaling in scalings.map(|at| at.scaling.as_deref()) {
                if let Some(growth) = growth(cell, scaling) {
                    let name = scaling
                        .map_or(cell.name.clone(), |s| format!("{} with {s} scaling", cell.name));
                    found.push((name, growth));
                }
            }
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        let factor = longest as f64 / trained as f64;
        let name = |(name, growth): &(String, f64)| format!("{name} ({growth:+.2})");
        let (hold, lose): (Vec<_>, Vec<_>) = found.iter().partition(|(_, growth)| *growth <= HOLDS);
        let mut words = Vec::new();
        if !hold.is_empty() {
            let names: Vec<String> = hold.into_iter().map(name).collect();
            words.push(format!("Trained at {trained} and read at {longest} ({factor:.0} ×), these hold their loss, in nats: {}.", list(&names)));
        }
        if !lose.is_empty() {
            let names: Vec<String> = lose.into_iter().map(name).collect();
            words.push(format!("These lose it at {longest}: {}.", list(&names)));
        }
        words
    }

    fn cost_in_words(&self) -> Option<String> {
        let mut speeds: Vec<(&str, f64)> = self
            .cells
            .iter()
            .filter_map(|cell| Some((cell.name.as_str(), cell.tokens_per_second?.mean)))
            .collect();
        speeds.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (first, last) = (speeds.first()?, speeds.last()?);
        if first.0 == last.0 {
            return None;
        }
        Some(format!(
            "The fastest to train is {} ({:.0} tokens/s), the slowest {} ({:.0}, {:.2} × the time).",
            first.0,
            first.1,
            last.0,
            last.1,
            first.1 / last.1
        ))
    }

    fn not_trained(&self) -> Vec<String> {
        self.cells
            .iter()
            .filter_map(|cell| match &cell.outcome {
                Outcome::Trained { .. } => None,
                Outcome::Refused { reason } => {
                    Some(format!("{} does not compose: {reason}.", capital(&cell.name)))
                }
                Outcome::Failed { reason } => {
                    Some(format!("{} failed: {reason}.", capital(&cell.name)))
                }
            })
            .collect()
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

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
