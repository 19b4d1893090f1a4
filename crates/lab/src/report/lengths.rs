//! A page on trained runs at other lengths.

use std::path::Path;

use whatwhere_training::RunSettings;

use super::{curves, figure, write};
use crate::{
    Error,
    chart::{Axis, Lines, escape, page},
    extrapolate::{AtLength, Unit},
    results::{LengthResult, Measure},
    table::Table,
};

/// A run that was read at other lengths.
#[derive(Clone, Debug)]
pub struct Read {
    /// What it is called.
    pub name: String,
    /// As it was trained.
    pub settings: RunSettings,
    /// What a length counts.
    pub unit: Unit,
    /// What was found.
    pub lengths: Vec<AtLength>,
}

/// Writes a page on runs at other lengths: chart, figures, settings, and the command that asked.
pub fn save_lengths(runs: &[Read], command: &str, path: &Path) -> Result<(), Error> {
    // Other tokens of the same text are compared by its bytes.
    let tokenizer = |run: &Read| run.settings.data.tokenizer();
    let measure = match runs.windows(2).all(|pair| tokenizer(&pair[0]) == tokenizer(&pair[1])) {
        true => Measure::Loss,
        false => Measure::BitsPerByte,
    };
    let series = runs
        .iter()
        .flat_map(|run| curves::by_length(&run.name, &LengthResult::of(&[&run.lengths]), measure));
    let unit = runs.first().map_or(Unit::Window, |run| run.unit);
    let trained = runs.first().and_then(|run| match run.unit {
        Unit::Window | Unit::Piece => Some(run.settings.training.length),
        Unit::Pair => None,
        Unit::Example => run.settings.data.source.longest(),
    });
    let chart = Lines {
        title: "Loss against length, without training".into(),
        x: Axis::log(named(unit.name(), runs)),
        y: Axis::linear(format!("loss, {}", named(measure.unit(), runs))),
        series: series.collect(),
        marks: true,
        rule: trained.map(|trained| (trained as f64, "trained".to_owned())),
    };
    let title = "Lengths beyond the trained one";
    let svg = format!("{}{}", chart.svg(), chart.legend());
    let read = match unit {
        Unit::Window => "The same text, cut into longer windows.",
        Unit::Piece => "The same pieces, cut into longer parts.",
        Unit::Pair => "Pairs longer than those at the point before.",
        Unit::Example => "Examples of one length, made as those of the training were.",
    };
    let note = &format!("{read} Dashed: rotary scaled at evaluation.");
    let mut body = format!("<h1>{title}</h1>\n{}{}", figure(&svg, note), table(runs).html());
    body += &format!("<h3>How this was made</h3>\n<pre>{}</pre>\n", escape(command));
    for run in runs {
        body += &format!(
            "<details><summary>Settings of {}</summary><pre>{}</pre></details>\n",
            escape(&run.name),
            escape(&run.settings.to_toml()?)
        );
    }
    write(path, &page(title, &body))
}

/// Words on tokens by what the runs call them.
fn named(words: &str, runs: &[Read]) -> String {
    let unit = runs.first().map_or("token", |run| run.settings.data.source.unit());
    words.replace("token", unit)
}

fn table(runs: &[Read]) -> Table {
    let head =
        ["", "trained at", "scaling", "read at", "nats per token", "bits per byte", "accuracy"];
    let head = head.map(|words| named(words, runs)).into();
    let mut table = Table { head, ..Table::default() };
    for run in runs {
        for at in &run.lengths {
            let trained = match run.unit {
                Unit::Example => run.settings.data.source.longest().unwrap_or(0),
                _ => run.settings.training.length,
            };
            let mut row = vec![run.name.clone(), trained.to_string()];
            row.push(at.scaling.clone().unwrap_or_else(|| "–".into()));
            row.push(at.length.to_string());
            let whole = at.figures.as_ref().map(|figures| &figures.whole);
            for measure in [Measure::Loss, Measure::BitsPerByte, Measure::Accuracy] {
                let value = whole.and_then(|whole| measure.of(whole));
                row.push(value.map_or("–".into(), |value| format!("{value:.4}")));
            }
            table.rows.push(row);
            if let Some(reason) = &at.missing {
                table.notes.push(format!("{} at {}: {reason}.", run.name, at.length));
            }
        }
    }
    table
}
