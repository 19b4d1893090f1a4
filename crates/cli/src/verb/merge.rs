//! `whatwhere merge`: adapters become part of the weights.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;

/// What to merge, and where to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Merge {
    /// The folder of a run with adapters (LoRA).
    run: PathBuf,
    /// The run folder to write.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

pub(crate) fn run(args: &Merge) -> anyhow::Result<()> {
    whatwhere_training::merge(&args.run, &args.out)?;
    writeln!(io::stdout(), "{}", args.out.display())?;
    Ok(())
}
