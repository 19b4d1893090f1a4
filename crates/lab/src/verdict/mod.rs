//! The verdict in words, each sentence with its evidence.
//!
//! Names of cells stand between backticks, because a choice may be called `none` or `full`.

mod speed;

use std::collections::BTreeSet;

pub use speed::speed;

use crate::{
    results::{CellResult, LengthResult, Measure, Outcome, Results},
    statistics::{Summary, Verdict, paired},
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
        let summary = best.shown(self.measure)?;
        let is_alike = |cell: &&&CellResult| {
            cell.measured(self.measure).is_some_and(|other| other.mean == summary.mean)
        };
        let alike: Vec<String> =
            ranking.iter().filter(is_alike).map(|cell| marked(&cell.name)).collect();
        let next = ranking.get(1).and_then(|cell| Some((cell, cell.shown(self.measure)?)));
        let gap = next.map_or(String::new(), |(cell, loss)| {
            let noise = match self.between(best, cell) {
                Some(Verdict::WithinNoise) => ", a difference within noise",
                _ => "",
            };
            format!(", followed by {} with {}{noise}", marked(&cell.name), figure(&loss))
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
        let unit = self.unit(self.measure);
        if alike.len() > 1 {
            // Nobody is first: figures of few texts are often the same.
            let mean = summary.mean;
            return Some(format!("{} share the {first}: {mean:.3} {unit}.{why}", list(&alike)));
        }
        let best = marked(&best.name);
        Some(format!("{best} has the {first}: {} {unit}{gap}.{why}", figure(&summary)))
    }

    /// What two cells differ by, seed by seed.
    fn between(&self, one: &CellResult, other: &CellResult) -> Option<Verdict> {
        let (one, other) = (one.values(self.measure), other.values(self.measure));
        let both = one.iter().filter_map(|(seed, value)| Some((*value, *other.get(seed)?)));
        let (one, other): (Vec<f64>, Vec<f64>) = both.unzip();
        Some(paired(&one, &other)?.verdict())
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
        let trained: BTreeSet<usize> =
            self.cells.iter().flat_map(CellResult::runs).map(|run| run.length).collect();
        let measured = |at: &&LengthResult| at.measured(self.measure).is_some();
        let longest = |cell: &&CellResult| {
            cell.lengths.iter().filter(measured).map(|at| at.length).max().unwrap_or(0)
        };
        // Cells with lengths of their own share the one that all were read at.
        let cells = self.cells.iter().filter(|cell| !cell.lengths.is_empty());
        let longest = match trained.len() {
            1 => cells.map(|cell| longest(&cell)).max(),
            _ => cells.map(|cell| longest(&cell)).min(),
        };
        let (Some(longest), Some(last)) = (longest, trained.last()) else { return Vec::new() };
        if longest <= *last {
            return Vec::new();
        }
        let mean = |at: &LengthResult| Some(at.measured(self.measure)?.mean);
        let mut found: Vec<(String, f64)> = Vec::new();
        for cell in self.ranking() {
            let own = cell.runs().first().map(|run| run.length);
            let Some(near) = own.and_then(|own| cell.at(own)).and_then(mean) else { continue };
            for curve in cell.length_curves() {
                if let Some(far) = curve.at(longest).and_then(mean) {
                    found.push((curve.name(&marked(&cell.name)), far - near));
                }
            }
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        let begun = match trained.len() {
            1 => format!(
                "Trained at {last} and read at {longest} ({:.0} ×)",
                longest as f64 / *last as f64
            ),
            _ => format!("Trained at lengths of their own and read at {longest}"),
        };
        let unit = self.unit(self.measure.at_lengths());
        let name = |(name, growth): &(String, f64)| format!("{name} ({growth:+.2})");
        let (hold, lose): (Vec<_>, Vec<_>) = found.iter().partition(|(_, growth)| *growth <= HOLDS);
        let mut words = Vec::new();
        if !hold.is_empty() {
            let names: Vec<String> = hold.into_iter().map(name).collect();
            words.push(format!(
                "{begun}, these hold their loss (change in {unit}): {}.",
                list(&names)
            ));
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

#[cfg(test)]
mod tests {
    use whatwhere_training::{Evaluation, classification::Tally};

    use crate::{
        compare::{Comparison, Cost, Trained},
        cost::Flops,
        grid::Axis,
        results::{Outcome, Results},
    };

    /// What the figures of some runs of two or three cells become, of texts that are told as classes or of tokens.
    fn said(figures: &[&[f64]], classes: bool) -> Vec<String> {
        let run = |seed: usize, figure: f64| {
            let mut tally = Tally::new(2);
            for text in 0..40 {
                let is_right = (text as f64) < 40.0 * figure;
                tally.add(if is_right { &[1.0, 0.0] } else { &[0.0, 1.0] }, 0);
            }
            let of_classes = tally.figures(&["a".into(), "b".into()]);
            let quality =
                Evaluation { loss: figure, accuracy: 0.5, tokens: 9, ..Default::default() };
            Trained {
                seed: seed as u64 + 1,
                steps: 10,
                length: 8,
                split: "valid".into(),
                held_out: Vec::new(),
                quality: if classes { of_classes.evaluation() } else { quality },
                classification: classes.then_some(of_classes),
                bleu: None,
                bleu_by_words: Vec::new(),
                data: String::new(),
                sample: String::new(),
                curve: Vec::new(),
                lengths: Vec::new(),
                cost: Cost {
                    tokens_per_second: 1.0,
                    stretches: Vec::new(),
                    load: None,
                    jobs: 1,
                    peak_memory: None,
                    machines: Vec::new(),
                    parameters: 1,
                    flops: Flops { matrices: 1.0, visible: 1.0, computed: 1.0 },
                },
            }
        };
        let axis = ["none", "rotary", "polar"][..figures.len()].join(",");
        let labeled = "[model]\nfamily = 'encoder'\n[data]\nsource = 'labeled'";
        let comparison = Comparison {
            settings: if classes { labeled } else { "" }.into(),
            axes: vec![Axis::parse(&format!("position={axis}")).unwrap()],
            seeds: figures[0].len() as u64,
            ..Comparison::default()
        };
        let runs = |figures: &&[f64]| Outcome::Trained {
            runs: figures.iter().enumerate().map(|(seed, figure)| run(seed, *figure)).collect(),
        };
        let outcomes = figures.iter().map(runs).collect();
        let cells = comparison.cells().unwrap();
        let results = Results::of(&comparison, &cells, outcomes).unwrap();
        let table = results.ranking_table().text();
        let mut words = results.verdict();
        words.push(table);
        words.extend(results.evidence());
        words
    }

    #[test]
    fn whoever_is_first_by_chance_or_not_alone_is_not_called_more() {
        let words = said(&[&[2.0, 2.4], &[2.1, 2.2]], false);
        let expected = "`rotary` has the lowest loss at the trained length: 2.150";
        assert!(words[0].starts_with(expected), "{words:?}");
        assert!(words[0].contains("`none` with 2.200"), "{words:?}");
        assert!(words[0].ends_with(", a difference within noise."), "{words:?}");
        let words = said(&[&[2.0, 2.1], &[2.5, 2.6]], false);
        assert!(!words[0].contains("within noise"), "{words:?}");
        let words = said(&[&[2.0], &[2.5]], false);
        assert!(!words[0].contains("within noise"), "one seed says nothing: {words:?}");
        let words = said(&[&[0.5], &[0.75], &[0.75]], true);
        let expected = "`rotary` and `polar` share the highest accuracy: 0.750 of the texts right.";
        assert_eq!(words[0], expected);
    }

    #[test]
    fn an_accuracy_of_one_run_has_the_interval_of_its_texts() {
        let words = said(&[&[0.5], &[0.75]], true).join("\n");
        // Wilson's, of 30 of 40: 0.130.
        assert!(words.contains("`rotary` has the highest accuracy: 0.750 ± 0.130"), "{words}");
        assert!(words.contains("0.500 ± 0.148"), "{words}");
        assert!(words.contains("each accuracy is of 40 held-out texts"), "{words}");
        let words = said(&[&[0.5, 0.5], &[0.75, 0.75]], true).join("\n");
        assert!(words.contains("0.750 ± 0.000") && words.contains("up to ± 0.148"), "{words}");
    }
}
