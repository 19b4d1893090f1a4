//! `whatwhere translate`: standard input to standard output, one line each.

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use whatwhere_training::{Run, Translation};

/// Lines read before any is written, so that sentences of like length go together.
const TOGETHER: usize = 256;

/// How to search.
#[derive(Args, Clone, Debug)]
pub(crate) struct Translate {
    /// The run folder of an encoder-decoder.
    run: PathBuf,
    /// Beginnings kept side by side; 1 is greedy.
    #[arg(long, default_value_t = 4)]
    beam: usize,
    /// α of the length penalty; 0 favours short translations.
    #[arg(long, default_value_t = 0.6)]
    length_penalty: f32,
    /// Print one JSON object for each line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Translate) -> anyhow::Result<()> {
    let run = Run::open(&args.run)?;
    let translation = Translation {
        beam: args.beam,
        length_penalty: args.length_penalty,
        ..Translation::default()
    };
    let mut lines = io::stdin().lock().lines();
    let mut out = io::stdout();
    loop {
        let batch: Vec<String> = lines
            .by_ref()
            .take(TOGETHER)
            .collect::<Result<_, _>>()
            .context("standard input is not UTF-8 text")?;
        if batch.is_empty() {
            return Ok(());
        }
        for (source, target) in batch.iter().zip(run.translate(&batch, &translation)?) {
            match args.json {
                false => writeln!(out, "{target}")?,
                true => writeln!(out, "{}", json!({ "source": source, "target": target }))?,
            }
        }
        out.flush()?;
    }
}
