//! Runs at other lengths: which lengths, which scalings, and what seeds say together; once for tables, charts and words.

use serde::{Deserialize, Serialize};

use crate::{
    extrapolate::AtLength,
    measure::Measure,
    results::{CellResult, Results},
    statistics::Summary,
};

/// A cell at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthResult {
    /// How rotary was scaled for it.
    pub scaling: Option<String>,
    /// Tokens of a window.
    pub length: usize,
    /// Nats per token, over seeds.
    pub loss: Option<Summary>,
    /// Bits per byte, over seeds.
    #[serde(default)]
    pub bits_per_byte: Option<Summary>,
    /// Why there is none.
    pub missing: Option<String>,
}

/// A cell over lengths: as trained, or with a scaling of rotary.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthCurve<'a> {
    /// How rotary was scaled, if it was.
    pub scaling: Option<&'a str>,
    /// In the order they were read.
    pub points: Vec<&'a LengthResult>,
}

impl LengthResult {
    /// What runs of one cell found together, at each length of the first.
    pub fn of(runs: &[&[AtLength]]) -> Vec<Self> {
        let Some(first) = runs.first() else { return Vec::new() };
        let together = |at: &AtLength| {
            let over_seeds = |measure: Measure| {
                let same = |run: &&[AtLength]| {
                    let is = |b: &&AtLength| b.length == at.length && b.scaling == at.scaling;
                    measure.of(&run.iter().find(is)?.figures.as_ref()?.whole)
                };
                let values: Option<Vec<f64>> = runs.iter().map(same).collect();
                Summary::of(&values?)
            };
            Self {
                scaling: at.scaling.clone(),
                length: at.length,
                loss: over_seeds(Measure::Loss),
                bits_per_byte: over_seeds(Measure::BitsPerByte),
                missing: at.missing.clone(),
            }
        };
        first.iter().map(together).collect()
    }

    /// The figure that cells are ranked by: a loss, also of tasks.
    pub fn measured(&self, measure: Measure) -> Option<Summary> {
        match measure.at_lengths() {
            Measure::BitsPerByte => self.bits_per_byte,
            _ => self.loss,
        }
    }
}

/// One curve as trained, which comes first, and one for each scaling.
pub fn curves(lengths: &[LengthResult]) -> Vec<LengthCurve<'_>> {
    let mut ways: Vec<Option<&str>> = lengths.iter().map(|at| at.scaling.as_deref()).collect();
    ways.sort_unstable();
    ways.dedup();
    let curve = |scaling: Option<&'_ str>| {
        lengths.iter().filter(move |at| at.scaling.as_deref() == scaling).collect()
    };
    ways.into_iter().map(|scaling| LengthCurve { scaling, points: curve(scaling) }).collect()
}

impl LengthCurve<'_> {
    /// A cell's name with the scaling.
    pub fn name(&self, cell: &str) -> String {
        self.scaling.map_or(cell.to_owned(), |scaling| format!("{cell} with {scaling} scaling"))
    }

    /// What was found at a length.
    pub fn at(&self, length: usize) -> Option<&LengthResult> {
        self.points.iter().find(|at| at.length == length).copied()
    }
}

impl CellResult {
    /// Its curves over lengths.
    pub fn length_curves(&self) -> Vec<LengthCurve<'_>> {
        curves(&self.lengths)
    }
}

impl Results {
    /// Lengths that cells were read at, those of the first that was read at any.
    pub fn lengths(&self) -> Vec<usize> {
        let first = self.cells.iter().find_map(|cell| cell.length_curves().into_iter().next());
        first.map_or(Vec::new(), |curve| curve.points.iter().map(|at| at.length).collect())
    }
}
