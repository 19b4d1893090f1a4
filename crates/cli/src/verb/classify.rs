//! `whatwhere classify`: the class of each text, with probabilities.

use std::{
    io::{self, BufRead, BufWriter, IsTerminal, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use whatwhere_training::{Classified, Input, Run};

use crate::{say::say, verb::weights::Computed};

/// What to classify.
#[derive(Args, Clone, Debug)]
pub(crate) struct Classify {
    /// The run folder of a model that was trained with the objective classify.
    run: PathBuf,
    /// Texts; of a pair both, with a tab between them. Default the lines of standard input; a blank one is answered by one.
    texts: Vec<String>,
    /// How many classes to print for each text, the likeliest first.
    #[arg(long, default_value_t = 1)]
    top: usize,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object for each text: {"label": …, "probability": …, "probabilities": {…}, "cut": …}.
    #[arg(long)]
    json: bool,
}

/// Lines of standard input that are read before they are answered: enough to fill a batch.
const TOGETHER: usize = 256;

pub(crate) fn run(args: &Classify) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let mut asked = Asked { classes: run.classes()?, args, texts: 0, cut: 0 };
    if !args.texts.is_empty() {
        asked.answer(&run, &args.texts)?;
    } else {
        // Who types waits for each answer.
        let together = if io::stdin().is_terminal() { 1 } else { TOGETHER };
        let mut lines = Vec::new();
        let mut input = io::stdin().lock();
        let mut line = String::new();
        while input.read_line(&mut line)? > 0 {
            lines.push(line.trim_end_matches(['\n', '\r']).to_owned());
            line.clear();
            if lines.len() == together {
                asked.answer(&run, &std::mem::take(&mut lines))?;
            }
        }
        asked.answer(&run, &lines)?;
    }
    if asked.cut > 0 {
        let (cut, texts, length) = (asked.cut, asked.texts, run.settings.row_length());
        say!(
            "warning: {cut} of {texts} texts have more than {length} tokens, as long as the run was trained with; what follows was not read"
        );
    }
    Ok(())
}

struct Asked<'a> {
    classes: Vec<String>,
    args: &'a Classify,
    texts: usize,
    cut: usize,
}

impl Asked<'_> {
    /// Answers some texts, a line for each.
    fn answer(&mut self, run: &Run, texts: &[String]) -> anyhow::Result<()> {
        let has_pairs = run.reads_pairs();
        let is_blank = |text: &&String| text.trim().is_empty();
        let inputs: Result<Vec<Input>, String> = texts
            .iter()
            .enumerate()
            .filter(|(_, text)| !is_blank(text))
            .map(|(index, text)| input(text, has_pairs, self.texts + index + 1))
            .collect();
        let found = run.classify(&inputs.map_err(anyhow::Error::msg)?)?;
        let mut found = found.iter();
        let mut out = BufWriter::new(io::stdout().lock());
        for text in texts {
            let answer = if is_blank(&text) { None } else { found.next() };
            match answer {
                Some(classified) => {
                    self.cut += usize::from(classified.is_cut);
                    self.print(classified, &mut out)?;
                }
                None if self.args.json => writeln!(out, "null")?,
                None => writeln!(out)?,
            }
        }
        self.texts += texts.len();
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

/// A line as a text, or as a pair.
fn input(text: &str, has_pairs: bool, number: usize) -> Result<Input, String> {
    match (text.split_once('\t'), has_pairs) {
        (_, false) => Ok(text.into()),
        (Some((first, second)), true) => {
            Ok(Input { text: first.into(), second: Some(second.into()) })
        }
        (None, true) => Err(format!(
            "text {number} has no tab; the run reads pairs, expected a tab between both"
        )),
    }
}
