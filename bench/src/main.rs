//! `bench/attention`: our attention against torch's and burn's on this machine.
//!
//! For each of the `cases` both sides get the same tensors, must agree, and then take turns; the best of all turns
//! counts. `ours` makes our call, `burn` the framework's own, and `worker` talks to the Python process that makes torch's
//! (`worker.py`, `ways.py`).

mod against;
mod agree;
mod burn;
mod cases;
mod linear;
mod measure;
mod memory;
mod ours;
mod patterns;
mod peak;
mod table;
mod tensors;
mod worker;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Result, bail};
use clap::Parser;
use whatwhere_bench::{cpu, format::Format, place::Place, talk::Died};
use whatwhere_kernels::Simd;

use crate::{
    against::Builds,
    cases::{Case, Measure, cases},
    measure::Session,
    ours::Task,
    table::Row,
    worker::Worker,
};

/// Times our attention against torch's and burn's, after checking that they agree, and prints a table.
///
/// One sequence, 8 heads of 64 channels, f32 but for rows that say bf16. Both sides get the same tensors and take turns; the best of
/// all rounds counts. The rival is the fastest way torch has; the others are told on stderr. In rows that name burn
/// it is burn's own operation, on its CPU backend.
///
/// ratio is the rival's need over ours, so more is better, and a target is met when the ratio reaches it.
/// Where the rival is ours and ours may cost more, the target is below 1: PoPE may take 1.4 × rotary's time
/// (target 1/1.4) and 1.15 × its memory, twice the length 2.2 × the time and memory (target 1/2.2).
/// Rows about memory compare MiB and have no ms; rows without a target have met = true in JSON.
///
/// GFLOP/s count 4 · pairs · channels for the forward pass, 3.5 times that with the backward pass, and half
/// of all pairs under a causal pattern; the share is of what this machine's registers can multiply and add.
/// MiB are those at the peak beyond the inputs, each side in a process of its own. error is the largest
/// difference of an output or gradient over its root mean square (in bf16 over the value where that is larger); above
/// 1e-3, or 0.25 in bf16, the case fails.
#[derive(Parser)]
#[command(bin_name = "bench/attention", verbatim_doc_comment)]
struct Args {
    /// Only cases whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    case: Option<String>,
    /// Rounds per case, instead of as many as fit in 3 seconds (at least 5)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Two rounds per case, and memory only where it is the case: does it work?
    #[arg(long)]
    quick: bool,
    /// Memory of every case even with --quick
    #[arg(long)]
    memory: bool,
    /// Threads of each side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// One JSON object per case and line
    #[arg(long)]
    json: bool,
    /// A Markdown table, with the machine
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// A Python with torch and numpy [default: the one bench/attention makes]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Another build of this program, in place of torch and burn: is a change slower?
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["python", "memory"])]
    against: Option<PathBuf>,
    /// Times cases that are asked for on stdin, for another build
    #[arg(long, hide = true)]
    work: bool,
    /// Prints the MiB of one call of ours in this process
    #[arg(long, value_name = "TASK", hide = true)]
    memory_of: Option<Task>,
    /// Prints the MiB of one call of burn's in this process
    #[arg(long, value_name = "TASK", hide = true)]
    memory_of_burn: Option<Task>,
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
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    if args.work {
        return against::work();
    }
    if let Some(task) = args.memory_of {
        println!("{}", memory::of_this_process(task)?);
        return Ok(());
    }
    if let Some(task) = args.memory_of_burn {
        println!("{}", memory::of_burn_in_this_process(task)?);
        return Ok(());
    }
    let wanted = args.case.as_deref().unwrap_or_default();
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.name.contains(wanted)).collect();
    if cases.is_empty() {
        bail!("no case has '{wanted}' in its name, expected a part of one, such as 'causal'");
    }
    let format = match (args.json, args.markdown) {
        (true, _) => Format::Json,
        (_, true) => Format::Markdown,
        _ => Format::Table,
    };
    let rounds = args.rounds.map(|rounds| rounds as usize);
    let processor = format!("{}, {}, {threads} threads", cpu::name(), Simd::detect().name());
    if let Some(other) = &args.against {
        let mut builds = Builds::start(other, threads)?;
        let peak = peak::gflops(threads);
        let timed: Vec<Case> =
            cases.into_iter().filter(|case| case.measure == Measure::Time).collect();
        return print(&timed, format, &[processor], |case| {
            builds.measure(case, |ms| measure::rounds(rounds, args.quick, ms), peak)
        });
    }
    let place = Place::make()?;
    let python =
        args.python.clone().unwrap_or_else(|| place.target().join("bench-venv/bin/python"));
    let worker = Worker::start(&place, &python, threads)?;
    let peak = peak::gflops(threads);
    let machine = [
        processor,
        format!("{peak:.0} GFLOP/s at most, measured"),
        format!(
            "whatwhere {}, {}, torch {}, Python {}",
            env!("CARGO_PKG_VERSION"),
            crate::burn::NAME,
            worker.torch,
            worker.python,
        ),
    ];
    let mut session = Session {
        place: &place,
        python,
        threads,
        worker,
        rounds,
        quick: args.quick,
        memory: args.memory || !args.quick,
        peak,
    };
    print(&cases, format, &machine, |case| session.measure(case))
}

/// Measures the cases and prints each as soon as it is known. One that fails does not stop the others.
fn print(
    cases: &[Case],
    format: Format,
    machine: &[String],
    mut measure: impl FnMut(&Case) -> Result<Row>,
) -> Result<()> {
    let mut out = io::stdout().lock();
    format.start::<Row>(machine, &mut out)?;
    let mut failed = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        eprintln!("[{}/{}] {}", i + 1, cases.len(), case.name);
        match measure(case) {
            Ok(row) => format.row(&row, &mut out)?,
            Err(error) if error.downcast_ref::<Died>().is_some() => {
                return Err(error.context(case.name.clone()));
            }
            Err(error) => {
                eprintln!("error: {}: {error:#}", case.name);
                failed.push(case.name.as_str());
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
