//! `whatwhere translate`: standard input to standard output, one line each.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use whatwhere_training::Translation;

use crate::{failure::Ended, say::say, verb::weights::Computed};

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
    #[arg(long, default_value_t = 0.6, allow_negative_numbers = true)]
    length_penalty: f32,
    /// The language of the lines, for imported models of several: en, or its token, such as eng_Latn.
    #[arg(long, value_name = "LANGUAGE")]
    from_language: Option<String>,
    /// The language to translate to, as above; without it, what the model's files say.
    #[arg(long, value_name = "LANGUAGE")]
    to_language: Option<String>,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object for each line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Translate) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let translation = Translation {
        beam: args.beam,
        length_penalty: args.length_penalty,
        from_language: args.from_language.clone(),
        to_language: args.to_language.clone(),
        ..Translation::default()
    };
    // At a terminal each line is answered as it comes.
    let together = if io::stdin().is_terminal() { 1 } else { TOGETHER };
    let mut input = io::stdin().lock().split(b'\n');
    let (mut first, mut failed) = (1, 0);
    loop {
        let bytes: Vec<Vec<u8>> = input
            .by_ref()
            .take(together)
            .collect::<Result<_, _>>()
            .context("standard input could not be read")?;
        if bytes.is_empty() {
            break;
        }
        let lines: Vec<Result<String, _>> = bytes.into_iter().map(String::from_utf8).collect();
        let sources: Vec<&str> = lines
            .iter()
            .map(|line| line.as_deref().unwrap_or_default())
            .map(|line| line.strip_suffix('\r').unwrap_or(line))
            .collect();
        let targets = run.translate_each(&sources, &translation)?;
        let mut out = io::stdout().lock();
        for (i, (line, target)) in lines.iter().zip(targets).enumerate() {
            let target = match line {
                Ok(_) => target.map_err(|error| error.to_string()),
                Err(_) => Err("is not UTF-8 text".into()),
            };
            if let Err(error) = &target {
                failed += 1;
                say!("line {}: {error}", first + i);
            }
            // A line that failed is an empty one: outputs stay beside their inputs.
            match args.json {
                false => writeln!(out, "{}", target.unwrap_or_default())?,
                true => writeln!(out, "{}", object(sources[i], &target))?,
            }
        }
        out.flush()?;
        first += lines.len();
    }
    if failed > 0 {
        say!("error: {failed} of {} lines could not be translated", first - 1);
        return Err(Ended::FAILED.into());
    }
    Ok(())
}

fn object(source: &str, target: &Result<String, String>) -> serde_json::Value {
    match target {
        Ok(target) => json!({ "source": source, "target": target }),
        Err(error) => json!({ "source": source, "target": null, "error": error }),
    }
}
