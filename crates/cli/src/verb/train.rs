//! `whatwhere train`.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use whatwhere_data::{Batches, Corpus, Source, Split};
use whatwhere_training::{
    Base, Ending, Folder, Observer, RunSettings, Trainer, interrupt::Interrupt, lock, trainer,
};

use crate::{
    dashboard::Dashboard,
    failure::{Ended, Failure},
    progress::{Preparing, Progress},
    say::say,
    verb::{self, Settings},
};

/// What to train, and where to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Train {
    #[command(flatten)]
    settings: Settings,
    /// The run folder; default runs/NAME of the settings.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Fine-tune: start from the weights of this run, trained or imported, with its model and tokens unless settings are named.
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    from: Option<PathBuf>,
    /// With --from: draw the vectors of tokens anew, for data with tokens of their own.
    #[arg(long, requires = "from")]
    new_embeddings: bool,
    /// Go on from the last checkpoint in the run folder.
    #[arg(long)]
    resume: bool,
    /// Show curves, rates and samples while it trains.
    #[arg(long)]
    tui: bool,
    /// Say every evaluation on standard error even when that is no terminal.
    #[arg(long)]
    verbose: bool,
    /// Print the outcome as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Train) -> anyhow::Result<()> {
    if args.tui {
        // Before a run is begun that would then be in the way.
        Dashboard::require_terminal()?;
    }
    let folder = Folder::new(
        args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(args.settings.name())),
    );
    let settings = settings(args, &folder)?;
    let interrupt = Interrupt::new()?;
    let corpus = load(&settings, &interrupt)?;
    let mut trainer = if args.resume {
        Trainer::resume(settings, corpus.clone(), folder.clone())?
    } else {
        let (corpus, folder) = (corpus.clone(), folder.clone());
        let started = Trainer::start_from(settings, corpus, folder, base(args).as_ref());
        let (trainer, transfer) = started.map_err(|e| match e {
            e @ whatwhere_training::Error::RunExists { .. } => {
                let hint = "go on with --resume, or name another folder with --out";
                anyhow::Error::new(Failure::usage(e.to_string(), hint))
            }
            e => e.into(),
        })?;
        if let Some(transfer) = transfer {
            say!("from {}: {}", transfer.from.display(), transfer.summary());
        }
        trainer
    };
    if !lock::keeps(folder.path()) {
        say!("{}", verb::without_locks(folder.path()));
    }
    corpus.describe().held_out().iter().for_each(|said| say!("{said}"));
    say_cut(&trainer::batches(trainer.settings(), &corpus, Split::Train)?, trainer.settings());
    let steps = trainer.settings().training.steps;
    let mut observer: Box<dyn Observer> = if args.tui {
        Box::new(Dashboard::new(&trainer, &corpus, interrupt.clone())?)
    } else if io::stderr().is_terminal() || args.verbose {
        Box::new(Progress::new(trainer.step(), steps))
    } else {
        Box::new(())
    };
    let ending = trainer.run(&interrupt, &mut *observer);
    drop(observer);
    let ending = ending?;
    let said = report(args, &trainer, &folder, ending);
    if ending == Ending::Interrupted {
        say!("hint: whatwhere train --resume --out {}", folder.path().display());
        return Err(Ended::INTERRUPTED.into());
    }
    said
}

/// The run to start from, if any.
fn base(args: &Train) -> Option<Base> {
    let path = args.from.clone()?;
    Some(Base { path, new_embeddings: args.new_embeddings })
}

/// The settings of a new run, or of the one in the folder.
fn settings(args: &Train, folder: &Folder) -> anyhow::Result<RunSettings> {
    if let Some(base) = base(args) {
        if !args.settings.are_given() {
            return changed(&base.settings()?, args);
        }
        let mut settings = args.settings.read()?;
        if settings.data.tokenizer.is_none() && !base.new_embeddings {
            base.share_tokenizer(&mut settings)?;
        }
        return Ok(settings);
    }
    if !args.resume || args.settings.are_given() {
        return args.settings.read();
    }
    changed(&folder.load_settings()?, args)
}

/// The settings of a run with the changes that were asked for.
fn changed(begun: &RunSettings, args: &Train) -> anyhow::Result<RunSettings> {
    let mut settings = RunSettings::read(&begun.to_toml()?, &args.settings.changes)?;
    if let Some(path) = &args.settings.data {
        settings.read_from(path)?;
    }
    Ok(settings)
}

/// Says how many texts of a split are longer than rows.
pub(crate) fn say_cut(batches: &Batches, settings: &RunSettings) {
    let (cut, length) = (batches.cut(), settings.training.length);
    if cut > 0 {
        say!(
            "cut: {cut} texts have more than training.length = {length} tokens; what follows is not read"
        );
    }
}

/// The corpus. Preparing it can be interrupted.
pub(crate) fn load(settings: &RunSettings, interrupt: &Interrupt) -> anyhow::Result<Corpus> {
    if matches!(&settings.data.source, Source::Text(text) if text.path.as_os_str().is_empty()) {
        say!("no --data: it reads the text that comes with the program, tiny Shakespeare");
    }
    let bar = Preparing::new();
    Ok(Corpus::load_watched(&settings.data, &mut |work| bar.at(work, interrupt))?)
}

fn report(args: &Train, trainer: &Trainer, folder: &Folder, ending: Ending) -> anyhow::Result<()> {
    let (path, step) = (folder.path().display(), trainer.step());
    let ended = match ending {
        Ending::Done => "done",
        Ending::EarlyStopped => "early_stopped",
        Ending::Interrupted => "interrupted",
    };
    let by = trainer.settings().training.best_by.name();
    let mut out = io::stdout();
    if args.json {
        let best = format!("best_valid_{by}");
        let object = json!({
            "run": folder.path(), "ending": ended, "step": step, best: trainer.best(),
            "parameters": trainer.model().size(),
        });
        writeln!(out, "{object}").context("the outcome could not be printed")?;
    } else {
        let best =
            trainer.best().map_or(String::new(), |best| format!(", best valid {by} {best:.4}"));
        writeln!(out, "{path}: {ended} after {step} updates{best}")
            .context("the outcome could not be printed")?;
    }
    Ok(())
}
