//! `whatwhere compare`: a grid of settings, trained under equal conditions, with a report.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::Args;
use serde_json::json;
use whatwhere_lab::{
    budget::Budget,
    compare::{Comparison, Corpora, Numbered, Numbers, State},
    grid::Axis,
    record, report,
    results::{CellResult, Outcome, Results},
    search::Search,
    standard,
};
use whatwhere_training::interrupt::Interrupt;

use crate::{
    comparing::Progress,
    failure::{Ended, Failure},
    ranking, runs,
    say::say,
    verb::{self, Settings},
};

/// What to compare, and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    #[command(flatten)]
    settings: Settings,
    /// A setting and its values, such as position=rotary,alibi,polar; can be repeated, every combination is a cell.
    #[arg(long, value_name = "KEY=VALUE,VALUE,…")]
    over: Vec<String>,
    /// Runs of every cell, with seeds that follow the settings' own.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Runs at the same time, each on its share of the threads: faster for small models, but speed and memory of a run are
    /// then not its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = verb::jobs)]
    jobs: usize,
    /// What each run may spend: steps=800, tokens=2e6, minutes=5 or flops=1e13; default the settings' own steps.
    #[arg(long)]
    budget: Option<Budget>,
    /// Lengths to read without training, for text; default 1, 2, 4, 8 and 16 times the trained one. 0 tries none.
    #[arg(long, value_delimiter = ',')]
    lengths: Vec<usize>,
    /// Tokens of held-out text read at each length.
    #[arg(long, default_value_t = 65_536)]
    tokens: usize,
    /// The cell that others are held against; default the first.
    #[arg(long, value_name = "CELL")]
    baseline: Option<String>,
    /// Also translate the held-out pairs and score them; for translation.
    #[arg(long)]
    bleu: bool,
    /// First try so many samples of each cell's settings in ever longer runs, and compare each cell at its best.
    #[arg(long, value_name = "N")]
    search: Option<usize>,
    /// What a search samples, such as lr=1e-4..1e-2 (evenly in the logarithm) or width=64,128; default lr around its setting.
    #[arg(long, value_name = "KEY=LOW..HIGH", requires = "search")]
    range: Vec<String>,
    /// Where everything goes; the same comparison goes on in it. Default comparisons/NAME-SETTING, by the settings' name and
    /// what is compared.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Work on the folder together with other processes that run the same command, on this or on other machines: each takes
    /// the next run that no other has, and all wait until every run is finished.
    #[arg(long, conflicts_with_all = ["list", "only", "report"])]
    share: bool,
    /// Number the runs in the order they are trained, and train none.
    #[arg(long, conflicts_with_all = ["only", "report"])]
    list: bool,
    /// Train and measure the runs of these numbers alone, both ends included; for Slurm arrays, GNU parallel and the like,
    /// also where files cannot be locked.
    #[arg(long, value_name = "N|A..B", conflicts_with = "report")]
    only: Option<Numbers>,
    /// Train nothing: write the report from the runs that are finished, and say which are missing.
    #[arg(long)]
    report: bool,
    /// Print the results as one JSON object; the runs of --list as one list, those of --only a line each.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Compare) -> anyhow::Result<()> {
    let mut comparison = comparison(args)?;
    // Before anything trains.
    let cells = comparison.cells().map_err(usage)?;
    if let Some(search) = &comparison.search {
        search.check(&cells, &comparison.axes).map_err(usage)?;
    }
    if args.list {
        record::recall(&mut comparison).map_err(claimed)?;
        return Ok(runs::list(&comparison.numbered().map_err(unnumbered)?, args.json)?);
    }
    let interrupt = Interrupt::new()?;
    if args.report {
        return gather(comparison, &interrupt, args.json);
    }
    if let Some(numbers) = &args.only {
        let runs = comparison.numbered().map_err(unnumbered)?.len();
        numbers
            .check(runs)
            .map_err(|e| Failure::usage(e.to_string(), "--list shows the runs by their numbers"))?;
    }
    let (mut corpora, mut progress) = (Corpora::default(), Progress::new());
    let one_version = args.share || args.only.is_some();
    let has_locks =
        record::claim(&mut comparison, one_version, &mut corpora, &interrupt, &mut progress)
            .map_err(claimed)?;
    if let Some(numbers) = &args.only {
        let ran = comparison.run_numbers(numbers, &mut corpora, &interrupt, &mut progress)?;
        drop(progress);
        let Some(ran) = ran else { return interrupted(&comparison.folder) };
        runs::print(&ran, args.json)?;
        return count(&comparison, ran.iter().filter(|ran| ran.trained.is_err()).count());
    }
    if !has_locks {
        say!("{}", verb::without_locks(&comparison.folder));
    }
    let results = comparison.run(&mut corpora, &interrupt, &mut progress)?;
    drop(progress);
    finish(results.map(|results| vec![results]), &comparison.folder, args.share, args.json)
}

/// What is asked for, as far as it can be read.
fn comparison(args: &Compare) -> anyhow::Result<Comparison> {
    if args.over.is_empty() && !args.settings.are_given() {
        let hint = "try --over position=rotary,alibi,polar; without a command, a comparison of positions runs";
        return Err(Failure::usage("nothing to compare: found no --over", hint).into());
    }
    if args.seeds == 0 {
        let message = "--seeds 0: expected at least 1";
        return Err(Failure::usage(message, "leave it out for one run of each").into());
    }
    let axes = args
        .over
        .iter()
        .map(|text| Axis::parse(text))
        .collect::<Result<Vec<_>, _>>()
        .map_err(usage)?;
    let search = args
        .search
        .map(|samples| Search::parse(samples, &args.range))
        .transpose()
        .map_err(usage)?;
    let folder = args.out.clone().unwrap_or_else(|| folder(&axes, args));
    Ok(Comparison {
        title: format!("Comparison of {}", title(&axes, args)),
        settings: args.settings.read()?.to_toml()?,
        axes,
        seeds: args.seeds,
        budget: args.budget,
        lengths: match args.lengths.as_slice() {
            [] => None,
            [0] => Some(Vec::new()),
            lengths => Some(lengths.to_vec()),
        },
        tokens: args.tokens,
        bleu: args.bleu,
        baseline: args.baseline.clone(),
        jobs: args.jobs,
        share: args.share,
        search,
        command: Some(verb::command_line()),
        folder,
        ..Comparison::default()
    })
}

/// The report of what is there.
fn gather(mut comparison: Comparison, interrupt: &Interrupt, json: bool) -> anyhow::Result<()> {
    let runs = comparison.numbered().map_err(unnumbered)?.len();
    let folder = comparison.folder.clone();
    if !record::recall(&mut comparison).map_err(claimed)? {
        let message = format!("{} holds no comparison yet", folder.display());
        return Err(Failure::usage(message, "--only and --share train its runs").into());
    }
    let mut progress = Progress::new();
    let found = comparison.gather(&mut Corpora::default(), interrupt, &mut progress)?;
    drop(progress);
    let Some((results, missing)) = found else { return interrupted(&folder) };
    if missing.len() == runs || results.cells.iter().all(|cell| cell.runs().is_empty()) {
        bail!("no run of {} is finished yet, of {runs}", folder.display());
    }
    if let Some(words) = runs::missing(&missing) {
        say!("{} of {runs} runs are there; {words}", runs - missing.len());
    }
    finish(Some(vec![results]), &folder, true, json)
}

/// Says how many runs are finished, of which some may have failed just now.
fn count(comparison: &Comparison, failed: usize) -> anyhow::Result<()> {
    let all = comparison.numbered()?;
    let is_finished = |run: &&Numbered| run.state == State::Finished;
    let (finished, runs) = (all.iter().filter(is_finished).count(), all.len());
    let report = if finished == runs { "; --report writes the report" } else { "" };
    say!("{finished} of {runs} runs are finished{report}");
    match failed {
        0 => Ok(()),
        1 => bail!("a run failed; the same command tries it again"),
        failed => bail!("{failed} runs failed; the same command tries them again"),
    }
}

fn interrupted(folder: &Path) -> anyhow::Result<()> {
    say!("interrupted: what is finished is kept");
    say!("hint: the same command goes on in {}", folder.display());
    Err(Ended::INTERRUPTED.into())
}

/// The error of a folder that is another's, or cannot be shared.
fn claimed(error: whatwhere_lab::Error) -> anyhow::Error {
    use whatwhere_lab::Error::{NoLocks, Taken};
    let hint = match &error {
        Taken(_) => "name another folder with --out, or remove this one",
        NoLocks { .. } => {
            "--list numbers the runs, --only N trains one of them without locks, --report ends it"
        }
        _ => return error.into(),
    };
    Failure::usage(error.to_string(), hint).into()
}

/// The comparison that runs without a command.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standard {
    /// Where everything goes; default comparisons/standard.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Runs at the same time, as compare takes it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = verb::jobs)]
    jobs: usize,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run_standard(args: &Standard) -> anyhow::Result<()> {
    let folder =
        standard::folder(args.out.as_deref().unwrap_or(Path::new("comparisons/standard")))?;
    let interrupt = Interrupt::new()?;
    let mut corpora = Corpora::default();
    let mut all = Vec::new();
    for comparison in standard::comparisons(&folder) {
        let command = Some(verb::command_line());
        let comparison = Comparison { jobs: args.jobs, command, ..comparison };
        say!("{}", comparison.title);
        let mut progress = Progress::new();
        match comparison.run(&mut corpora, &interrupt, &mut progress)? {
            Some(results) => all.push(results),
            None => return interrupted(&folder),
        }
    }
    finish(Some(all), &folder, false, args.json)
}

/// Writes the report and prints what it says; nothing if interrupted.
fn finish(
    results: Option<Vec<Results>>,
    folder: &Path,
    share: bool,
    json: bool,
) -> anyhow::Result<()> {
    let Some(results) = results else { return interrupted(folder) };
    let is_busy = |cell: &&CellResult| matches!(&cell.outcome, Outcome::Failed { reason } if reason.contains(" is in use by "));
    let busy = results.iter().flat_map(|results| &results.cells).filter(is_busy).count();
    if busy > 0 {
        say!("hint: with --share, processes work on one folder together");
    }
    let failed = results.iter().map(Results::failed).sum::<usize>() - busy;
    if let Some(reason) = results.iter().find_map(Results::nothing_trained) {
        bail!("no cell could be trained: {reason}");
    }
    let is_kept = record::says_more(folder, &results);
    let report = match is_kept {
        true => folder.join("report.html"),
        false if share => report::save_once(&results, folder)?,
        false => report::save(&results, folder)?,
    };
    let mut out = io::stdout();
    if json {
        writeln!(out, "{}", json!({ "report": report, "results": results }))?;
    } else {
        for results in &results {
            ranking::print(results, &mut out)?;
        }
        writeln!(out, "report: {}", report.display())?;
    }
    if is_kept {
        say!("the report is of before: it has runs that failed now");
    }
    match (failed, busy) {
        (0, 0) => Ok(()),
        (0, 1) => bail!("a cell is missing, which another process trains"),
        (0, busy) => bail!("{busy} cells are missing, which other processes train"),
        (1, _) => bail!("a cell failed; the same command tries it again"),
        (failed, _) => bail!("{failed} cells failed; the same command tries them again"),
    }
}

fn usage(error: whatwhere_lab::Error) -> anyhow::Error {
    Failure::usage(error.to_string(), "whatwhere config --choices lists all there is to choose")
        .into()
}

/// The error of runs that have no numbers.
fn unnumbered(error: whatwhere_lab::Error) -> anyhow::Error {
    Failure::usage(error.to_string(), "without --search, --list shows the runs by their numbers")
        .into()
}

fn title(axes: &[Axis], args: &Compare) -> String {
    let keys: Vec<&str> =
        axes.iter().map(|axis| axis.key.rsplit('.').next().unwrap_or(&axis.key)).collect();
    match keys.is_empty() {
        true => args.settings.name(),
        false => format!("{} ({})", keys.join(" and "), args.settings.name()),
    }
}

/// `comparisons/tiny-position`: by the settings, and by what is compared of them.
fn folder(axes: &[Axis], args: &Compare) -> PathBuf {
    let keys = axes.iter().map(|axis| axis.key.rsplit('.').next().unwrap_or(&axis.key).to_owned());
    let search = args.search.map(|_| "search".to_owned());
    let parts: Vec<String> = [args.settings.name()].into_iter().chain(keys).chain(search).collect();
    PathBuf::from("comparisons").join(parts.join("-"))
}
