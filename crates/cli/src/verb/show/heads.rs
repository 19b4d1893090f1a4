//! `whatwhere show heads`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use whatwhere_lab::{
    heads::{self, HeadsReport, ablation},
    show::{self, Page, Reading},
};
use whatwhere_training::{Folder, Run, interrupt::Interrupt};

use super::{Output, given};
use crate::{progress::Preparing, say::say};

/// A run, a text, and on what the loss without heads is measured.
#[derive(Args, Clone, Debug)]
pub(super) struct Measuring {
    /// The run folder.
    run: PathBuf,
    /// The text; `-` reads it from standard input; the beginning of what the run held out unless given.
    #[arg(long, conflicts_with = "file")]
    text: Option<String>,
    /// A file with the text.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The other side of a pair, for an encoder-decoder; its own translation unless given.
    #[arg(long)]
    target: Option<String>,
    /// Measure losses on so many batches of what the run held out, instead of on the text.
    #[arg(long, value_name = "BATCHES", conflicts_with = "no_ablation")]
    held_out: Option<usize>,
    /// Leave out the loss without each head, which takes two passes over the text for every head.
    #[arg(long)]
    no_ablation: bool,
    #[command(flatten)]
    output: Output,
}

impl Measuring {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        if self.held_out == Some(0) {
            anyhow::bail!("--held-out 0: expected at least 1 batch");
        }
        let (run, folder) = (Run::open(&self.run)?, Folder::new(&self.run));
        let (text, target) = match given(self.text.as_deref(), self.file.as_deref())? {
            Some(text) => (text, self.target.clone()),
            None => heads::sample(&run, &folder)?,
        };
        let reading = Reading::new(&run, &text, target.as_deref())?;
        let batches = match self.held_out {
            Some(most) => Some(heads::held_out(&run, &folder, most)?),
            // Who tells classes predicts no token of a text; what is held out has labels.
            None if self.no_ablation || run.model().classifier.is_some() => None,
            None => Some(ablation::batches_of(&reading)?),
        };
        let report = {
            let (bar, interrupt) = (Preparing::new(), Interrupt::new()?);
            let watch = &mut |work| bar.at(work, &interrupt);
            heads::measure(&reading, batches.as_deref(), watch)?
        };
        let measured_on = if self.held_out.is_some() { "held-out data" } else { "the text" };
        let mut page = show::heads(&reading, &report, measured_on);
        page.words.insert(0, format!("Run `{}`.", self.run.display()));
        self.print(&page, &report)
    }

    fn print(&self, page: &Page, report: &HeadsReport) -> anyhow::Result<()> {
        let run = self.run.file_name().unwrap_or(self.run.as_os_str()).to_string_lossy();
        let paths = page.save(&self.output.folder(&format!("heads-{run}")))?;
        let mut out = io::stdout();
        if self.output.json {
            let mut object = serde_json::to_value(report)?;
            if let Some(object) = object.as_object_mut() {
                object.insert("page".into(), json!(paths[0]));
                object.insert("pictures".into(), json!(paths[1..]));
            }
            writeln!(out, "{object}")?;
            return Ok(());
        }
        for row in show::heads_table(report) {
            writeln!(out, "{}", row.join("\t"))?;
        }
        say!("page: {}", paths[0].display());
        Ok(())
    }
}
