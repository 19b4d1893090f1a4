//! What a comparison found: figures of every cell over its seeds, as JSON, CSV and for the report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Error, alike,
    compare::{Comparison, Trained},
    evidence,
    extrapolate::AtLength,
    grid::Cell,
    settings::Shared,
    statistics::{Summary, Verdict, paired},
};

pub use crate::{
    lengths::{LengthCurve, LengthResult},
    measure::Measure,
};

/// A finished comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What it is called.
    pub title: String,
    /// Where its runs are.
    pub folder: std::path::PathBuf,
    /// The command that made it, if one did.
    #[serde(default)]
    pub command: Option<String>,
    /// The version of this program.
    #[serde(default)]
    pub version: String,
    /// How each cell's settings were searched for, if they were.
    #[serde(default)]
    pub search: Option<String>,
    /// What was read, and by which cells where they read different things.
    #[serde(default)]
    pub data: Option<String>,
    /// What cells were not given alike, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlike: Vec<String>,
    /// What the settings of all trained cells agree in, TOML.
    pub settings: String,
    /// What cells differ in: keys and values.
    pub axes: Vec<(String, Vec<String>)>,
    /// Runs of each cell.
    pub seeds: u64,
    /// What each run was given.
    pub budget: String,
    /// The cell that others are held against: as asked for, or the first that could be trained.
    pub baseline: String,
    /// The cell that should have been, but was not trained.
    #[serde(default)]
    pub baseline_missing: Option<String>,
    /// What is ranked by.
    pub measure: Measure,
    /// What a token is called: `token`, or `event` of a performance.
    #[serde(default = "token")]
    pub unit: String,
    /// Why cells are not ranked, in words; they are then in the order of the grid.
    #[serde(default)]
    pub not_ranked: Option<String>,
    /// In the order of the grid.
    pub cells: Vec<CellResult>,
}

fn token() -> String {
    "token".into()
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Outcome {
    /// One entry for each seed.
    Trained {
        /// In the order of the seeds.
        runs: Vec<Trained>,
    },
    /// Its settings do not go together.
    Refused {
        /// Why.
        reason: String,
    },
    /// A run broke off.
    Failed {
        /// Why.
        reason: String,
    },
}

/// A cell with what its seeds say together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// What people call it.
    pub name: String,
    /// The folder of its runs, below `runs/`.
    pub folder: String,
    /// One value for each axis.
    pub values: Vec<String>,
    /// Keys and values of its settings that other cells do not share.
    #[serde(default)]
    pub own: Vec<(String, String)>,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Loss at the trained length.
    pub loss: Option<Summary>,
    /// Accuracy at the trained length.
    pub accuracy: Option<Summary>,
    /// Bits per byte at the trained length.
    pub bits_per_byte: Option<Summary>,
    /// BLEU, where asked for.
    pub bleu: Option<Summary>,
    /// Mean of the classes' F1, where classes are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macro_f1: Option<Summary>,
    /// Expected calibration error, where classes are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<Summary>,
    /// For tasks: seeds that reached [`SOLVED`] at any evaluation.
    pub solved: Option<usize>,
    /// For tasks: the update at which seeds that did reached [`LIFTED`].
    pub lift_off: Option<Summary>,
    /// The measure minus the baseline's, seed by seed.
    pub difference: Option<Summary>,
    /// What that amounts to.
    pub verdict: Option<Verdict>,
    /// Loss at other lengths.
    pub lengths: Vec<LengthResult>,
    /// Tokens per second in training, over stretches of all its runs.
    pub tokens_per_second: Option<Summary>,
}

/// The accuracy of a task that is solved.
pub const SOLVED: f64 = 0.95;
/// The accuracy at which learning has lifted off from guessing, which in small tasks is right half of the time.
pub const LIFTED: f64 = 0.75;

impl Results {
    /// What a figure of a measure counts, by what the tokens are called.
    pub(crate) fn unit(&self, measure: Measure) -> String {
        measure.unit().replace("token", &self.unit)
    }

    /// Sums up outcomes, one for each cell.
    pub fn of(
        comparison: &Comparison,
        cells: &[Cell],
        outcomes: Vec<Outcome>,
    ) -> Result<Self, Error> {
        let first = cells.iter().find_map(|cell| cell.settings.as_ref().ok());
        let is_task = first.is_some_and(|settings| settings.data.source.task().is_some());
        let (measure, not_ranked) = match Measure::of_cells(cells) {
            Ok(measure) => (measure, None),
            Err(reason) => (if is_task { Measure::Accuracy } else { Measure::Loss }, Some(reason)),
        };
        let unlike = alike::unlike(comparison, cells, &outcomes);
        let shared = Shared::of(comparison, cells, &outcomes);
        let data = evidence::data_in_words(cells, &outcomes);
        let mut results = Self {
            title: comparison.title.clone(),
            folder: comparison.folder.clone(),
            command: comparison.command.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            search: comparison.search.as_ref().map(ToString::to_string),
            data,
            unlike,
            settings: shared.text,
            axes: comparison
                .axes
                .iter()
                .map(|axis| (axis.key.clone(), axis.values.clone()))
                .collect(),
            seeds: comparison.seeds,
            budget: comparison
                .budget
                .map_or_else(|| alike::updates(cells), |budget| budget.to_string()),
            baseline: String::new(),
            baseline_missing: None,
            measure,
            unit: first.map_or_else(token, |settings| settings.data.source.unit().into()),
            not_ranked,
            cells: cells
                .iter()
                .zip(outcomes)
                .zip(shared.own)
                .map(|((cell, outcome), own)| CellResult::of(cell, own, outcome, measure))
                .collect(),
        };
        results.choose_baseline(comparison.baseline.as_ref());
        results.hold_against_baseline();
        Ok(results)
    }

    /// Takes the cell that was asked for, or the first; if that was not trained, the first that was.
    fn choose_baseline(&mut self, asked: Option<&String>) {
        let wanted = asked.or(self.cells.first().map(|cell| &cell.name)).cloned();
        let trained: Vec<&String> = self
            .cells
            .iter()
            .filter(|cell| !cell.runs().is_empty())
            .map(|cell| &cell.name)
            .collect();
        let Some(wanted) = wanted else { return };
        match trained.first() {
            Some(first) if !trained.contains(&&wanted) => {
                self.baseline = (*first).clone();
                self.baseline_missing = Some(wanted);
            }
            _ => self.baseline = wanted,
        }
    }

    fn hold_against_baseline(&mut self) {
        if self.not_ranked.is_some() {
            return;
        }
        let measure = self.measure;
        let values = |cell: &CellResult| cell.values(measure);
        let Some(base) = self.cells.iter().find(|cell| cell.name == self.baseline).map(values)
        else {
            return;
        };
        for cell in self.cells.iter_mut().filter(|cell| cell.name != self.baseline) {
            let own = values(cell);
            let (own, base): (Vec<f64>, Vec<f64>) = own
                .iter()
                .filter_map(|(seed, own)| base.get(seed).map(|base| (*own, *base)))
                .unzip();
            cell.difference = paired(&own, &base);
            cell.verdict = cell.difference.as_ref().map(Summary::verdict);
        }
    }

    /// What to know about speed and memory if runs were trained side by side.
    pub fn conditions(&self) -> Option<String> {
        let jobs = self.cells.iter().flat_map(CellResult::runs).map(|run| run.cost.jobs).max()?;
        (jobs > 1).then(|| {
            format!(
                "Runs were trained {jobs} at a time: tokens/s are those of a run beside others, memory was not measured."
            )
        })
    }

    /// Why the first cell has no run, if none has any.
    pub fn nothing_trained(&self) -> Option<&str> {
        let mut reasons = self.cells.iter().map(|cell| match &cell.outcome {
            Outcome::Trained { .. } => None,
            Outcome::Refused { reason } | Outcome::Failed { reason } => Some(reason.as_str()),
        });
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    /// Cells of which a run broke off.
    pub fn failed(&self) -> usize {
        self.cells.iter().filter(|cell| matches!(cell.outcome, Outcome::Failed { .. })).count()
    }

    /// Trained cells, best first; in the order of the grid if they are not ranked.
    pub fn ranking(&self) -> Vec<&CellResult> {
        let mut ranking: Vec<&CellResult> =
            self.cells.iter().filter(|cell| cell.measured(self.measure).is_some()).collect();
        if self.not_ranked.is_some() {
            return ranking;
        }
        let key = |cell: &CellResult| {
            let mean = cell.measured(self.measure).map_or(f64::INFINITY, |summary| summary.mean);
            if self.measure.is_loss() { mean } else { -mean }
        };
        ranking.sort_by(|a, b| key(a).total_cmp(&key(b)));
        ranking
    }
}

impl CellResult {
    fn of(cell: &Cell, own: Vec<(String, String)>, outcome: Outcome, measure: Measure) -> Self {
        let runs = outcome.runs();
        let summary = |value: fn(&Trained) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(value).collect();
            Summary::of(&values?)
        };
        let reached = |run: &Trained, least: f64| {
            run.curve.iter().find(|point| point.accuracy >= least).map(|point| point.step as f64)
        };
        let is_task = measure == Measure::Accuracy;
        let lengths: Vec<&[AtLength]> = runs.iter().map(|run| run.lengths.as_slice()).collect();
        let lifted: Vec<f64> = runs.iter().filter_map(|run| reached(run, LIFTED)).collect();
        Self {
            name: cell.name.clone(),
            folder: cell.folder.clone(),
            values: cell.values.clone(),
            own,
            loss: summary(|run| Some(run.quality.loss)),
            accuracy: summary(|run| Some(run.quality.accuracy)),
            bits_per_byte: summary(|run| run.quality.bits_per_byte),
            bleu: summary(|run| run.bleu),
            macro_f1: summary(|run| run.quality.macro_f1),
            calibration_error: summary(|run| run.quality.calibration_error),
            solved: is_task
                .then(|| runs.iter().filter(|run| reached(run, SOLVED).is_some()).count()),
            lift_off: Summary::of(&lifted).filter(|_| is_task),
            difference: None,
            verdict: None,
            lengths: LengthResult::of(&lengths),
            tokens_per_second: speed(runs),
            outcome,
        }
    }

    /// Its runs; none if it was refused or failed.
    pub fn runs(&self) -> &[Trained] {
        self.outcome.runs()
    }

    /// What it is ranked by.
    pub fn measured(&self, measure: Measure) -> Option<Summary> {
        match measure {
            Measure::Loss => self.loss,
            Measure::BitsPerByte => self.bits_per_byte,
            Measure::Accuracy | Measure::ClassAccuracy => self.accuracy,
        }
    }

    /// [`Self::measured`], of one run's accuracy with the interval over texts: seeds have none then.
    pub(crate) fn shown(&self, measure: Measure) -> Option<Summary> {
        let summary = self.measured(measure)?;
        let of_texts = match (measure, self.runs()) {
            (Measure::ClassAccuracy, [only]) => only.classification.as_ref().map(|c| c.margin),
            _ => None,
        };
        Some(Summary { margin: summary.margin.or(of_texts), ..summary })
    }

    /// What it is ranked by, run by run, by their seeds.
    pub(crate) fn values(&self, measure: Measure) -> BTreeMap<u64, f64> {
        let value = |run: &Trained| Some((run.seed, measure.of(&run.quality)?));
        self.runs().iter().filter_map(value).collect()
    }

    /// At a length, as trained.
    pub fn at(&self, length: usize) -> Option<&LengthResult> {
        self.lengths.iter().find(|at| at.length == length && at.scaling.is_none())
    }

    /// The most memory of any of its runs.
    pub fn peak_memory(&self) -> Option<u64> {
        self.runs().iter().filter_map(|run| run.cost.peak_memory).max()
    }
}

impl Outcome {
    /// What came of each seed; none if it was refused or failed.
    pub fn runs(&self) -> &[Trained] {
        match self {
            Self::Trained { runs } => runs,
            _ => &[],
        }
    }
}

/// Over all stretches of all runs; over runs where stretches are not known.
fn speed(runs: &[Trained]) -> Option<Summary> {
    let stretches: Vec<f64> = runs.iter().flat_map(|run| run.cost.stretches.clone()).collect();
    Summary::of(&stretches).or_else(|| {
        let each: Vec<f64> = runs.iter().map(|run| run.cost.tokens_per_second).collect();
        Summary::of(&each)
    })
}
