//! Features: what the position of a token does to its query or key before they are compared.
//!
//! Rotary turns pairs of channels, `x → R(position·θ) x`. Polar (PoPE) makes each channel a magnitude and turns
//! it by the position alone: `x → (μ(x) cos φ, μ(x) sin φ)` with `φ = position·θ_c`, plus `δ_c` for keys.
//! A polar channel becomes two; the widened vectors exist for one tile at a time only.

use std::{f32::consts::TAU, ops::Range, sync::Arc};

use crate::{
    Error,
    attention::Shape,
    error::{expect_len, expect_range},
};

/// Cosines and sines of `position · frequency`, for a run of positions; on a grid, of its row or its column in place of the
/// position.
#[derive(Clone, Debug, PartialEq)]
pub struct Angles {
    frequencies: Vec<f64>,
    grid: Option<usize>,
    amplitude: f64,
    positions: Range<usize>,
    /// `[positions, frequencies]` each.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// The table for `positions`, computed in f64. `amplitude` multiplies both cosine and sine (YaRN's factor; otherwise 1).
    pub fn new(frequencies: &[f64], positions: Range<usize>, amplitude: f64) -> Self {
        Self::on_grid(frequencies, None, positions, amplitude)
    }

    /// The same for positions on a grid so many positions wide, row after row: the first half of the frequencies turns by
    /// the row, `position / grid`, the second by the column, `position mod grid`. Without a grid, [`Self::new`].
    ///
    /// # Panics
    /// If the grid is 0 wide.
    pub fn on_grid(
        frequencies: &[f64],
        grid: Option<usize>,
        positions: Range<usize>,
        amplitude: f64,
    ) -> Self {
        let half = frequencies.len() / 2;
        let turning = |position: usize, i: usize| match grid {
            None => position,
            Some(grid) if i < half => position / grid,
            Some(grid) => position % grid,
        };
        let at = |function: fn(f64) -> f64| {
            let angle = |position| {
                let by = move |(i, f): (usize, &f64)| turning(position, i) as f64 * f;
                frequencies.iter().enumerate().map(by)
            };
            let angles = positions.clone().flat_map(angle);
            angles.map(|angle| (amplitude * function(angle)) as f32).collect::<Vec<f32>>()
        };
        let (cos, sin) = (at(f64::cos), at(f64::sin));
        Self { frequencies: frequencies.to_vec(), grid, amplitude, positions, cos, sin }
    }

    /// Rotary's geometric frequencies `base^(−2i/width)`, one per pair of `width` channels.
    pub fn rotary_frequencies(width: usize, base: f64) -> Vec<f64> {
        (0..width / 2).map(|i| base.powf(-2.0 * i as f64 / width as f64)).collect()
    }

    /// PoPE's geometric frequencies `base^(−c/width)`, one per channel.
    pub fn polar_frequencies(width: usize, base: f64) -> Vec<f64> {
        (0..width).map(|c| base.powf(-(c as f64) / width as f64)).collect()
    }

    /// Cosines and sines at one position, one per frequency.
    pub fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let (row, count) = (position - self.positions.start, self.frequencies.len());
        (&self.cos[row * count..(row + 1) * count], &self.sin[row * count..(row + 1) * count])
    }

    /// Radians per position, or per row and per column.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// Positions in a row of the grid; nothing if there is no grid.
    pub fn grid(&self) -> Option<usize> {
        self.grid
    }

    /// The factor on cosine and sine.
    pub fn amplitude(&self) -> f64 {
        self.amplitude
    }

    /// The positions of the table.
    pub fn positions(&self) -> &Range<usize> {
        &self.positions
    }
}

/// A feature on some channels of some heads, over values `T`. Channels without a feature are compared as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature<T> {
    /// What is done to the channels.
    pub kind: FeatureKind<T>,
    /// Which channels; features must not overlap within a head.
    pub channels: Range<usize>,
    /// Which query heads.
    pub heads: Range<usize>,
    /// The angles, covering every position of the call.
    pub angles: Arc<Angles>,
}

/// The kinds of feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeatureKind<T> {
    /// Turns pairs of channels; one frequency per pair.
    Rotary {
        /// Which channels form a pair.
        layout: Layout,
    },
    /// Polar coordinates; one frequency per channel.
    Polar {
        /// From a channel's value to a magnitude.
        magnitude: Magnitude,
        /// Phase added to keys, `[heads, channels]` over all heads; used clamped to [−2π, 0],
        /// with the gradient 0 outside.
        delta: Option<T>,
    },
}

/// Which channels of `width` a rotary pair consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Channels `2i` and `2i + 1` (RoFormer, GPT-J).
    Interleaved,
    /// Channels `i` and `i + width/2` (GPT-NeoX, Llama in transformers).
    HalfSplit,
}

impl Layout {
    /// The two channels of pair `i`.
    pub fn pair(&self, i: usize, width: usize) -> (usize, usize) {
        match self {
            Layout::Interleaved => (2 * i, 2 * i + 1),
            Layout::HalfSplit => (i, i + width / 2),
        }
    }
}

/// How polar features turn a value into a magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitude {
    /// `ln(1 + eˣ)`, the paper's.
    Softplus,
    /// `max(x, 0)`.
    Relu,
    /// `x` itself.
    Identity,
}

/// The range of δ in the paper, `[−2π, 0]`.
pub const DELTA_RANGE: (f32, f32) = (-TAU, 0.0);

impl<T> Feature<T> {
    /// The same feature over other values; `f` gets each with its name.
    pub fn map<'t, U>(&'t self, f: &mut impl FnMut(&'static str, &'t T) -> U) -> Feature<U> {
        let kind = match &self.kind {
            FeatureKind::Rotary { layout } => FeatureKind::Rotary { layout: *layout },
            FeatureKind::Polar { magnitude, delta } => FeatureKind::Polar {
                magnitude: *magnitude,
                delta: delta.as_ref().map(|delta| f("delta", delta)),
            },
        };
        let (channels, heads) = (self.channels.clone(), self.heads.clone());
        Feature { kind, channels, heads, angles: self.angles.clone() }
    }

    /// How many compared channels this feature adds for a head in its range.
    pub(crate) fn widening(&self, head: usize) -> usize {
        match self.kind {
            FeatureKind::Polar { .. } if self.heads.contains(&head) => self.channels.len(),
            _ => 0,
        }
    }

    /// δ, where there is one.
    pub fn delta(&self) -> Option<&T> {
        match &self.kind {
            FeatureKind::Polar { delta, .. } => delta.as_ref(),
            FeatureKind::Rotary { .. } => None,
        }
    }
}

impl Feature<&[f32]> {
    pub(crate) fn check(
        &self,
        shape: &Shape,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> Result<(), Error> {
        let width = self.channels.len();
        expect_range(
            "feature.channels",
            &self.channels,
            self.channels.start <= self.channels.end && self.channels.end <= shape.head_dim,
            "a range of the head's channels",
        )?;
        expect_range(
            "feature.heads",
            &self.heads,
            self.heads.start <= self.heads.end && self.heads.end <= shape.heads,
            "a range of the heads",
        )?;
        let frequencies = match self.kind {
            FeatureKind::Rotary { .. } => {
                expect_range(
                    "rotary channels",
                    width,
                    width.is_multiple_of(2),
                    "the even numbers",
                )?;
                width / 2
            }
            FeatureKind::Polar { delta, .. } => {
                if let Some(delta) = delta {
                    expect_len("delta", delta.len(), shape.heads * width)?;
                }
                width
            }
        };
        expect_len("angles' frequencies", self.angles.frequencies.len(), frequencies)?;
        let covered = self.angles.positions();
        for (what, positions) in [("queries' positions", queries), ("keys' positions", keys)] {
            let inside = frequencies == 0
                || positions.is_empty()
                || covered.start <= positions.start && positions.end <= covered.end;
            expect_range(what, positions, inside, "the positions of the angle table")?;
        }
        Ok(())
    }
}
