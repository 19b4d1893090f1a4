//! A search for the settings at which each cell does best, so that none loses for want of a learning rate.
//!
//! Successive halving (Jamieson & Talwalkar 2016, <https://arxiv.org/abs/1502.07943>): all samples get a short run, the
//! best third a run three times as long, and so on until the last, of full length, leaves one. Every cell gets the same
//! samples. No run is shorter than a ninth: what wins sooner learns fast at the start, at rates too high for the end.

use std::fmt;

use whatwhere_random::Random;
use whatwhere_training::{RunSettings, interrupt::Interrupt};

use crate::{
    Error,
    budget::Budget,
    compare::{Comparison, Corpora, Observer},
    grid::{Axis, Cell},
    measure::Measure,
    results::Results,
};

/// What is sampled, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    samples: usize,
    ranges: Vec<Range>,
}

/// Values of one setting.
#[derive(Clone, Debug, PartialEq)]
enum Range {
    /// Evenly in the logarithm; whole numbers where both ends are.
    Between { key: String, low: f64, high: f64, whole: bool },
    /// One of a list.
    OneOf(Axis),
}

/// Of so many samples one goes on, with so many times the updates.
const THIN: usize = 3;
/// Of a full run, the shortest has one of so many parts, and never fewer updates than `FEWEST` (LOG.md has what shorter
/// ones chose).
const SHORTEST: u64 = 9;
/// Updates of the shortest run: fewer say little.
const FEWEST: u64 = 20;
/// Factor to either side of the learning rate, where no range is given.
const AROUND: f64 = 8.0;
const AROUND_KEY: &str = "training.lr";

impl Search {
    /// Reads ranges `key=low..high` or `key=value,value`; the learning rate around its setting if there is none.
    pub fn parse(samples: usize, ranges: &[String]) -> Result<Self, Error> {
        if samples < 2 {
            return Err(Error::Request(format!("--search {samples}: expected at least 2 samples")));
        }
        let ranges = ranges.iter().map(|text| Range::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { samples, ranges })
    }

    /// Searches for each cell, then compares all at their best.
    pub fn run(
        &self,
        comparison: &Comparison,
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Option<Results>, Error> {
        let mut cells = comparison.cells()?;
        self.check(&cells, &comparison.axes)?;
        let mut tuned = Comparison { search: Some(self.clone()), ..comparison.clone() };
        for cell in &mut cells {
            let Some(best) = self.best(comparison, cell, corpora, interrupt, observer)? else {
                return Ok(None);
            };
            let Some(best) = best else { continue };
            if tuned.baseline.as_ref() == Some(&cell.name) {
                tuned.baseline = Some(format!("{} ({})", cell.name, best.name));
            }
            cell.name = format!("{} ({})", cell.name, best.name);
            cell.settings = best.settings;
        }
        tuned.run_cells(&cells, corpora, interrupt, observer)
    }

    /// Refuses samples of which none can be trained, or which cannot be ranked, before anything trains.
    pub fn check(&self, cells: &[Cell], axes: &[Axis]) -> Result<(), Error> {
        self.check_ranges(axes)?;
        for cell in cells {
            let Ok(settings) = &cell.settings else { continue };
            let samples = self.samples(settings)?;
            let reasons = || samples[1..].iter().map(|sample| sample.settings.as_ref().err());
            if let (true, Some(reason)) =
                (reasons().all(|e| e.is_some()), reasons().flatten().next())
            {
                return Err(Error::Request(format!(
                    "--search: every sample of {} is refused, the first because {reason}",
                    cell.name
                )));
            }
            if let Err(reason) = Measure::of_cells(&samples) {
                return Err(Error::Request(format!("--range: samples cannot be ranked: {reason}")));
            }
        }
        Ok(())
    }

    /// Refuses to sample what makes cells differ, what rounds decide, and luck.
    fn check_ranges(&self, axes: &[Axis]) -> Result<(), Error> {
        let keys: Vec<&str> = match self.ranges.is_empty() {
            true => vec![AROUND_KEY],
            false => self.ranges.iter().map(Range::key).collect(),
        };
        let within = |inner: &str, outer: &str| {
            inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
        };
        for (at, key) in keys.iter().enumerate() {
            let reason = if axes.iter().any(|axis| within(key, &axis.key) || within(&axis.key, key))
            {
                "cells differ in it by --over, and a sample would take its place"
            } else if keys[..at].contains(key) {
                "stands twice"
            } else if *key == "training.steps" {
                "the rounds of a search have updates of their own"
            } else if *key == "seed" {
                "the seed with the lowest loss is luck; --seeds N has several runs"
            } else {
                continue;
            };
            let hint = match self.ranges.is_empty() {
                true => "; name what to sample with --range",
                false => "",
            };
            return Err(Error::Request(format!("--search samples {key}: {reason}{hint}")));
        }
        Ok(())
    }

    /// The best sample of a cell: nothing inside if none could be trained, nothing at all if interrupted.
    fn best(
        &self,
        comparison: &Comparison,
        cell: &Cell,
        corpora: &mut Corpora,
        interrupt: &Interrupt,
        observer: &mut dyn Observer,
    ) -> Result<Option<Option<Cell>>, Error> {
        let Ok(settings) = &cell.settings else { return Ok(Some(None)) };
        let corpus = corpora.of(settings, interrupt)?;
        let full = comparison.steps(cell, settings, &corpus)?;
        let mut samples = self.samples(settings)?;
        let rounds = (samples.len() as f64).log(THIN as f64).ceil() as u32;
        let mut before = 0;
        for round in 0..rounds {
            let steps = updates(full, rounds - 1 - round);
            if steps == std::mem::replace(&mut before, steps) {
                // The same runs again: they are in the order of the last round already.
                samples.truncate(samples.len().div_ceil(THIN));
                continue;
            }
            let runs = Comparison {
                seeds: 1,
                budget: Some(Budget::Steps(steps)),
                lengths: Some(Vec::new()),
                bleu: false,
                baseline: None,
                search: None,
                folder: comparison
                    .folder
                    .join("search")
                    .join(&cell.folder)
                    .join(format!("round-{}", round + 1)),
                ..comparison.clone()
            };
            // Only their ends are looked at.
            let mut short = samples.clone();
            for settings in short.iter_mut().filter_map(|sample| sample.settings.as_mut().ok()) {
                settings.training.evaluate_every = u64::MAX >> 1; // the largest that TOML can hold
            }
            let Some(results) = runs.run_cells(&short, corpora, interrupt, observer)? else {
                return Ok(None);
            };
            let keep = samples.len().div_ceil(THIN);
            let best: Vec<String> =
                results.ranking().into_iter().take(keep).map(|cell| cell.folder.clone()).collect();
            let place = |sample: &Cell| best.iter().position(|folder| *folder == sample.folder);
            samples.retain(|sample| place(sample).is_some());
            samples.sort_by_key(|sample| place(sample));
        }
        Ok(Some(samples.into_iter().next()))
    }

    /// The samples, the same for the same seed and ranges; the first is the settings as they are.
    fn samples(&self, settings: &RunSettings) -> Result<Vec<Cell>, Error> {
        let around = Range::Between {
            key: AROUND_KEY.into(),
            low: settings.training.lr / AROUND,
            high: settings.training.lr * AROUND,
            whole: false,
        };
        let ranges =
            if self.ranges.is_empty() { std::slice::from_ref(&around) } else { &self.ranges };
        let text = settings.to_toml()?;
        let mut samples = vec![Cell {
            name: "as set".into(),
            folder: "as-set".into(),
            values: Vec::new(),
            settings: Ok(settings.clone()),
        }];
        for sample in 1..self.samples {
            let changes: Vec<String> = ranges
                .iter()
                .enumerate()
                .map(|(at, range)| {
                    range.draw(&mut Random::new(&[settings.seed, sample as u64, at as u64]))
                })
                .collect();
            let names: Vec<String> = changes.iter().map(|change| said(change)).collect();
            samples.push(Cell {
                name: names.join(", "),
                folder: format!("sample-{sample}"),
                values: Vec::new(),
                settings: RunSettings::read(&text, &changes).map_err(|e| e.to_string()),
            });
        }
        Ok(samples)
    }
}

/// Updates of a round that so many follow, where a full run has `full`.
fn updates(full: u64, following: u32) -> u64 {
    (full / (THIN as u64).pow(following)).max(full / SHORTEST).max(FEWEST).min(full)
}

/// `training.lr=0.01` to `lr 0.01`.
fn said(change: &str) -> String {
    let (key, value) = change.split_once('=').unwrap_or((change, ""));
    format!("{} {value}", key.rsplit('.').next().unwrap_or(key))
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
        let around = format!("training.lr within a factor of {AROUND} of its setting");
        let ranges = if ranges.is_empty() { around } else { ranges.join(" and ") };
        write!(f, "{} samples of {ranges} for each cell, by successive halving", self.samples)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between { key, low, high, .. } => write!(f, "{key} from {low} to {high}"),
            Self::OneOf(Axis { key, values }) => write!(f, "{key} among {}", values.join(", ")),
        }
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, Error> {
        let Axis { key, values } = Axis::of_flag("--range", text)?;
        let Some((low, high)) = values.first().and_then(|value| value.split_once("..")) else {
            return Ok(Self::OneOf(Axis { key, values }));
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| *value > 0.0);
        match (number(low), number(high)) {
            (Some(least), Some(most)) if least < most => {
                let whole = [low, high].iter().all(|end| end.trim().parse::<u64>().is_ok());
                Ok(Self::Between { key, low: least, high: most, whole })
            }
            _ => Err(Error::Request(format!(
                "--range {text}: expected two numbers above 0, the lower first"
            ))),
        }
    }

    fn key(&self) -> &str {
        match self {
            Self::Between { key, .. } | Self::OneOf(Axis { key, .. }) => key,
        }
    }

    /// `key=value`.
    fn draw(&self, random: &mut Random) -> String {
        match self {
            Self::Between { key, low, high, whole } => {
                let share = random.below(1 << 20) as f64 / f64::from(1 << 20);
                let value = low * (high / low).powf(share);
                if *whole {
                    return format!("{key}={value:.0}");
                }
                // Three digits are what a person would write.
                let digits = 2 - value.log10().floor() as i32;
                let scale = 10_f64.powi(digits);
                format!("{key}={:?}", (value * scale).round() / scale)
            }
            Self::OneOf(Axis { key, values }) => {
                format!("{key}={}", values[random.below(values.len())])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_refused() {
        let parse = |text: &str| Search::parse(4, &[text.into()]).map_err(|e| e.to_string());
        assert!(parse("lr=1e-4..1e-2").is_ok());
        assert!(parse("width=64,128").is_ok());
        assert!(parse("lr=1e-2..1e-4").unwrap_err().contains("the lower first"));
        assert!(parse("lr=0..1").unwrap_err().contains("above 0"));
        assert!(Search::parse(1, &[]).is_err());
        assert!(parse("widht=64,128").unwrap_err().starts_with("--range widht=64,128: no setting"));
    }

    #[test]
    fn a_width_is_searched_and_samples_that_are_all_refused_are_an_error() {
        let cells = crate::grid::cells("", &[], &[]).unwrap();
        let search = |range: &str| Search::parse(6, &[range.into()]).unwrap();
        let widths = search("width=64,128").samples(&RunSettings::default()).unwrap();
        let widths = widths[1..].iter().map(|sample| sample.settings.as_ref().unwrap().model.width);
        assert!(widths.into_iter().all(|width| [64, 128].contains(&width)));
        assert!(search("layers=1..9").check(&cells, &[]).is_ok());

        let reason = search("heads=7,9").check(&cells, &[]).unwrap_err().to_string();
        assert!(reason.contains("every sample of the settings is refused"), "{reason}");
        assert!(reason.contains("does not divide width = 256"), "{reason}");
        let reason = search("data.valid_share=0.2,0.3").check(&cells, &[]).unwrap_err().to_string();
        assert!(reason.contains("samples cannot be ranked"), "{reason}");
    }

    #[test]
    fn what_cells_differ_in_is_not_sampled_nor_updates_nor_luck() {
        let axes = |text: &str| vec![Axis::parse(text).unwrap()];
        let refused = |ranges: &[&str], axes: &[Axis]| {
            let ranges: Vec<String> = ranges.iter().map(|&range| range.into()).collect();
            let cells = crate::grid::cells("", &[], axes).unwrap();
            Search::parse(4, &ranges).unwrap().check(&cells, axes).map_err(|e| e.to_string())
        };
        let lr = axes("lr=1e-3,1e-4");
        let reason = refused(&[], &lr).unwrap_err();
        assert!(
            reason.contains("training.lr: cells differ in it") && reason.contains("with --range"),
            "{reason}"
        );
        assert!(refused(&["width=64,128"], &lr).is_ok());
        let position = axes("position=rotary,alibi");
        for (range, axes, expected) in [
            ("lr=1e-4..1e-2", &lr, "cells differ in it"),
            ("position.base=100,1000", &position, "cells differ in it"),
            ("position=none,t5", &position, "cells differ in it"),
            ("steps=10..20", &position, "updates of their own"),
            ("seed=1,2,3", &position, "is luck"),
        ] {
            let reason = refused(&[range], axes).unwrap_err();
            assert!(reason.contains(expected), "{range}: {reason}");
        }
        let reason = refused(&["lr=1e-4..1e-2", "lr=1e-3..1e-2"], &position).unwrap_err();
        assert!(reason.contains("stands twice"), "{reason}");
    }

    #[test]
    fn rounds_end_at_full_length_and_none_is_shorter_than_a_ninth() {
        let rounds = |full: u64, rounds: u32| -> Vec<u64> {
            (0..rounds).rev().map(|following| updates(full, following)).collect()
        };
        assert_eq!(rounds(243, 3), [27, 81, 243]);
        assert_eq!(rounds(900, 5), [100, 100, 100, 300, 900]);
        assert_eq!(rounds(50, 3), [20, 20, 50]);
        assert_eq!(rounds(10, 2), [10, 10]);
    }

    #[test]
    fn samples_lie_in_their_range_and_repeat() {
        let search = Search::parse(50, &["lr=1e-4..1e-2".into()]).unwrap();
        let settings = RunSettings::default();
        let samples = search.samples(&settings).unwrap();
        assert_eq!(samples, search.samples(&settings).unwrap());
        let rates: Vec<f64> =
            samples[1..].iter().map(|s| s.settings.as_ref().unwrap().training.lr).collect();
        assert!(rates.iter().all(|lr| (0.99e-4..1.01e-2).contains(lr)));
        let low = rates.iter().filter(|lr| **lr < 1e-3).count();
        assert!((15..35).contains(&low), "half of {} below the middle, found {low}", rates.len());
    }
}
