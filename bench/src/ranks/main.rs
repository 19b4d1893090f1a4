//! The time of an update over ranks, and how much of it is exchange: `bench/ranks` starts it under `mpirun`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use serde_json::json;
use whatwhere_data::Corpus;
use whatwhere_training::{
    Error, Folder, Observer, Record, RunSettings, Trainer,
    interrupt::Interrupt,
    ranks::{self, Ranks},
};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A decoder of 4.9 million weights, and 4096 tokens in an update.
const SETTINGS: &str = "
[data]
tokenizer = 'characters'
[model]
width = 256
layers = 6
[model.attention]
heads = 8
position = 'rotary'
[training]
batch = 2
length = 256
accumulate = 8
evaluate_every = 1000000
evaluate_batches = 1
";

/// Trains for some updates and prints what they took.
#[derive(Parser)]
struct Args {
    /// Updates to measure; the first is not counted.
    #[arg(long, default_value_t = 6)]
    updates: u64,
    /// Change a setting.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

/// Ranks whose exchanges are timed, waiting for the others included.
#[derive(Debug)]
struct Timed {
    ranks: Arc<dyn Ranks>,
    nanoseconds: Arc<AtomicU64>,
}

impl Timed {
    fn time<T>(&self, call: impl FnOnce(&dyn Ranks) -> T) -> T {
        let begun = Instant::now();
        let result = call(&*self.ranks);
        self.nanoseconds.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Ranks for Timed {
    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }

    fn all_to_all(
        &self,
        send: &[u8],
        sent: &[usize],
        receive: &mut [u8],
        received: &[usize],
    ) -> Result<(), Error> {
        self.time(|ranks| ranks.all_to_all(send, sent, receive, received))
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8], counts: &[usize]) -> Result<(), Error> {
        self.time(|ranks| ranks.all_gather(own, all, counts))
    }

    fn broadcast(&self, data: &mut [u8]) -> Result<(), Error> {
        self.time(|ranks| ranks.broadcast(data))
    }

    fn abort(&self, code: i32) -> ! {
        self.ranks.abort(code)
    }
}

/// Times of updates, and of the exchange in each.
struct Meter {
    since: Instant,
    nanoseconds: Arc<AtomicU64>,
    found: Vec<(Duration, Duration)>,
}

impl Observer for Meter {
    fn updated(&mut self, _: &Record, _: u64) {
        let exchange = Duration::from_nanos(self.nanoseconds.swap(0, Ordering::Relaxed));
        self.found.push((self.since.elapsed(), exchange));
        self.since = Instant::now();
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let joined = ranks::join(ranks::PATIENCE)?;
    let nanoseconds = Arc::new(AtomicU64::new(0));
    let timed: Arc<dyn Ranks> =
        Arc::new(Timed { ranks: joined.ranks(), nanoseconds: nanoseconds.clone() });
    let mut settings = RunSettings::read(SETTINGS, &args.changes)?;
    settings.training.steps = args.updates + 1;
    let corpus = Corpus::load(&settings.data)?;
    let place = std::env::temp_dir().join(format!("whatwhere-ranks-{}", std::process::id()));
    let started = Trainer::start_among(timed, settings, corpus, Folder::new(&place), None);
    let (mut trainer, _) = started?;
    let mut meter = Meter { since: Instant::now(), nanoseconds, found: Vec::new() };
    trainer.run(&Interrupt::default(), &mut meter)?;
    let parameters = trainer.model().size();
    drop(trainer);
    let ranks = joined.ranks();
    let mut peaks = vec![0; 8 * ranks.size()];
    let own = peak().unwrap_or_default();
    ranks.all_gather(&own.to_le_bytes(), &mut peaks, &vec![8; ranks.size()])?;
    if ranks.rank() == 0 {
        std::fs::remove_dir_all(&place).context("the run could not be removed")?;
        let peaks: Vec<u64> =
            peaks.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        // The first update makes buffers; of the others the median.
        let mut found = meter.found.split_off(1);
        found.sort_unstable();
        let (step, exchange) = found[found.len() / 2];
        let milliseconds = |span: Duration| (span.as_secs_f64() * 1e4).round() / 10.0;
        println!(
            "{}",
            json!({
                "ranks": ranks.size(), "parameters": parameters,
                "step_ms": milliseconds(step), "exchange_ms": milliseconds(exchange),
                "peak_mb": peaks.iter().map(|peak| peak / 1000).collect::<Vec<_>>(),
            })
        );
    }
    Ok(())
}

/// The most memory this process has had, in kB, where the system says.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
