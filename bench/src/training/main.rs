//! `bench/training`: whole training steps and cached writing, ours against PyTorch's on this machine.
//!
//! Each side runs in a process of its own (`ours` is this program again, `rival` is `training.py`), starts from the same
//! weights, reads the same tokens, and must agree before it is timed; then they take turns, and the best step of all turns
//! counts. `cases` is what is measured, `measure` how, `table` what is printed.

mod cases;
mod measure;
mod ours;
mod rival;
mod table;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Result, bail};
use clap::Parser;
use whatwhere_bench::{cpu, format::Format, place::Place, talk::Died};
use whatwhere_kernels::Precision;

use crate::{
    cases::{Case, cases},
    measure::Session,
    table::Row,
};

/// As in the command: freed buffers serve the next step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Times whole training steps and cached writing against PyTorch, after checking that they agree, and prints a table.
///
/// A step is forward, backward, clipping and AdamW. Both sides start from the same weights, read the same tokens and
/// must have the same losses for the first steps (the same tokens, for writing). They take turns, each in a process of its
/// own; the best step counts. torch is tried eager and compiled, and the better one counts.
///
/// ratio is ours over the rival's tokens per second, so more is better, and a target is met when the ratio reaches it.
/// MiB are the process's resident memory at the peak of a step after the first ones, and `of rival` is ours over the
/// rival's, of which the target is a bound. `fresh` counts pages that the system had to find and clear for one step.
#[derive(Parser)]
#[command(bin_name = "bench/training", verbatim_doc_comment)]
struct Args {
    /// Only cases whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    case: Option<String>,
    /// Rounds per case, instead of 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// One round per case, and torch eager only: does it work?
    #[arg(long)]
    quick: bool,
    /// What products are computed in, torch's under autocast: f32 or bf16
    #[arg(long, value_name = "PRECISION", default_value = "f32", value_parser = precision)]
    precision: Precision,
    /// Threads of each side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// One JSON object per case and line
    #[arg(long)]
    json: bool,
    /// A Markdown table, with the machine
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// A Python with torch, numpy and transformers [default: the one bench/training makes]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Another build of this program, in place of torch and transformers: is a change slower?
    #[arg(long, value_name = "PROGRAM", conflicts_with = "python")]
    against: Option<PathBuf>,
    /// Answers requests on stdin, as the other side does
    #[arg(long, hide = true)]
    work: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let threads = usize::from(args.threads);
    if args.work {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        return ours::work();
    }
    let wanted = args.case.as_deref().unwrap_or_default();
    let cases: Vec<Case> =
        cases(args.precision).into_iter().filter(|case| case.name.contains(wanted)).collect();
    if cases.is_empty() {
        bail!("no case has '{wanted}' in its name, expected a part of one, such as 'A'");
    }
    let place = Place::make()?;
    let python =
        args.python.clone().unwrap_or_else(|| place.target().join("bench-venv/bin/python"));
    let rounds = args.rounds.map_or(if args.quick { 1 } else { 8 }, |rounds| rounds as usize);
    let against = args.against.clone();
    let (quick, precision) = (args.quick, args.precision);
    let session = Session { place: &place, python, threads, rounds, quick, against, precision };
    let versions = match args.against {
        Some(_) => "another build of this program".to_owned(),
        None => session.versions()?,
    };
    let machine = [
        format!("{}, {}, {threads} threads", cpu::name(), precision.instructions()),
        format!("whatwhere {}, {versions}", env!("CARGO_PKG_VERSION")),
    ];
    let format = match (args.json, args.markdown) {
        (true, _) => Format::Json,
        (_, true) => Format::Markdown,
        _ => Format::Table,
    };
    print(&session, &cases, format, &machine)
}

/// A precision by its name in settings.
fn precision(name: &str) -> Result<Precision, String> {
    match name {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        _ => Err("expected f32 or bf16".into()),
    }
}

/// Measures the cases and prints each as soon as it is known. One that fails does not stop the others.
fn print(session: &Session, cases: &[Case], format: Format, machine: &[String]) -> Result<()> {
    let mut out = io::stdout().lock();
    format.start::<Row>(machine, &mut out)?;
    let mut failed = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        eprintln!("[{}/{}] {}", i + 1, cases.len(), case.name);
        match session.measure(case) {
            Ok(row) => format.row(&row, &mut out)?,
            Err(error) => {
                let died = error.downcast_ref::<Died>().is_some();
                eprintln!("{}: {}: {error:#}", if died { "died" } else { "error" }, case.name);
                failed.push(case.name);
            }
        }
        out.flush()?;
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join("; ")) }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
