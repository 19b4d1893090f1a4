//! The command `whatwhere`: words on the screen around the lab.
//!
//! `verb/` has one file for each thing to do, `comparing.rs`, `ranking.rs` and `runs.rs` the words of a comparison.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod comparing;
mod dashboard;
mod failure;
mod progress;
mod ranking;
mod runs;
mod say;
mod verb;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand};

use failure::{Ended, Failure};
use say::say;
use verb::{
    classify, compare, config, convert, data, doctor, embed, evaluate, export, extrapolate, fill,
    generate, import, logits, merge, quantize, reproduce, serve, show, train, translate, view,
};
use whatwhere_training::interrupt::EXIT_CODE;

/// Keeps freed buffers for the next step: with the system's allocator a training step spends a tenth of its time on fresh
/// pages (LOG.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ABOUT: &str = "\
Attention is what a token looks at, position is where.

Without a command: compares position encodings on tiny Shakespeare and on a task of what and
where, trained at 256 tokens and read to 4096, in about ten minutes, with a report to look at.";

#[derive(Parser)]
#[command(version, about = ABOUT)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    standard: compare::Standard,
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
    /// Tell the class of texts, with probabilities.
    Classify(classify::Classify),
    /// Turn each line of standard input into a vector.
    Embed(embed::Embed),
    /// Measure a trained run: loss, perplexity, accuracy, F1, BLEU.
    Evaluate(evaluate::Evaluate),
    /// Train a grid of settings under equal conditions, and report which to use.
    Compare(compare::Compare),
    /// Turn a model of others into a run folder: Hugging Face folders and GGUF files.
    Import(import::Import),
    /// Write a run folder for transformers, llama.cpp or onnxruntime.
    Export(export::Export),
    /// Store a run's weights in int8 or 16 bits.
    Quantize(quantize::Quantize),
    /// Print logits of token ids, for programs.
    Logits(logits::Logits),
    /// Give a run another position encoding or other heads, exactly or as a start for training.
    Convert(convert::Convert),
    /// Say which convention of a model is broken, by logits of others or by its own.
    Doctor(doctor::Doctor),
    /// Merge the adapters of a run (LoRA) into its weights.
    Merge(merge::Merge),
    /// Try trained runs at lengths nobody trained.
    Extrapolate(extrapolate::Extrapolate),
    /// Hold published claims against what this machine measures.
    Reproduce(reproduce::Reproduce),
    /// Answer requests over HTTP, as OpenAI's interface asks them (feature `serve`).
    Serve(serve::Serve),
    /// Draw encodings, patterns, tasks, trained heads, and scores split into what and where.
    Show(show::Show),
    /// Write a page on which to look into a run and a text: surprise, attention, what and where.
    View(view::Look),
    /// Print settings with every value written out, the presets, or all that can be chosen.
    Config(config::Config),
    /// Look at data, and train tokenizers on it.
    Data(data::Data),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(verb) = cli.verb else { return exit(compare::run_standard(&cli.standard)) };
    exit(match verb {
        Verb::Train(args) => train::run(&args),
        Verb::Generate(args) => generate::run(&args),
        Verb::Translate(args) => translate::run(&args),
        Verb::Fill(args) => fill::run(&args),
        Verb::Classify(args) => classify::run(&args),
        Verb::Embed(args) => embed::run(&args),
        Verb::Evaluate(args) => evaluate::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Import(args) => import::run(&args),
        Verb::Export(args) => export::run(&args),
        Verb::Quantize(args) => quantize::run(&args),
        Verb::Logits(args) => logits::run(&args),
        Verb::Convert(args) => convert::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Merge(args) => merge::run(&args),
        Verb::Extrapolate(args) => extrapolate::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Show(args) => show::run(&args),
        Verb::View(args) => view::run(&args),
        Verb::Config(args) => config::run(&args),
        Verb::Data(args) => data::run(&args),
    })
}

fn exit(result: anyhow::Result<()>) -> ExitCode {
    ExitCode::from(result.map_or_else(|error| report(&error), |()| 0))
}

/// Says what went wrong, if anything is left to be said, and returns the code to end with: 2 for a wrong command line, 1 for
/// everything else that is no end of its own.
fn report(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return 0;
    }
    if let Some(Ended(code)) = error.downcast_ref() {
        return *code;
    }
    say!("error: {error:#}");
    let failure = error.downcast_ref::<Failure>();
    if let Some(failure) = failure {
        say!("hint: {}", failure.hint);
    }
    if is_interrupted(error) {
        return EXIT_CODE as u8;
    }
    if failure.is_some() { 2 } else { 1 }
}

/// Whether Ctrl-C ended the preparation of data, or a measurement.
fn is_interrupted(error: &anyhow::Error) -> bool {
    use whatwhere_data::Error::Interrupted;
    matches!(error.downcast_ref(), Some(Interrupted))
        || matches!(error.downcast_ref(), Some(whatwhere_training::Error::Data(Interrupted)))
        || matches!(error.downcast_ref(), Some(whatwhere_lab::Error::Data(Interrupted)))
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
    fn no_arguments_mean_the_standard_comparison() {
        assert!(Cli::parse_from(["whatwhere"]).verb.is_none());
        assert!(matches!(Cli::parse_from(["whatwhere", "config"]).verb, Some(Verb::Config(_))));
    }
}
