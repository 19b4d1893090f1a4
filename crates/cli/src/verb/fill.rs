//! `whatwhere fill`: words for masked tokens, with their probabilities.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;

use crate::verb::weights::Computed;

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
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON list of answers for each blank.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Fill) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let mut out = io::stdout();
    let filled = run.fill(&args.text, args.top)?;
    if args.json {
        for answers in &filled {
            writeln!(out, "{}", serde_json::to_string(answers)?)?;
        }
        return Ok(());
    }
    writeln!(out, "blank\tprobability\ttoken")?;
    for (blank, answers) in filled.iter().enumerate() {
        for answer in answers {
            // A token may be the end of a line.
            let text: String = answer.text.chars().map(escaped).collect();
            writeln!(out, "{}\t{:.4}\t{text}", blank + 1, answer.probability)?;
        }
    }
    Ok(())
}

/// A character that takes one column of one line.
fn escaped(character: char) -> String {
    match character {
        '\\' => "\\\\".into(),
        other if other.is_control() => other.escape_default().to_string(),
        other => other.into(),
    }
}
