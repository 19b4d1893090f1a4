//! What a comparison found: figures of every cell over its seeds, as JSON, CSV and for the report.

use std::{collections::BTreeMap, fmt::Write};

use serde::{Deserialize, Serialize};
use whatwhere_training::RunSettings;

use crate::{
    Error,
    compare::{Comparison, Trained},
    grid::Cell,
    statistics::{Summary, Verdict, paired},
};

/// A finished comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What it is called.
    pub title: String,
    /// Where its runs are.
    pub folder: std::path::PathBuf,
    /// Settings of all cells, TOML, with changes.
    pub settings: String,
    /// What cells differ in: keys and values.
    pub axes: Vec<(String, Vec<String>)>,
    /// Runs of each cell.
    pub seeds: u64,
    /// What each run was given.
    pub budget: String,
    /// The cell that others are held against.
    pub baseline: String,
    /// What is ranked by.
    pub measure: Measure,
    /// In the order of the grid.
    pub cells: Vec<CellResult>,
}

/// What decides between cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Nats per token; lower is better.
    Loss,
    /// Share of right answers; higher is better.
    Accuracy,
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
    /// Tokens per second in training.
    pub tokens_per_second: Option<Summary>,
}

/// A cell at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthResult {
    /// How rotary was scaled for it.
    pub scaling: Option<String>,
    /// Tokens of a window.
    pub length: usize,
    /// Over seeds.
    pub loss: Option<Summary>,
    /// Why there is none.
    pub missing: Option<String>,
}

/// The accuracy of a task that is solved.
pub const SOLVED: f64 = 0.95;
/// The accuracy at which learning has lifted off from guessing, which in small tasks is right half of the time.
pub const LIFTED: f64 = 0.75;

impl Results {
    /// Sums up outcomes, one for each cell.
    pub fn of(
        comparison: &Comparison,
        cells: &[Cell],
        outcomes: Vec<Outcome>,
    ) -> Result<Self, Error> {
        let first = cells.iter().find_map(|cell| cell.settings.as_ref().ok());
        let is_task = first.is_some_and(|settings| settings.data.source.task().is_some());
        let measure = if is_task { Measure::Accuracy } else { Measure::Loss };
        let steps = first.map_or(0, |settings| settings.training.steps);
        let baseline = comparison.baseline.clone().or(cells.first().map(|cell| cell.name.clone()));
        let baseline = baseline.unwrap_or_default();
        let mut results = Self {
            title: comparison.title.clone(),
            folder: comparison.folder.clone(),
            settings: RunSettings::read(&comparison.settings, &comparison.changes)
                .and_then(|settings| settings.to_toml())
                .unwrap_or_else(|_| comparison.settings.clone()),
            axes: comparison
                .axes
                .iter()
                .map(|axis| (axis.key.clone(), axis.values.clone()))
                .collect(),
            seeds: comparison.seeds,
            budget: comparison
                .budget
                .map_or(format!("{steps} updates"), |budget| budget.to_string()),
            baseline,
            measure,
            cells: cells
                .iter()
                .zip(outcomes)
                .map(|(cell, outcome)| CellResult::of(cell, outcome, measure))
                .collect(),
        };
        results.hold_against_baseline();
        Ok(results)
    }

    fn hold_against_baseline(&mut self) {
        let measure = self.measure;
        let values = |cell: &CellResult| -> BTreeMap<u64, f64> {
            cell.runs().iter().map(|run| (run.seed, measure.of(run))).collect()
        };
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

    /// Trained cells, best first.
    pub fn ranking(&self) -> Vec<&CellResult> {
        let mut ranking: Vec<&CellResult> =
            self.cells.iter().filter(|cell| cell.measured(self.measure).is_some()).collect();
        let key = |cell: &CellResult| {
            let mean = cell.measured(self.measure).map_or(f64::INFINITY, |summary| summary.mean);
            if self.measure == Measure::Loss { mean } else { -mean }
        };
        ranking.sort_by(|a, b| key(a).total_cmp(&key(b)));
        ranking
    }

    /// One line for each run and length.
    pub fn csv(&self) -> String {
        let keys: Vec<String> = self.axes.iter().map(|(key, _)| quoted(key)).collect();
        let mut text = format!(
            "cell,{}state,seed,steps,parameters,scaling,length,loss,perplexity,bits_per_byte,accuracy,bleu,tokens_per_second,jobs,peak_memory,flops_visible,flops_computed,reason\n",
            keys.iter().map(|key| format!("{key},")).collect::<String>()
        );
        for cell in &self.cells {
            let values: String =
                cell.values.iter().map(|value| format!("{},", quoted(value))).collect();
            let head = format!("{},{values}", quoted(&cell.name));
            match &cell.outcome {
                Outcome::Refused { reason } | Outcome::Failed { reason } => {
                    let state = if matches!(cell.outcome, Outcome::Refused { .. }) {
                        "refused"
                    } else {
                        "failed"
                    };
                    let _ = writeln!(text, "{head}{state},,,,,,,,,,,,,,,,{}", quoted(reason));
                }
                Outcome::Trained { runs } => {
                    runs.iter().for_each(|run| rows(&mut text, &head, run))
                }
            }
        }
        text
    }
}

/// The rows of one run: its quality, then its other lengths.
fn rows(text: &mut String, head: &str, run: &Trained) {
    let optional = |value: Option<String>| value.unwrap_or_default();
    let cost = &run.cost;
    let start = format!("{head}trained,{},{},{}", run.seed, run.steps, cost.parameters);
    let end = format!(
        "{},{:.1},{},{},{},{}",
        optional(run.bleu.map(|bleu| bleu.to_string())),
        cost.tokens_per_second,
        cost.jobs,
        optional(cost.peak_memory.map(|bytes| bytes.to_string())),
        cost.flops.visible,
        cost.flops.computed
    );
    let figures = |quality: &whatwhere_training::Evaluation| {
        let bits = optional(quality.bits_per_byte.map(|bits| bits.to_string()));
        format!("{},{},{bits},{}", quality.loss, quality.perplexity, quality.accuracy)
    };
    if run.lengths.is_empty() {
        let _ = writeln!(text, "{start},,{},{},{end},", run.length, figures(&run.quality));
    }
    for at in &run.lengths {
        let scaling = optional(at.scaling.clone());
        let reason = at.missing.as_deref().map_or(String::new(), quoted);
        let figures = at.figures.as_ref().map_or(",,,".into(), |found| figures(&found.whole));
        let _ = writeln!(text, "{start},{scaling},{},{figures},{end},{reason}", at.length);
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"").replace('\n', " ")),
        false => text.into(),
    }
}

impl Measure {
    /// Of a run.
    pub fn of(self, run: &Trained) -> f64 {
        match self {
            Self::Loss => run.quality.loss,
            Self::Accuracy => run.quality.accuracy,
        }
    }

    /// Whether a difference to the baseline is a gain.
    pub fn is_better(self, verdict: Verdict) -> bool {
        verdict == if self == Self::Loss { Verdict::Lower } else { Verdict::Higher }
    }
}

impl CellResult {
    fn of(cell: &Cell, outcome: Outcome, measure: Measure) -> Self {
        let runs: &[Trained] = match &outcome {
            Outcome::Trained { runs } => runs,
            _ => &[],
        };
        let summary = |value: fn(&Trained) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(value).collect();
            Summary::of(&values?)
        };
        let reached = |run: &Trained, least: f64| {
            run.curve.iter().find(|point| point.accuracy >= least).map(|point| point.step as f64)
        };
        let is_task = measure == Measure::Accuracy;
        let lifted: Vec<f64> = runs.iter().filter_map(|run| reached(run, LIFTED)).collect();
        Self {
            name: cell.name.clone(),
            folder: cell.folder.clone(),
            values: cell.values.clone(),
            loss: summary(|run| Some(run.quality.loss)),
            accuracy: summary(|run| Some(run.quality.accuracy)),
            bits_per_byte: summary(|run| run.quality.bits_per_byte),
            bleu: summary(|run| run.bleu),
            solved: is_task
                .then(|| runs.iter().filter(|run| reached(run, SOLVED).is_some()).count()),
            lift_off: Summary::of(&lifted).filter(|_| is_task),
            difference: None,
            verdict: None,
            lengths: lengths(runs),
            tokens_per_second: summary(|run| Some(run.cost.tokens_per_second)),
            outcome,
        }
    }

    /// Its runs; none if it was refused or failed.
    pub fn runs(&self) -> &[Trained] {
        match &self.outcome {
            Outcome::Trained { runs } => runs,
            _ => &[],
        }
    }

    /// What it is ranked by.
    pub fn measured(&self, measure: Measure) -> Option<Summary> {
        match measure {
            Measure::Loss => self.loss,
            Measure::Accuracy => self.accuracy,
        }
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

/// Sums up lengths over seeds.
fn lengths(runs: &[Trained]) -> Vec<LengthResult> {
    let Some(first) = runs.first() else { return Vec::new() };
    first
        .lengths
        .iter()
        .map(|at| {
            let same = |run: &Trained| {
                let found =
                    run.lengths.iter().find(|b| b.length == at.length && b.scaling == at.scaling);
                found.and_then(|found| found.figures.as_ref()).map(|figures| figures.whole.loss)
            };
            let losses: Option<Vec<f64>> = runs.iter().map(same).collect();
            LengthResult {
                scaling: at.scaling.clone(),
                length: at.length,
                loss: losses.and_then(|losses| Summary::of(&losses)),
                missing: at.missing.clone(),
            }
        })
        .collect()
}
