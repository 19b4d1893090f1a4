//! The command `whatwhere`: words on the screen around the kernels.
//!
//! `verb/` has one file for each thing to do with models; `tour.rs` times and checks every choice of the kernels that
//! `choices.rs` lists; `picture.rs` draws some of them.

mod choices;
mod dashboard;
mod failure;
mod measure;
mod picture;
mod progress;
mod supply;
mod svg;
mod table;
mod tour;
mod verb;

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use failure::Failure;
use verb::{config, data, evaluate, fill, generate, show, train, translate};

/// Keeps freed buffers for the next step: with the system's allocator a training step spends a tenth of its time on fresh
/// pages (LOG.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ABOUT: &str = "\
Attention is what a token looks at, position is where.

Times every score, pattern and position of the attention kernels, forward and backward,
and checks each against its definition in f64. The verbs train models and use them.";

#[derive(Parser)]
#[command(version, about = ABOUT)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    tour: tour::Args,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Train a model: settings and text in, a run folder out.
    Train(train::Train),
    /// Write text with a trained decoder.
    Generate(generate::Generate),
    /// Translate standard input to standard output, line by line.
    Translate(translate::Translate),
    /// Fill `[MASK]` in a text, with probabilities.
    Fill(fill::Fill),
    /// Measure a trained run: loss, perplexity, accuracy, BLEU.
    Evaluate(evaluate::Evaluate),
    /// Draw encodings, patterns, trained heads, and scores split into what and where.
    Show(show::Show),
    /// Print settings with every value written out, the presets, or all that can be chosen.
    Config(config::Config),
    /// Look at data, and train tokenizers on it.
    Data(data::Data),
    /// Time and check every choice; the same as no command.
    Tour(tour::Args),
    /// Draw who sees whom, and score against distance, as an SVG.
    Picture {
        /// Where to write it, for example choices.svg; a file of that name is replaced.
        path: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.verb.unwrap_or(Verb::Tour(cli.tour)) {
        Verb::Tour(args) => tour::run(&args),
        Verb::Picture { path } => picture::save(&path),
        Verb::Train(args) => train::run(&args),
        Verb::Generate(args) => generate::run(&args),
        Verb::Translate(args) => translate::run(&args),
        Verb::Fill(args) => fill::run(&args),
        Verb::Evaluate(args) => evaluate::run(&args),
        Verb::Show(args) => show::run(&args),
        Verb::Config(args) => config::run(&args),
        Verb::Data(args) => data::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Says what went wrong and returns 2 for a wrong command line, 1 for everything else.
fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    let failure = error.downcast_ref::<Failure>();
    if let Some(failure) = failure {
        eprintln!("hint: {}", failure.hint);
    }
    ExitCode::from(if failure.is_some_and(|failure| failure.is_usage) { 2 } else { 1 })
}

/// Whether the reader of our output has left, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_io = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_io)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_arguments_mean_the_tour_with_its_defaults() {
        let bare = Cli::parse_from(["whatwhere"]);
        let named = Cli::parse_from(["whatwhere", "tour"]);
        assert!(bare.verb.is_none());
        assert!(matches!(named.verb, Some(Verb::Tour(args)) if args == bare.tour));
    }
}
