//! Published claims, checked at a size that fits two cores.
//!
//! A [`Claim`] names the paper, what it reports and how ours differs in size; its experiment is a comparison with
//! [`Expectation`]s, or a direct measurement. [`CLAIMS`] is the list; what was found is kept in `findings.json`.

mod claims;
mod forgetting;
mod own;
mod permutation;
mod saturation;

use std::{io::Write, path::Path};

use serde::{Deserialize, Serialize};
use whatwhere_files as files;
use whatwhere_training::{RunSettings, interrupt::Interrupt};

pub use claims::CLAIMS;

use crate::{
    Error,
    compare::{self, Comparison, Corpora, Observer},
    cost::Load,
    grid::Axis,
    record, report,
    results::{CellResult, Results},
    statistics::{Summary, Verdict, paired},
};

/// A published claim.
pub struct Claim {
    /// What the command calls it.
    pub name: &'static str,
    /// The claim in a sentence.
    pub title: &'static str,
    /// Who published it, and where.
    pub paper: &'static str,
    /// The figures they report.
    pub reports: &'static str,
    /// How our experiment differs; nothing if it is theirs.
    pub scaled_down: Option<&'static str>,
    /// Minutes on two cores with the seeds given here, roughly.
    pub minutes: u32,
    /// What `--data` has to be, for claims that need more than the program has.
    pub data: Option<&'static str>,
    /// How it is checked.
    pub experiment: Experiment,
}

/// How a claim is checked.
pub enum Experiment {
    /// By training.
    Compare(&'static [Part]),
    /// By a measurement without training.
    Measure(fn() -> Result<Vec<Finding>, Error>),
}

/// One comparison of a claim.
pub struct Part {
    /// Its folder.
    pub name: &'static str,
    /// Settings, TOML.
    pub settings: &'static str,
    /// Changes to them.
    pub changes: &'static [&'static str],
    /// What cells differ in.
    pub axes: &'static [&'static str],
    /// Runs of each cell.
    pub seeds: u64,
    /// The cell that others are held against.
    pub baseline: &'static str,
    /// Lengths to read without training; none if empty.
    pub lengths: &'static [usize],
    /// Tokens read at each.
    pub tokens: usize,
    /// Whether translations are scored.
    pub bleu: bool,
    /// What the paper makes us expect.
    pub expects: &'static [Expectation],
}

/// That one cell does better than another. `CELL with NAME scaling` is a cell of rotary, scaled without training.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// The cell that should do better.
    pub better: &'static str,
    /// The other.
    pub than: &'static str,
    /// In what.
    pub by: By,
}

/// What cells are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Loss at the trained length.
    Loss,
    /// Loss at another length.
    LossAt(usize),
    /// Share of right answers.
    Accuracy,
    /// BLEU.
    Bleu,
    /// BLEU of the quarter with the longest sources.
    BleuOfLongest,
    /// BLEU of the quarter with the shortest sources, minus that of the longest.
    Forgetting,
    /// Tokens per second in training.
    Speed,
}

/// What was found about a claim, or a part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What was expected.
    pub expected: String,
    /// What was measured.
    pub measured: String,
    /// How they go together.
    pub judgement: Judgement,
}

/// How a measurement and a claim go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// As published, beyond noise.
    Agrees,
    /// The other way round, beyond noise.
    Disagrees,
    /// No difference shown.
    WithinNoise,
    /// As published, but one seed says nothing about noise.
    AgreesOneSeed,
    /// The other way round, but one seed says nothing about noise.
    DisagreesOneSeed,
    /// A cell could not be measured.
    NotMeasured,
}

impl std::fmt::Display for Judgement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Agrees => "agrees",
            Self::Disagrees => "disagrees",
            Self::WithinNoise => "within noise",
            Self::AgreesOneSeed => "agrees, one seed",
            Self::DisagreesOneSeed => "disagrees, one seed",
            Self::NotMeasured => "not measured",
        })
    }
}

/// The claim of a name.
pub fn find(name: &str) -> Option<&'static Claim> {
    CLAIMS.iter().find(|claim| claim.name == name)
}

/// What a person may change of a claim's experiment.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Settings, as `--set` takes them.
    pub settings: Vec<String>,
    /// Other data than the claim's own.
    pub data: Option<std::path::PathBuf>,
    /// Another number of seeds.
    pub seeds: Option<u64>,
    /// Runs at the same time, where speeds are not compared.
    pub jobs: Option<usize>,
    /// Whether other processes check the same claim in the same folder. Where speeds are compared, one does all of it.
    pub share: bool,
}

impl Claim {
    /// Checks the claim in a folder; nothing if interrupted. The same call goes on.
    pub fn check(
        &self,
        changes: &Changes,
        folder: &Path,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Option<Vec<Finding>>, Error> {
        let parts = match &self.experiment {
            Experiment::Measure(measure) => {
                let findings = measure()?;
                self.save(&findings, folder)?;
                return Ok(Some(findings));
            }
            Experiment::Compare(parts) => *parts,
        };
        if let (Some(needed), None) = (self.data, &changes.data) {
            return Err(Error::Request(format!("{} needs --data: {needed}", self.name)));
        }
        let mut corpora = Corpora::default();
        let (mut findings, mut all) = (Vec::new(), Vec::new());
        for part in parts {
            let mut comparison = part.comparison(self, changes, folder)?;
            comparison.cells()?;
            if changes.share {
                record::claim(&mut comparison, true, &mut corpora, interrupt, observer)?;
            }
            let _turn = match changes.share && part.compares_speed() {
                true => match compare::turn(&comparison.folder, interrupt)? {
                    None => return Ok(None),
                    turn => turn,
                },
                false => None,
            };
            let Some(results) = comparison.run(&mut corpora, interrupt, observer)? else {
                return Ok(None);
            };
            findings.extend(part.expects.iter().map(|expectation| expectation.judge(&results)));
            all.push(results);
        }
        // Runs that failed now and were there before are no reason to forget them.
        if !record::says_more(folder, &all) {
            let save = if changes.share { report::save_once } else { report::save };
            save(&all, folder)?;
        }
        self.save(&findings, folder)?;
        Ok(Some(findings))
    }

    fn save(&self, findings: &[Finding], folder: &Path) -> Result<(), Error> {
        report::make_folder(folder)?;
        let text =
            serde_json::to_string_pretty(findings).map_err(|e| Error::Request(e.to_string()))?;
        Ok(files::replace(&folder.join("findings.json"), |writer| {
            writer.write_all(text.as_bytes())
        })?)
    }
}

impl Part {
    fn compares_speed(&self) -> bool {
        self.expects.iter().any(|expectation| expectation.by == By::Speed)
    }

    /// The comparison that checks it.
    pub fn comparison(
        &self,
        claim: &Claim,
        changes: &Changes,
        folder: &Path,
    ) -> Result<Comparison, Error> {
        let own: Vec<String> = self.changes.iter().map(|change| (*change).into()).collect();
        let mut settings =
            RunSettings::read(self.settings, &[own, changes.settings.clone()].concat())?;
        if let Some(path) = &changes.data {
            claims::read_from(&mut settings, path)?;
        }
        Ok(Comparison {
            title: claim.title.into(),
            settings: settings.to_toml()?,
            axes: self.axes.iter().map(|axis| Axis::parse(axis)).collect::<Result<_, _>>()?,
            seeds: changes.seeds.unwrap_or(self.seeds),
            lengths: Some(self.lengths.to_vec()),
            tokens: self.tokens,
            bleu: self.bleu,
            baseline: Some(self.baseline.into()),
            jobs: changes.jobs.filter(|_| !self.compares_speed()).unwrap_or(1),
            share: changes.share,
            folder: folder.join(self.name),
            ..Comparison::default()
        })
    }
}

impl Expectation {
    /// Holds it against what was found.
    pub fn judge(&self, results: &Results) -> Finding {
        let expected = format!("{} {} {}", self.better, self.by.words(), self.than);
        let cell = |name: &str| results.cells.iter().find(|cell| cell.name == parted(name).0);
        let values = |name: &str| {
            cell(name).map(|cell| self.by.of(cell, parted(name).1)).unwrap_or_default()
        };
        let (better, than) = (values(self.better), values(self.than));
        let (Some(a), Some(b), Some(difference)) =
            (Summary::of(&better), Summary::of(&than), paired(&better, &than))
        else {
            let measured = "a cell was not trained, or has no such figure".into();
            return Finding { expected, measured, judgement: Judgement::NotMeasured };
        };
        let lower_is_better = matches!(self.by, By::Loss | By::LossAt(_) | By::Forgetting);
        let is_right = (difference.mean < 0.0) == lower_is_better;
        let judgement = match (difference.verdict(), is_right) {
            (Verdict::WithinNoise, _) => Judgement::WithinNoise,
            (Verdict::Unknown, true) => Judgement::AgreesOneSeed,
            (Verdict::Unknown, false) => Judgement::DisagreesOneSeed,
            (_, true) => Judgement::Agrees,
            (_, false) => Judgement::Disagrees,
        };
        let seeds = a.count;
        let margin = difference.margin.map_or(String::new(), |margin| format!(" ± {margin:.3}"));
        let solved = |name: &str| cell(name).and_then(|cell| cell.solved);
        let solved = match (self.by, solved(self.better), solved(self.than)) {
            (By::Accuracy, Some(better), Some(than)) => format!(", solved by {better} and {than}"),
            _ => String::new(),
        };
        let load = match (self.by, results.load().filter(Load::is_heavy)) {
            (By::Speed, Some(Load { others, cores })) => {
                format!("; other programs kept up to {others:.1} of {cores} cores busy")
            }
            _ => String::new(),
        };
        let measured = format!(
            "{:.3} against {:.3}, difference {:+.3}{margin}, {seeds} seed{}{solved}{load}",
            a.mean,
            b.mean,
            difference.mean,
            if seeds == 1 { "" } else { "s" }
        );
        Finding { expected, measured, judgement }
    }
}

/// The cell of a name, and how it was scaled.
fn parted(name: &str) -> (&str, Option<&str>) {
    let scaled = name.strip_suffix(" scaling").and_then(|name| name.rsplit_once(" with "));
    scaled.map_or((name, None), |(cell, scaling)| (cell, Some(scaling)))
}

impl By {
    /// One value for each seed; none if a seed has none.
    fn of(self, cell: &CellResult, scaling: Option<&str>) -> Vec<f64> {
        let value = |run: &crate::compare::Trained| match self {
            Self::Loss => Some(run.quality.loss),
            Self::Accuracy => Some(run.quality.accuracy),
            Self::Bleu => run.bleu,
            Self::BleuOfLongest => run.bleu_by_words.last().map(|longest| longest.bleu),
            Self::Forgetting => match run.bleu_by_words[..] {
                [ref shortest, .., ref longest] => Some(shortest.bleu - longest.bleu),
                _ => None,
            },
            Self::Speed => Some(run.cost.tokens_per_second),
            Self::LossAt(length) => run
                .lengths
                .iter()
                .find(|at| at.length == length && at.scaling.as_deref() == scaling)
                .and_then(|at| at.figures.as_ref())
                .map(|figures| figures.whole.loss),
        };
        let values: Option<Vec<f64>> = cell.runs().iter().map(value).collect();
        values.unwrap_or_default()
    }

    fn words(self) -> String {
        match self {
            Self::Loss => "has a lower loss than".into(),
            Self::LossAt(length) => format!("has a lower loss at {length} tokens than"),
            Self::Accuracy => "has more answers right than".into(),
            Self::Bleu => "has a higher BLEU than".into(),
            Self::BleuOfLongest => {
                "has a higher BLEU for the longest quarter of sentences than".into()
            }
            Self::Forgetting => {
                "loses less BLEU from the shortest to the longest quarter than".into()
            }
            Self::Speed => "trains faster than".into(),
        }
    }
}

#[cfg(test)]
mod tests;
