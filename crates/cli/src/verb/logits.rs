//! `whatwhere logits`: token ids in, logits out, for programs.

use std::{
    io::{self, BufRead, BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use crate::verb::weights::Computed;

/// Whose logits.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Reads one sequence of ids from each line of standard input, `1 2 3`, for an encoder-decoder
`source ids|target ids`; prints the logits at every position as one line each. Blank lines may stand at the
end, and nowhere else.")]
pub(crate) struct Logits {
    /// The run folder, trained or imported.
    run: PathBuf,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object for each sequence: {"logits": [[…], …]}.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Logits) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let mut out = BufWriter::new(io::stdout());
    let mut blank = None;
    for (index, line) in io::stdin().lock().lines().enumerate() {
        let line = line.with_context(|| format!("line {}", index + 1))?;
        if line.trim().is_empty() {
            blank = blank.or(Some(index + 1));
            continue;
        }
        // An answer left out would move all that follow it.
        if let Some(blank) = blank {
            bail!("line {blank}: found no ids, expected at least 1, as lines follow");
        }
        let answer = || -> anyhow::Result<_> {
            let (source, ids) = match line.split_once('|') {
                None => (None, ids(&line)?),
                Some((source, target)) => (Some([ids(source)?]), ids(target)?),
            };
            Ok(run.logits(source.as_ref().map(|s| &s[..]), &[ids])?)
        };
        let (logits, [_, _, vocabulary]) =
            answer().with_context(|| format!("line {}", index + 1))?;
        let rows: Vec<&[f32]> = logits.chunks(vocabulary).collect();
        if args.json {
            writeln!(out, "{}", json!({ "logits": rows }))?;
        } else {
            for row in rows {
                let row: Vec<String> = row.iter().map(f32::to_string).collect();
                writeln!(out, "{}", row.join("\t"))?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

/// The ids of one sequence, with blanks between them.
fn ids(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for word in text.split_whitespace() {
        match word.parse() {
            Ok(id) => ids.push(id),
            Err(_) => bail!("found {word:?}, expected token ids such as 1 2 3"),
        }
    }
    Ok(ids)
}
