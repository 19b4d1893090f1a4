//! `whatwhere quantize`: a run folder whose weights take less room.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use serde_json::json;
use whatwhere_training::{Error, Folder, Storage, quantize};

use crate::failure::Failure;

/// What to store, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct Quantize {
    /// The run folder, trained or imported.
    run: PathBuf,
    /// The run folder to write.
    #[arg(long, value_name = "RUN")]
    out: PathBuf,
    /// What weights are stored as. int8 also computes with them, f16 and bf16 are read as f32.
    #[arg(long, value_enum, default_value_t = Kind::Int8)]
    weights: Kind,
    /// Print the sizes as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Blocks of 32 with a scale each, as GGUF's Q8_0.
    Int8,
    F16,
    Bf16,
}

pub(crate) fn run(args: &Quantize) -> anyhow::Result<()> {
    let storage = match args.weights {
        Kind::Int8 => Storage::Int8,
        Kind::F16 => Storage::F16,
        Kind::Bf16 => Storage::Bf16,
    };
    quantize(&args.run, &args.out, storage).map_err(|error| match error {
        Error::RunExists { .. } => {
            anyhow::Error::new(Failure::usage(error.to_string(), "name another folder with --out"))
        }
        error => error.into(),
    })?;
    let size = |run: &PathBuf| fs::metadata(Folder::new(run).model()).map(|file| file.len());
    let (before, after) = (size(&args.run)?, size(&args.out)?);
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", json!({ "run": args.out, "bytes": after, "bytes_before": before }))?;
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (path, after, before) = (args.out.display(), megabytes(after), megabytes(before));
    writeln!(out, "{path}: {after:.1} MB of weights, {before:.1} before")?;
    Ok(())
}
