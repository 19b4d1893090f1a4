//! The charts of a report: learning, lengths, positions, cost.

use crate::{
    chart::{Axis, Dot, Lines, Scatter, Series},
    compare::Trained,
    lengths,
    results::{CellResult, LengthResult, Measure, Results},
    statistics::{Summary, extent},
};

/// Losses further than this above the best are off the chart: a curve that explodes must not flatten all others.
const HEADROOM: f64 = 2.5;

/// A chart of a report.
pub(super) struct Chart {
    /// The name of its file.
    pub(super) name: &'static str,
    /// How to read it.
    pub(super) note: &'static str,
    /// The drawing.
    pub(super) svg: String,
    /// The names of its curves, as HTML.
    pub(super) legend: String,
}

/// Each chart that has something to show.
pub(super) fn all(results: &Results) -> Vec<Chart> {
    let lines =
        |name, note, lines: Lines| Chart { name, note, svg: lines.svg(), legend: lines.legend() };
    let mut charts = vec![lines(
        "learning",
        "Validation while training; the mean over seeds, and the lowest and highest seed as a band.",
        learning(results),
    )];
    if results.cells.iter().any(|cell| cell.lengths.len() > 1) {
        charts.push(lines(
            "lengths",
            "The same held-out text, cut into longer windows; nothing is trained beyond the marked length. Dashed: rotary \
             scaled at evaluation. Losses far above the best leave the chart.",
            at_lengths(results),
        ));
        charts.push(lines(
            "positions",
            "In the longest windows: the mean loss of the positions up to each point. A model that uses a longer context falls; \
             one that loses its way rises.",
            positions(results),
        ));
    }
    if results.cells.iter().flat_map(CellResult::runs).any(|run| run.bleu_by_words.len() > 1) {
        charts.push(lines(
            "sentences",
            "Translations of the held-out sentences, a quarter of them at each point, by the words of the source; the mean over \
             seeds, and the lowest and highest seed as a band.",
            by_words(results),
        ));
    }
    charts.push(Chart {
        name: "cost",
        note: "Each dot is a cell; its line is the 95 % confidence interval over seeds.",
        svg: cost(results),
        legend: String::new(),
    });
    charts
}

fn learning(results: &Results) -> Lines {
    let value = |run: &Trained, at: usize| {
        let point = run.curve.get(at)?;
        match results.measure {
            Measure::Loss => Some(point.loss),
            Measure::BitsPerByte => point.bits_per_byte,
            Measure::Accuracy | Measure::ClassAccuracy => Some(point.accuracy),
        }
    };
    let series = trained(results).map(|cell| {
        let runs = cell.runs();
        let steps = runs.first().map_or(&[][..], |run| &run.curve);
        let (mut points, mut band) = (Vec::new(), Vec::new());
        for (at, point) in steps.iter().enumerate() {
            let values: Vec<f64> = runs.iter().filter_map(|run| value(run, at)).collect();
            let Some(summary) = Summary::of(&values) else { continue };
            points.push((point.step as f64, summary.mean));
            band.push(summary.extent);
        }
        let band = (runs.len() > 1).then_some(band);
        Series { name: cell.name.clone(), points, band, dashed: false }
    });
    let y = match results.measure {
        Measure::Accuracy => Axis::linear("share of answers right").with_range(0.0, 1.0),
        // Classes may differ by little, and begin far above 0.
        Measure::ClassAccuracy => Axis::linear("share of texts right"),
        measure => Axis::linear(format!("validation loss, {}", unit(results, measure))),
    };
    Lines {
        title: "Learning curves".into(),
        x: Axis::linear("updates"),
        y,
        series: series.collect(),
        marks: false,
        rule: None,
    }
}

fn at_lengths(results: &Results) -> Lines {
    let mut series: Vec<Series> = trained(results)
        .flat_map(|cell| by_length(&cell.name, &cell.lengths, results.measure))
        .collect();
    // Scaled ones last, so that a cell has the same color in every chart.
    series.sort_by_key(|series| series.dashed);
    let first = results.cells.iter().flat_map(CellResult::runs).next();
    Lines {
        title: "Loss against length".into(),
        x: Axis::log(format!("{}s of a window", results.unit)),
        y: within_sight(Axis::linear(loss_label(results)), &series),
        series,
        marks: true,
        rule: first.map(|run| (run.length as f64, "trained".into())),
    }
}

/// One curve as trained, and one for each scaling, with all seeds as a band.
pub(super) fn by_length(name: &str, found: &[LengthResult], measure: Measure) -> Vec<Series> {
    let series = |curve: lengths::LengthCurve| {
        let measured = |at: &&LengthResult| Some((at.length as f64, at.measured(measure)?));
        let points: Vec<(f64, Summary)> = curve.points.iter().filter_map(measured).collect();
        let has_seeds = points.iter().any(|(_, summary)| summary.count > 1);
        Series {
            name: curve.scaling.map_or(name.to_owned(), |scaling| format!("{name}, {scaling}")),
            points: points.iter().map(|(length, summary)| (*length, summary.mean)).collect(),
            band: has_seeds.then(|| points.iter().map(|(_, summary)| summary.extent).collect()),
            dashed: curve.scaling.is_some(),
        }
    };
    lengths::curves(found).into_iter().map(series).collect()
}

fn by_words(results: &Results) -> Lines {
    let series = trained(results).map(|cell| {
        let runs = cell.runs();
        let parts = runs.first().map_or(&[][..], |run| &run.bleu_by_words);
        let (mut points, mut band) = (Vec::new(), Vec::new());
        for (at, part) in parts.iter().enumerate() {
            let values = runs.iter().filter_map(|run| Some(run.bleu_by_words.get(at)?.bleu));
            let Some(summary) = Summary::of(&values.collect::<Vec<_>>()) else { continue };
            points.push((part.words, summary.mean));
            band.push(summary.extent);
        }
        let band = (runs.len() > 1).then_some(band);
        Series { name: cell.name.clone(), points, band, dashed: false }
    });
    Lines {
        title: "BLEU against the length of a sentence".into(),
        x: Axis::linear("words of the source"),
        y: Axis::linear("BLEU"),
        series: series.collect(),
        marks: true,
        rule: None,
    }
}

fn positions(results: &Results) -> Lines {
    let series: Vec<Series> = trained(results)
        .filter_map(|cell| {
            let run = cell.runs().first()?;
            let plain = run.lengths.iter().filter(|at| at.scaling.is_none());
            let longest = plain.filter_map(|at| at.figures.as_ref()).next_back()?;
            // Positions have nats per token; bits per byte of them are in the same proportion as of the whole.
            let scale = results.measure.at_lengths().of(&longest.whole)? / longest.whole.loss;
            let points = longest.positions.iter();
            let points = points.map(|(position, loss)| (*position as f64, *loss * scale)).collect();
            Some(Series { name: cell.name.clone(), points, band: None, dashed: false })
        })
        .collect();
    let first = results.cells.iter().flat_map(CellResult::runs).next();
    Lines {
        title: "Loss by position in the longest windows".into(),
        x: Axis::log("position in the window"),
        y: within_sight(Axis::linear(loss_label(results)), &series),
        series,
        marks: true,
        rule: first.map(|run| (run.length as f64, "trained".into())),
    }
}

fn cost(results: &Results) -> String {
    let points = trained(results).filter_map(|cell| {
        let measured = cell.measured(results.measure)?;
        let x = cell.tokens_per_second?.mean;
        Some(Dot { name: cell.name.clone(), x, y: measured.mean, spread: measured.interval() })
    });
    let y = match results.measure {
        Measure::Accuracy => "share of answers right".into(),
        Measure::ClassAccuracy => "share of texts right".into(),
        measure => format!("loss at the trained length, {}", unit(results, measure)),
    };
    Scatter {
        title: "Cost and quality".into(),
        x: Axis::linear("tokens per second in training"),
        y: Axis::linear(y),
        points: points.collect(),
    }
    .svg()
}

fn loss_label(results: &Results) -> String {
    format!("loss, {}", unit(results, results.measure.at_lengths()))
}

/// The unit of an axis, with a warning where curves must not be held against each other.
fn unit(results: &Results, measure: Measure) -> String {
    let warning = if results.not_ranked.is_some() { " (not comparable)" } else { "" };
    format!("{}{warning}", results.unit(measure))
}

fn trained(results: &Results) -> impl Iterator<Item = &CellResult> {
    results.cells.iter().filter(|cell| !cell.runs().is_empty())
}

/// An axis that ends some way above the best point, if anything lies beyond.
fn within_sight(axis: Axis, series: &[Series]) -> Axis {
    let values: Vec<f64> =
        series.iter().flat_map(|series| &series.points).map(|point| point.1).collect();
    let (low, high) = extent(&values);
    match high > low + HEADROOM {
        true => axis.with_range(low - 0.05 * HEADROOM, low + HEADROOM),
        false => axis,
    }
}
