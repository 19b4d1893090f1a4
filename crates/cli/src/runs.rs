//! Runs of a comparison by their numbers: all of them in a list, and what came of some.

use std::io::{self, Write};

use serde_json::json;
use whatwhere_lab::compare::{Numbered, Ran, State};

/// Prints all runs: their numbers first, for schedulers that hand them out.
pub(crate) fn list(runs: &[Numbered], json: bool) -> io::Result<()> {
    let mut out = io::stdout();
    if json {
        return writeln!(out, "{}", json!(runs));
    }
    writeln!(out, "run\tcell\tseed\tstate")?;
    for Numbered { run, cell, seed, state, .. } in runs {
        writeln!(out, "{run}\t{cell}\t{seed}\t{state}")?;
    }
    Ok(())
}

/// Prints what came of runs, a line each.
pub(crate) fn print(runs: &[Ran], json: bool) -> io::Result<()> {
    let mut out = io::stdout();
    if !json {
        writeln!(out, "run\tcell\tseed\tloss\taccuracy\ttokens/s")?;
    }
    for Ran { run, trained } in runs {
        let Numbered { run: number, cell, seed, folder, .. } = run;
        if json {
            let (trained, error) = (trained.as_ref().ok(), trained.as_ref().err());
            let quality = trained.map(|trained| &trained.quality);
            let speed = trained.map(|trained| trained.cost.tokens_per_second);
            let object = json!({
                "run": number, "cell": cell, "seed": seed, "folder": folder, "error": error,
                "quality": quality, "tokens_per_second": speed,
            });
            writeln!(out, "{object}")?;
        } else if let Ok(trained) = trained {
            let (quality, speed) = (&trained.quality, trained.cost.tokens_per_second);
            let (loss, accuracy) = (quality.loss, quality.accuracy);
            writeln!(out, "{number}\t{cell}\t{seed}\t{loss:.4}\t{accuracy:.3}\t{speed:.0}")?;
        } else {
            writeln!(out, "{number}\t{cell}\t{seed}\t–\t–\t–")?;
        }
    }
    Ok(())
}

/// Runs that are not finished, in words; nothing if all are.
pub(crate) fn missing(runs: &[Numbered]) -> Option<String> {
    let runs: Vec<String> = runs
        .iter()
        .map(|Numbered { run, cell, seed, state, .. }| match state {
            // There is an outcome, but not of what is asked for now.
            State::Finished => format!("{run} ({cell}, seed {seed}, measured otherwise)"),
            state => format!("{run} ({cell}, seed {seed}, {state})"),
        })
        .collect();
    (!runs.is_empty()).then(|| format!("missing: {}", runs.join(", ")))
}
