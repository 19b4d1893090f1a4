//! `whatwhere import`: a model of others becomes a run folder.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use whatwhere_interop::Error;

use crate::{failure::Failure, say::say};

/// What to import, and where to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Import {
    /// A model folder as transformers writes it, or a GGUF file.
    path: PathBuf,
    /// The run folder to write.
    #[arg(long, value_name = "RUN")]
    out: PathBuf,
    /// Print what was imported as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Import) -> anyhow::Result<()> {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(
        ProgressStyle::with_template("{bar:24} {pos}/{len} parameters, {elapsed}")
            .expect("a template that indicatif reads"),
    );
    let imported = whatwhere_interop::import(&args.path, &args.out, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let summary = imported.map_err(|error| match error {
        Error::Run(whatwhere_training::Error::RunExists { .. }) => {
            anyhow::Error::new(Failure::usage(error.to_string(), "name another folder with --out"))
        }
        error => error.into(),
    })?;
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&summary)?)?;
        return Ok(());
    }
    let tokenizer = match (&summary.unread_tokenizer, summary.tokenizer) {
        (_, true) => "with its tokenizer".into(),
        (None, _) => "without a tokenizer".into(),
        (Some(file), _) => format!("without a tokenizer, because {file} is not read"),
    };
    writeln!(
        out,
        "{}: {} of {} parameters, {} tokens, {tokenizer}",
        args.out.display(),
        summary.family,
        summary.parameters,
        summary.vocabulary
    )?;
    if !summary.unknown_tokens.is_empty() {
        let (all, vocabulary) = (summary.unknown_tokens.join(", "), summary.vocabulary);
        say!("warning: outside the vocabulary of {vocabulary}, and left out: {all}");
    }
    if let Some(file) = &summary.unread_tokenizer {
        say!(
            "hint: what is read is tokenizer.json; in Python, AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) makes it of {file}; then import again"
        );
    }
    Ok(())
}
