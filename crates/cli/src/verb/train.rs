//! `whatwhere train`.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use whatwhere_data::{Batches, Corpus, Source, Split, TokenizerSettings};
use whatwhere_training::{
    Base, Ending, Folder, Observer, RunSettings, Trainer,
    interrupt::Interrupt,
    lock,
    ranks::{self, Ranks},
    trainer,
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
    /// Fine-tune: start from the weights of this run, trained or imported, with its model and tokens; a preset is then a recipe
    /// for them, and a file of settings has a model of its own.
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
    /// With several ranks (mpirun, srun): end all of them when an exchange takes longer; default 600 seconds.
    #[cfg_attr(not(feature = "mpi"), arg(skip))]
    #[cfg_attr(feature = "mpi", arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..)))]
    exchange_timeout: Option<u64>,
}

pub(crate) fn run(args: &Train) -> anyhow::Result<()> {
    let joined = ranks::join(args.exchange_timeout.map_or(ranks::PATIENCE, Duration::from_secs))?;
    let ranks = joined.ranks();
    if ranks.rank() == 0 {
        joined.warnings.iter().for_each(|warning| say!("warning: {warning}"));
    }
    let ended = train(args, &ranks).or_else(|e| match e.downcast_ref() {
        // Nobody else may know of it.
        Some(whatwhere_training::Error::Ranks(_)) => end_all(&*ranks, e),
        _ => Err(e),
    });
    // What is the same for all is said by rank 0, and before any process ends: launchers end the others then.
    match ended {
        Err(error) if ranks.size() > 1 => {
            let silent = || error.downcast_ref::<Ended>().map_or(1, |Ended(code)| *code);
            let code = if ranks.rank() == 0 { crate::report(&error) } else { silent() };
            Err(Ended(code).into())
        }
        ended => ended,
    }
}

/// Trains as one of the ranks. What it returns is the same for all; what happens to one alone ends them here.
fn train(args: &Train, ranks: &Arc<dyn Ranks>) -> anyhow::Result<()> {
    let is_first = ranks.rank() == 0;
    let folder = Folder::new(
        args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(args.settings.name())),
    );
    let settings = shared_settings(args, &folder, &**ranks)?;
    let prepared = settings.and_then(|settings| {
        let interrupt = Interrupt::new()?;
        let corpus = load_as(is_first, &with_own_tokens(args, &settings, &folder), &interrupt);
        let corpus = corpus.map_err(|e| with_way_out(args, e))?;
        Ok((settings, interrupt, corpus))
    });
    let (settings, interrupt, corpus) = agree(&**ranks, prepared)?;
    let mut trainer = begin(args, ranks, settings, &corpus, &folder)?;
    if is_first {
        say_data(&trainer, &corpus, &folder).or_else(|e| end_all(&**ranks, e))?;
    }
    let ending = observer(args, &**ranks, &trainer, &corpus, &interrupt)
        .and_then(|mut observer| Ok(trainer.run(&interrupt, &mut *observer)?))
        .or_else(|e| end_all(&**ranks, e))?;
    let said = if is_first { report(args, &trainer, &folder, ending) } else { Ok(()) };
    if ending == Ending::Interrupted {
        if is_first {
            say!("hint: whatwhere train --resume --out {}", folder.path().display());
        }
        return Err(Ended::INTERRUPTED.into());
    }
    said
}

/// The settings by which data are read: those of a run that goes on, with the tokens in its own folder where the run that it
/// began from is gone.
fn with_own_tokens(args: &Train, settings: &RunSettings, folder: &Folder) -> RunSettings {
    let mut settings = settings.clone();
    if let Some(TokenizerSettings::File(file)) = &mut settings.data.tokenizer
        && args.resume
        && !file.path.is_file()
        && folder.tokenizer().is_file()
    {
        file.path = folder.tokenizer();
    }
    settings
}

/// An error of data that another run's tokens cannot say, with what can be done.
fn with_way_out(args: &Train, error: anyhow::Error) -> anyhow::Error {
    use whatwhere_data::Error::Character;
    let is_unknown = matches!(error.downcast_ref(), Some(Character { .. }));
    match base(args).filter(|base| is_unknown && !base.new_embeddings) {
        Some(Base { path, .. }) => error.context(format!(
            "{} cannot say these data with its tokens; --new-embeddings with a data.tokenizer of their own draws the vectors of \
             tokens anew",
            path.display()
        )),
        None => error,
    }
}

/// Says what is held out and what is cut, before the first update, and where the folder's file system has no locks.
fn say_data(trainer: &Trainer, corpus: &Corpus, folder: &Folder) -> anyhow::Result<()> {
    if !lock::keeps(folder.path()) {
        say!("{}", verb::without_locks(folder.path()));
    }
    corpus.describe().held_out().iter().for_each(|said| say!("{said}"));
    if let Some(said) = trainer.settings().training.said_of_precision() {
        say!("{said}");
    }
    say_cut(&trainer::batches(trainer.settings(), corpus, Split::Train)?, trainer.settings());
    Ok(())
}

/// Who looks on: rank 0, if anybody.
fn observer(
    args: &Train,
    ranks: &dyn Ranks,
    trainer: &Trainer,
    corpus: &Corpus,
    interrupt: &Interrupt,
) -> anyhow::Result<Box<dyn Observer>> {
    let (is_first, size) = (ranks.rank() == 0, ranks.size());
    Ok(match is_first {
        true if args.tui => Box::new(Dashboard::new(trainer, corpus, interrupt.clone())?),
        // Launchers stand between a rank and the terminal.
        true if io::stderr().is_terminal() || args.verbose || size > 1 => {
            Box::new(Progress::new(trainer.step(), trainer.settings().training.steps, size))
        }
        _ => Box::new(()),
    })
}

/// Ends all ranks for an error that one of them has; what all of them have is left to be said once.
fn end_all<T>(ranks: &dyn Ranks, error: anyhow::Error) -> anyhow::Result<T> {
    let is_of_all = error
        .downcast_ref::<whatwhere_training::Error>()
        .is_some_and(whatwhere_training::Error::is_of_all_ranks);
    if ranks.size() > 1 && !is_of_all {
        say!("error: rank {}: {error:#}", ranks.rank());
        ranks.abort(1);
    }
    Err(error)
}

/// [`ranks::agree`] on anything.
fn agree<T>(ranks: &dyn Ranks, own: anyhow::Result<T>) -> anyhow::Result<T> {
    ranks::agree(ranks, own.map_err(Own)).map_err(|Own(error)| error)
}

/// An error of ours, which can be one of another rank.
struct Own(anyhow::Error);

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<whatwhere_training::Error> for Own {
    fn from(error: whatwhere_training::Error) -> Self {
        Self(error.into())
    }
}

/// The settings, which rank 0 reads for all: others may not have its folders. What a rank makes of them is still to be
/// agreed on.
fn shared_settings(
    args: &Train,
    folder: &Folder,
    ranks: &dyn Ranks,
) -> anyhow::Result<anyhow::Result<RunSettings>> {
    let own = (ranks.rank() == 0).then(|| {
        if args.tui {
            // Before a run is begun that would then be in the way.
            Dashboard::require_terminal()?;
        }
        let settings = settings(args, folder)?;
        Ok((settings.to_toml()?, settings))
    });
    let (text, own) = agree(ranks, own.transpose())?.unzip();
    let text = ranks::broadcast_text(ranks, &text.unwrap_or_default())?;
    Ok(own.map_or_else(|| Ok(RunSettings::read(&text, &[])?), Ok))
}

/// A new run, or one that goes on.
fn begin(
    args: &Train,
    ranks: &Arc<dyn Ranks>,
    settings: RunSettings,
    corpus: &Corpus,
    folder: &Folder,
) -> anyhow::Result<Trainer> {
    let (ranks, corpus, folder) = (ranks.clone(), corpus.clone(), folder.clone());
    if args.resume {
        return Ok(Trainer::resume_among(ranks, settings, corpus, folder)?);
    }
    let base = base(args);
    let started = Trainer::start_among(ranks, settings, corpus, folder, base.as_ref());
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
    Ok(trainer)
}

/// The run to start from, if any.
fn base(args: &Train) -> Option<Base> {
    let path = args.from.clone()?;
    Some(Base { path, new_embeddings: args.new_embeddings })
}

/// The settings of a new run, or of the one in the folder.
fn settings(args: &Train, folder: &Folder) -> anyhow::Result<RunSettings> {
    if let Some(base) = base(args) {
        return settings_from(&base, &args.settings);
    }
    if !args.resume || args.settings.are_given() {
        return args.settings.read();
    }
    args.settings.changed(&folder.load_settings()?.to_toml()?)
}

/// The settings of a run that starts from another: all of that one's, or its model and tokens under the recipe of a preset. A
/// file of settings has a model of its own.
fn settings_from(base: &Base, given: &Settings) -> anyhow::Result<RunSettings> {
    let begun = base.settings()?;
    if !given.are_given() {
        return given.changed(&begun.to_toml()?);
    }
    let mut shared = Vec::new();
    let mut settings = match given.config {
        Some(_) => given.read()?,
        None => {
            shared.push("model");
            given.read_onto(&begun)?
        }
    };
    let shares_tokens = !given.name_a_tokenizer(&settings) && !base.new_embeddings;
    if shares_tokens && base.share_tokenizer(&mut settings)? {
        shared.push("tokens");
    }
    if !shared.is_empty() {
        say!("{}: of {}", shared.join(" and "), base.path.display());
    }
    Ok(settings)
}

/// Says how many texts of a split are longer than rows.
pub(crate) fn say_cut(batches: &Batches, settings: &RunSettings) {
    let (cut, length) = (batches.cut(), settings.row_length());
    let bound = match length < settings.training.length {
        true => format!("the {length} tokens that the model has positions for"),
        false => format!("training.length = {length} tokens"),
    };
    if cut > 0 {
        say!("cut: {cut} texts have more than {bound}; what follows is not read");
    }
}

/// The corpus. Preparing it can be interrupted.
pub(crate) fn load(settings: &RunSettings, interrupt: &Interrupt) -> anyhow::Result<Corpus> {
    load_as(true, settings, interrupt)
}

/// [`load`], and whether to say anything.
fn load_as(talks: bool, settings: &RunSettings, interrupt: &Interrupt) -> anyhow::Result<Corpus> {
    if !talks {
        return Ok(Corpus::load(&settings.data)?);
    }
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
