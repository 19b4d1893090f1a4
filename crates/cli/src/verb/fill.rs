//! `whatwhere fill`: words for blanks, with their probabilities.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use whatwhere_training::Run;

/// What to fill.
#[derive(Args, Clone, Debug)]
pub(crate) struct Fill {
    /// The run folder of an encoder.
    run: PathBuf,
    /// A text with one or more `[MASK]`.
    text: String,
    /// Answers for each blank.
    #[arg(long, default_value_t = 5)]
    top: usize,
    /// Print one JSON list of answers for each blank.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Fill) -> anyhow::Result<()> {
    let run = Run::open(&args.run)?;
    let mut out = io::stdout();
    for (blank, answers) in run.fill(&args.text, args.top)?.iter().enumerate() {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(answers)?)?;
            continue;
        }
        for answer in answers {
            writeln!(out, "{}\t{:.4}\t{}", blank + 1, answer.probability, answer.text)?;
        }
    }
    Ok(())
}
