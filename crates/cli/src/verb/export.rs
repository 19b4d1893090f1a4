//! `whatwhere export`: a run folder for other programs.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};

/// What to export, and what for.
#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    /// The run folder, trained or imported.
    run: PathBuf,
    /// Who is to read it.
    #[arg(long, value_enum)]
    to: Target,
    /// The folder to write.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Print what was exported as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// transformers: config.json, model.safetensors and tokenizer.json.
    Huggingface,
}

pub(crate) fn run(args: &Export) -> anyhow::Result<()> {
    let exported = match args.to {
        Target::Huggingface => whatwhere_interop::export(&args.run, &args.out)?,
    };
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&exported)?)?;
    } else {
        let (path, family, tensors) = (args.out.display(), exported.family, exported.tensors);
        writeln!(out, "{path}: {family} of {tensors} tensors")?;
    }
    Ok(())
}
