//! `bench/generation`: writing, reading prompts and translating, ours against llama.cpp and CTranslate2 on this machine.
//!
//! Our side runs in a process of its own (this program again), llama.cpp as its own benchmarks, CTranslate2 in a Python
//! worker, `generation.py`. All read the same weights; where a rival tells what it wrote, that is held against ours before
//! anything is timed. Then they take turns, and the best turn of each counts.

mod cases;
mod ours;
mod rival;
mod table;

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Value, json};
use whatwhere_bench::{
    cpu,
    format::Format,
    place::Place,
    talk::{Talk, names, number},
};
use whatwhere_kernels::Simd;

use crate::{
    cases::{CASES, Case, Engine, Job, TRANSLATOR},
    rival::{Asked, Rivals},
    table::Row,
};

/// As in the command: freed buffers serve the next step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// "The capital of France is", as SmolLM2 has it; other models read the same numbers.
const PROMPT: [u32; 5] = [504, 3575, 282, 4649, 314];
/// Tokens that are held against each other before anything is timed.
const CHECKED: usize = 32;

/// Times generation against llama.cpp and CTranslate2, after checking that they write the same, and prints a table.
///
/// ratio is ours over the rival's tokens per second, so more is better, and a target is met when the ratio reaches it.
/// Rivals that are not there are named on stderr and have no figures. `python bench/generation.py make FOLDER` makes the
/// models, `whatwhere import FOLDER/smollm2.F32.gguf --out FOLDER/smollm2` the run folder.
#[derive(Parser)]
#[command(bin_name = "bench/generation", verbatim_doc_comment)]
struct Args {
    /// The folder of the models
    #[arg(long, value_name = "FOLDER", env = "WHATWHERE_BENCH_MODELS")]
    models: PathBuf,
    /// llama.cpp's llama-bench
    #[arg(long, value_name = "PATH", env = "WHATWHERE_LLAMA_BENCH")]
    llama_bench: Option<PathBuf>,
    /// llama.cpp's llama-batched-bench
    #[arg(long, value_name = "PATH", env = "WHATWHERE_LLAMA_BATCHED_BENCH")]
    llama_batched_bench: Option<PathBuf>,
    /// A Python with ctranslate2 and llama_cpp
    #[arg(long, value_name = "PATH", env = "WHATWHERE_BENCH_PYTHON")]
    python: Option<PathBuf>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    case: Option<String>,
    /// Turns of each side
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Threads of each side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// One JSON object per case and line
    #[arg(long)]
    json: bool,
    /// A Markdown table, with the machine
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn main() -> ExitCode {
    let result = match env::args().nth(1).as_deref() {
        Some("--work") => work(),
        _ => run(&Args::parse()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Our side: `--work THREADS`.
fn work() -> Result<()> {
    let threads = env::args().nth(2).context("expected a number of threads")?.parse()?;
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    ours::work()
}

fn run(args: &Args) -> Result<()> {
    let threads = usize::from(args.threads);
    let wanted = args.case.as_deref().unwrap_or_default();
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.name.contains(wanted)).collect();
    if cases.is_empty() {
        bail!("no case has '{wanted}' in its name, expected a part of one, such as 'writing'");
    }
    let place = Place::make()?;
    let python = match &args.python {
        None => None,
        Some(python) => {
            let mut command = Command::new(python);
            command.arg("-B").arg(place.bench().join("generation.py"));
            command.env("OMP_NUM_THREADS", threads.to_string());
            Some(Talk::start("Python", &mut command)?)
        }
    };
    let mut rivals = Rivals {
        models: args.models.clone(),
        llama_bench: args.llama_bench.clone(),
        llama_batched_bench: args.llama_batched_bench.clone(),
        python,
        threads,
    };
    let mut versions = vec![format!("whatwhere {}", env!("CARGO_PKG_VERSION"))];
    if let Some(python) = &mut rivals.python {
        versions.extend(names(&python.ask(&json!({ "do": "hello" }))?["versions"])?);
    }
    let machine = [
        format!("{}, {}, {threads} threads", cpu::name(), Simd::detect().name()),
        versions.join(", "),
    ];
    let format = match (args.json, args.markdown) {
        (true, _) => Format::Json,
        (_, true) => Format::Markdown,
        _ => Format::Table,
    };
    let mut out = io::stdout().lock();
    format.start::<Row>(&machine, &mut out)?;
    let mut failed = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        eprintln!("[{}/{}] {}", i + 1, cases.len(), case.name);
        if let Job::Write { model, .. } | Job::Prompt { model, .. } | Job::Together { model, .. } =
            case.job
            && !args.models.join(model).join("config.toml").is_file()
        {
            eprintln!("  SKIPPED: no run folder {model} in {}", args.models.display());
            continue;
        }
        match measure(case, &mut rivals, &place, args.rounds) {
            Ok(rows) => rows.iter().try_for_each(|row| format.row(row, &mut out))?,
            Err(error) => {
                eprintln!("error: {}: {error:#}", case.name);
                failed.push(case.name);
            }
        }
        out.flush()?;
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join("; ")) }
}

/// Checks and times one case.
fn measure(case: &Case, rivals: &mut Rivals, place: &Place, rounds: u32) -> Result<Vec<Row>> {
    let mut command = Command::new(env::current_exe().context("cannot find this program")?);
    command.args(["--work", &rivals.threads.to_string()]);
    let mut ours = Talk::start("our", &mut command)?;
    let asked = open(case, &mut ours, rivals, place)?;
    let request = request(&case.job, &asked);
    let tokens = case.job.tokens() as f64;
    // The first turn of each is not timed; it tells what is written, and makes drafts.
    let said = ours.ask(&request)?["ids"].take();
    let mut rows = Vec::new();
    for rival in case.rivals {
        let same_ids = match (rival.engine, &case.job) {
            (Engine::Llama(kind), Job::Write { model, .. }) => rivals
                .llama_ids(model, kind, &asked.prompt, CHECKED)
                .map(|found| same(&said, &found, CHECKED)),
            (engine, job) => rivals
                .turn(engine, job, &asked)
                .map(|(_, found)| found.and_then(|found| same(&said, &found, CHECKED))),
        };
        let same_ids = match same_ids {
            Ok(same) => same,
            Err(error) => {
                eprintln!("  SKIPPED: the check against {}: {error:#}", rival.name);
                None
            }
        };
        if let Some([same, of]) = same_ids {
            eprintln!("  {}: the first {same} of {of} ids are the same", rival.name);
            // Weights of fewer bits are rounded in other places, so that texts part somewhere.
            if !case.int8 && same < of {
                bail!("{} writes something else", rival.name);
            }
        }
        let (rival, target) = (rival.name, rival.target);
        rows.push(Row {
            case: case.name,
            ours_tokens_per_second: 0.0,
            rival,
            rival_tokens_per_second: None,
            target,
            same_ids,
        });
    }
    let mut missing = vec![false; rows.len()];
    for _ in 0..rounds {
        let speed = tokens / number(&ours.ask(&request)?["seconds"])?;
        for row in &mut rows {
            row.ours_tokens_per_second = row.ours_tokens_per_second.max(speed);
        }
        for ((row, rival), missing) in rows.iter_mut().zip(case.rivals).zip(&mut missing) {
            if *missing {
                continue;
            }
            match rivals.turn(rival.engine, &case.job, &asked) {
                Ok((speed, _)) => {
                    let best = row.rival_tokens_per_second.get_or_insert(0.0);
                    *best = best.max(speed);
                }
                Err(error) => {
                    eprintln!("  SKIPPED: {}: {error:#}", rival.name);
                    *missing = true;
                }
            }
        }
    }
    Ok(rows)
}

/// Opens our model, and says what the job is given.
fn open(case: &Case, ours: &mut Talk, rivals: &Rivals, place: &Place) -> Result<Asked> {
    let mut asked = Asked { prompt: PROMPT.to_vec(), ..Asked::default() };
    let model = match case.job {
        Job::Write { model, .. } => model,
        Job::Prompt { model, tokens } => {
            asked.prompt = text(0, tokens);
            model
        }
        Job::Together { model, sequences, prompt, .. } => {
            asked.prompts = (0..sequences).map(|sequence| text(sequence, prompt)).collect();
            model
        }
        Job::Translate { sentences, source, .. } => {
            asked.sources = (0..sentences).map(|sentence| text(sentence, source)).collect();
            asked.weights = place.tensor("weights");
            let (weights, int8) = (&asked.weights, case.int8);
            let request =
                json!({ "do": "build", "model": TRANSLATOR, "weights": weights, "int8": int8 });
            asked.parameters = ours.ask(&request)?["parameters"].take();
            return Ok(asked);
        }
    };
    let run = rivals.models.join(model);
    ours.ask(&json!({ "do": "open", "run": run, "int8": case.int8 }))?;
    Ok(asked)
}

fn request(job: &Job, asked: &Asked) -> Value {
    match *job {
        Job::Write { tokens, .. } => {
            json!({ "do": "write", "prompt": asked.prompt, "tokens": tokens })
        }
        Job::Prompt { .. } => json!({ "do": "write", "prompt": asked.prompt, "tokens": 1 }),
        Job::Together { tokens, .. } => {
            json!({ "do": "together", "prompts": asked.prompts, "tokens": tokens })
        }
        Job::Translate { tokens, beam, .. } => {
            json!({ "do": "translate", "sources": asked.sources, "tokens": tokens, "beam": beam })
        }
    }
}

/// Tokens that look random.
fn text(sequence: usize, count: usize) -> Vec<u32> {
    let number =
        |i: u64| (i + 7919 * sequence as u64).wrapping_mul(2_654_435_761) % (1 << 32) / 256;
    (1..=count as u64).map(|i| 10 + (number(i) % 5900) as u32).collect()
}

/// How many ids from the first on are the same, of how many that were asked; of several sequences, over all of them.
fn same(ours: &Value, theirs: &Value, most: usize) -> Option<[usize; 2]> {
    let (ours, theirs) = (ours.as_array()?, theirs.as_array()?);
    if ours.first().is_some_and(Value::is_array) {
        let each = ours.iter().zip(theirs).map(|(ours, theirs)| same(ours, theirs, most));
        return each.sum::<Option<Counts>>().map(|Counts(counts)| counts);
    }
    let of = ours.len().min(theirs.len()).min(most);
    let same = ours.iter().zip(theirs).take(of).take_while(|(ours, theirs)| ours == theirs);
    Some([same.count(), of])
}

struct Counts([usize; 2]);

impl std::iter::Sum<[usize; 2]> for Counts {
    fn sum<I: Iterator<Item = [usize; 2]>>(each: I) -> Self {
        Self(each.fold([0, 0], |[a, b], [c, d]| [a + c, b + d]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_up_to_the_first_that_differs() {
        assert_eq!(same(&json!([1, 2, 3]), &json!([1, 2, 4, 5]), 32), Some([2, 3]));
        assert_eq!(same(&json!([[1, 2], [3, 4]]), &json!([[1, 9], [3, 4]]), 32), Some([3, 4]));
        assert_eq!(same(&json!([7, 8, 9]), &json!([7, 8, 9]), 2), Some([2, 2]));
    }
}
