//! `whatwhere extrapolate`: trained runs at lengths nobody trained.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use whatwhere_data::Source;
use whatwhere_lab::{
    extrapolate::{AtLength, Lengths, Unit, corpus_of},
    report::{self, Read},
};
use whatwhere_training::{Folder, Run};

use crate::{failure::Ended, say::say, verb};

/// What to try.
#[derive(Args, Clone, Debug)]
pub(crate) struct Extrapolate {
    /// Run folders.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Tokens of a window, of the longer side of pairs, or the task's own length; default 1, 2, 4, 8 and 16 times the first
    /// run's trained length, powers of two for pairs, 1, 2 and 4 times a task's longest.
    #[arg(long, value_delimiter = ',')]
    lengths: Vec<usize>,
    /// Other text than what the runs held out: a file or folder.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Tokens read at each length.
    #[arg(long, default_value_t = 65_536)]
    tokens: usize,
    /// Leave out the scalings of rotary.
    #[arg(long)]
    plain: bool,
    /// Also write a page with charts to this file.
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    /// Print one JSON object per run and length.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Extrapolate) -> anyhow::Result<()> {
    if let Some(0) = args.lengths.iter().min() {
        anyhow::bail!("--lengths 0: expected at least 1");
    }
    if args.tokens == 0 {
        anyhow::bail!("--tokens 0: nothing would be read; expected at least 1");
    }
    for path in &args.runs {
        if let Source::Labeled(_) = Folder::new(path).load_settings()?.data.source {
            anyhow::bail!(
                "{}: texts with labels have the lengths they have; whatwhere evaluate --set training.length=N reads more of each",
                path.display()
            );
        }
    }
    let mut out = io::stdout();
    let mut found: Vec<Read> = Vec::new();
    if !args.json {
        writeln!(out, "run\tscaling\tlength\tloss\tbits per byte\taccuracy")?;
    }
    for path in &args.runs {
        let folder = Folder::new(path);
        let run = Run::open(path)?;
        let trained = run.settings.training.length;
        let (corpus, split) = corpus_of(&folder, args.data.as_deref())?;
        corpus.describe().notes.iter().for_each(|said| say!("{said}"));
        let unit = Unit::of(&corpus, split);
        let lengths = match (args.lengths.is_empty(), unit) {
            (true, Unit::Window) => {
                let first = found.first().map(|run| run.settings.training.length);
                Lengths::multiples(first.unwrap_or(trained))
            }
            (true, _) => Lengths::worth_trying(&run, &corpus, split),
            (false, _) => args.lengths.clone(),
        };
        if unit != Unit::Window {
            let counted = unit.name().replace("token", run.settings.data.source.unit());
            say!("{}: lengths are {counted}", path.display());
        }
        let lengths = Lengths { lengths, tokens: args.tokens, scalings: !args.plain };
        let name = path.display().to_string();
        let mut failed = Ok(());
        let all = lengths.measure(&run, &corpus, split, |at| {
            let written = print(&name, at, args.json, &mut out);
            if written.is_err() && failed.is_ok() {
                failed = written;
            }
        })?;
        failed?;
        found.push(Read { name, settings: run.settings.clone(), unit, lengths: all });
    }
    if let Some(page) = &args.page {
        report::save_lengths(&found, &verb::command_line(), page)?;
        say!("page: {}", page.display());
    }
    // The table has the reasons.
    match found.iter().flat_map(|run| &run.lengths).any(|at| at.figures.is_some()) {
        true => Ok(()),
        false => Err(Ended::FAILED.into()),
    }
}

fn print(run: &str, at: &AtLength, json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        let mut object = json!({ "run": run });
        if let (Some(object), Ok(serde_json::Value::Object(fields))) =
            (object.as_object_mut(), serde_json::to_value(at))
        {
            object.extend(fields);
        }
        return writeln!(out, "{object}");
    }
    let scaling = at.scaling.as_deref().unwrap_or("–");
    match (&at.figures, &at.missing) {
        (Some(figures), _) => {
            let whole = &figures.whole;
            let bits = whole.bits_per_byte.map_or("–".into(), |bits| format!("{bits:.4}"));
            writeln!(
                out,
                "{run}\t{scaling}\t{}\t{:.4}\t{bits}\t{:.4}",
                at.length, whole.loss, whole.accuracy
            )
        }
        (None, missing) => {
            let reason = missing.as_deref().unwrap_or("nothing was measured");
            writeln!(out, "{run}\t{scaling}\t{}\t–\t–\t–\t{reason}", at.length)
        }
    }
}
