//! `whatwhere classify`: the class of each text, with probabilities.

use std::{
    io::{self, BufRead, BufWriter, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use whatwhere_training::{Classified, Input, Run};

use crate::{failure::Ended, say::say, verb::weights::Computed};

/// What to classify.
#[derive(Args, Clone, Debug)]
pub(crate) struct Classify {
    /// The run folder of a model that was trained with the objective classify.
    run: PathBuf,
    /// Texts; of a pair both, with a tab between them. Default the lines of standard input; a blank one is answered by one, and
    /// so is a line that cannot be read, which is named.
    texts: Vec<String>,
    /// How many classes to print for each text, the likeliest first.
    #[arg(long, default_value_t = 1)]
    top: usize,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object for each text: {"label": …, "probability": …, "probabilities": {…}, "cut": …}; {"error": …} for
    /// one that cannot be read, null for a blank one.
    #[arg(long)]
    json: bool,
}

/// Lines of standard input that are read before they are answered: enough to fill a batch.
const TOGETHER: usize = 256;

pub(crate) fn run(args: &Classify) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let mut asked = Asked { classes: run.classes()?, args, texts: 0, cut: 0, failed: 0 };
    if !args.texts.is_empty() {
        let texts: Vec<Vec<u8>> = args.texts.iter().map(|text| text.clone().into()).collect();
        // What is asked in one go is answered whole or not at all.
        for (index, text) in texts.iter().enumerate() {
            if let Some(Err(reason)) = input(text.clone(), run.reads_pairs()) {
                anyhow::bail!("text {}: {reason}", index + 1);
            }
        }
        asked.answer(&run, texts)?;
    } else {
        // Who types waits for each answer.
        let together = if io::stdin().is_terminal() { 1 } else { TOGETHER };
        let mut input = io::stdin().lock().split(b'\n');
        loop {
            let lines: Vec<Vec<u8>> = input
                .by_ref()
                .take(together)
                .collect::<Result<_, _>>()
                .context("standard input could not be read")?;
            if lines.is_empty() {
                break;
            }
            asked.answer(&run, lines)?;
        }
    }
    let (cut, texts, length) = (asked.cut, asked.texts, run.settings.row_length());
    if cut > 0 {
        say!(
            "warning: {cut} of {texts} texts have more than {length} tokens, as long as the run was trained with; what follows was not read"
        );
    }
    match asked.failed {
        0 => Ok(()),
        failed => {
            say!("error: {failed} of {texts} texts could not be told");
            Err(Ended::FAILED.into())
        }
    }
}

struct Asked<'a> {
    classes: Vec<String>,
    args: &'a Classify,
    texts: usize,
    cut: usize,
    failed: usize,
}

impl Asked<'_> {
    /// Answers some texts, a line for each.
    fn answer(&mut self, run: &Run, texts: Vec<Vec<u8>>) -> anyhow::Result<()> {
        let has_pairs = run.reads_pairs();
        let read: Vec<Option<Result<Input, String>>> =
            texts.into_iter().map(|text| input(text, has_pairs)).collect();
        let inputs: Vec<Input> = read.iter().flatten().flatten().cloned().collect();
        let mut told = run.classify_each(&inputs)?.into_iter();
        let mut out = BufWriter::new(io::stdout().lock());
        for read in read {
            self.texts += 1;
            let answer = read.and_then(|input| match input {
                Ok(_) => told.next().map(|told| told.map_err(|error| error.to_string())),
                Err(reason) => Some(Err(reason)),
            });
            match answer {
                Some(Ok(classified)) => {
                    self.cut += usize::from(classified.is_cut);
                    self.print(&classified, &mut out)?;
                }
                Some(Err(reason)) => {
                    self.failed += 1;
                    say!("text {}: {reason}", self.texts);
                    // Answers stay beside their texts.
                    match self.args.json {
                        true => writeln!(out, "{}", json!({ "error": reason }))?,
                        false => writeln!(out)?,
                    }
                }
                None if self.args.json => writeln!(out, "null")?,
                None => writeln!(out)?,
            }
        }
        Ok(out.flush()?)
    }

    fn print(&self, classified: &Classified, out: &mut dyn Write) -> anyhow::Result<()> {
        let Classified { label, probability, probabilities, is_cut } = classified;
        let each = || self.classes.iter().zip(probabilities);
        if self.args.json {
            let each: serde_json::Map<String, serde_json::Value> =
                each().map(|(class, share)| (class.clone(), json!(share))).collect();
            let object = json!({
                "label": label, "probability": probability, "probabilities": each, "cut": is_cut,
            });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        let mut best: Vec<(&String, &f64)> = each().collect();
        best.sort_by(|a, b| b.1.total_cmp(a.1));
        let shown: Vec<String> = best
            .into_iter()
            .take(self.args.top.max(1))
            .map(|(class, share)| format!("{class}\t{share:.4}"))
            .collect();
        writeln!(out, "{}", shown.join("\t"))?;
        Ok(())
    }
}

/// A line as a text, or as a pair; nothing if it is blank.
fn input(line: Vec<u8>, has_pairs: bool) -> Option<Result<Input, String>> {
    let Ok(text) = String::from_utf8(line) else { return Some(Err("is not UTF-8 text".into())) };
    let text = text.strip_suffix('\r').unwrap_or(&text);
    if text.trim().is_empty() {
        return None;
    }
    Some(match (text.split_once('\t'), has_pairs) {
        (_, false) => Ok(text.into()),
        (Some((first, second)), true) => {
            Ok(Input { text: first.into(), second: Some(second.into()) })
        }
        (None, true) => Err("has no tab; the run reads pairs, expected a tab between both".into()),
    })
}
