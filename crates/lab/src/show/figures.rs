//! What drawings of encodings and patterns are made of, as numbers.

use serde::Serialize;

use super::{pattern, position::Drawn};
use crate::{Error, chart::Series};

/// Cells of a pattern's map, down and across.
const CELLS: usize = 128;

/// Positions a live picture shows at the most: it is made anew for every change.
const MOST: usize = 2048;

/// A curve for each head that differs.
pub(crate) type Curves = Vec<Curve>;

/// A name and its points.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

impl From<Series> for Curve {
    fn from(series: Series) -> Self {
        Self { name: series.name, points: series.points }
    }
}

/// An encoding before training.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PositionFigures {
    /// Score of contents that are all alike, against distance.
    similarity: Curves,
    /// What of it is added to the score.
    bias: Curves,
    /// Radians per position of each channel or pair, as set and as without scaling.
    frequencies: Vec<Frequencies>,
}

#[derive(Clone, Debug, Serialize)]
struct Frequencies {
    set: Vec<f64>,
    unscaled: Option<Vec<f64>>,
}

impl PositionFigures {
    /// Of an encoding with changes, at distances up to `length`.
    pub(crate) fn of(name: &str, changes: &[String], length: Option<usize>) -> Result<Self, Error> {
        within(length)?;
        let drawn = Drawn::new(name, changes, length)?;
        let similarity = drawn.similarity()?.into_iter().map(Curve::from).collect();
        if drawn.position.embeds() {
            return Ok(Self { similarity, bias: Vec::new(), frequencies: Vec::new() });
        }
        let call = drawn.call()?;
        let bias = match call.biases.is_empty() {
            true => Vec::new(),
            false => drawn.by_head(&call, true)?.into_iter().map(Curve::from).collect(),
        };
        let unscaled = match drawn.position.unscaled() {
            Some(position) => drawn.call_of(&position, &drawn.built(&position)?)?.features,
            None => Vec::new(),
        };
        let frequencies = call.features.iter().enumerate().map(|(i, feature)| Frequencies {
            set: feature.angles.frequencies().to_vec(),
            unscaled: unscaled.get(i).map(|feature| feature.angles.frequencies().to_vec()),
        });
        Ok(Self { similarity, bias, frequencies: frequencies.collect() })
    }
}

/// Who sees whom, and what it costs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PatternFigures {
    length: usize,
    cells: usize,
    /// The share of visible pairs in each cell, row by row.
    shares: Vec<f64>,
    costs: Vec<pattern::Cost>,
}

impl PatternFigures {
    /// Of a pattern with changes, among so many positions.
    pub(crate) fn of(name: &str, changes: &[String], length: usize) -> Result<Self, Error> {
        within(Some(length))?;
        let settings = pattern::settings(name, changes)?;
        let cells = length.min(CELLS);
        let shares = pattern::shares(&settings, length, cells)?.concat();
        let lengths = [length, 2 * length, 4 * length];
        let costs = lengths.into_iter().map(|length| pattern::Cost::of(&settings, length));
        Ok(Self { length, cells, shares, costs: costs.collect::<Result<_, _>>()? })
    }
}

fn within(length: Option<usize>) -> Result<(), Error> {
    match length {
        Some(length) if !(1..=MOST).contains(&length) => {
            Err(Error::Request(format!("length = {length}: expected 1 to {MOST}")))
        }
        _ => Ok(()),
    }
}
