//! `whatwhere generate`.

use std::{
    io::{self, Read, Write},
    ops::ControlFlow,
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use whatwhere_training::{Generation, Run, Sampling};

use crate::{
    say::say,
    verb::{piece::Piece, weights::Computed},
};

/// What to go on from, and how.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Larger models write by speculative decoding: a cheap draft proposes tokens, and the model checks
several at once. The text is the one it would write token by token.")]
pub(crate) struct Generate {
    /// The run folder of a decoder.
    run: PathBuf,
    /// Text to go on after; `-` reads it from standard input, without it the model begins.
    #[arg(default_value = "")]
    prompt: String,
    /// Go on after this MIDI file, with a run of chorales or MIDI.
    #[arg(long = "continue", value_name = "FILE", conflicts_with = "prompt")]
    begun: Option<PathBuf>,
    /// Write a MIDI file that plays, with a run of chorales or MIDI: what was given and what follows.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file of that name.
    #[arg(long, requires = "out")]
    force: bool,
    /// Tokens at the most.
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// Logits are divided by it; 0 always takes the likeliest token.
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f32,
    /// Only so many of the best tokens; 0 takes all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Only the best tokens that together have this probability.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Only tokens with this share of the best one's probability.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f32,
    /// Above 1, what was written becomes less likely.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f32,
    /// A string that ends the text; can be repeated.
    #[arg(long)]
    stop: Vec<String>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Generate) -> anyhow::Result<()> {
    let music = Piece::of(args.begun.as_deref(), args.out.as_deref(), args.force)?;
    let run = args.computed.open(&args.run)?;
    let mut prompt = args.prompt.clone();
    if prompt == "-" {
        prompt.clear();
        io::stdin().read_to_string(&mut prompt)?;
    }
    let generation = Generation {
        sampling: Sampling {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            min_p: args.min_p,
            repetition_penalty: args.repetition_penalty,
            seed: args.seed,
        },
        limit: args.tokens,
        stop: args.stop.clone(),
    };
    let mut out = io::stdout();
    if let Some(piece) = music {
        return piece.write(&run, &prompt, &generation, args.json);
    }
    warn_of_cut(&run, &prompt)?;
    if args.json {
        let text = run.generate(&prompt, &generation, |_| ControlFlow::Continue(()))?;
        writeln!(out, "{}", json!({ "prompt": prompt, "text": text }))?;
        return Ok(());
    }
    // Said with the first text that follows it: what is refused has no beginning on standard output.
    let mut given = Some(prompt.as_str());
    let mut written = Ok(());
    run.generate(&prompt, &generation, |text| {
        written =
            write!(out, "{}{text}", given.take().unwrap_or_default()).and_then(|()| out.flush());
        // A reader that has left wants no more.
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    writeln!(out, "{}", given.unwrap_or_default())?;
    Ok(())
}

/// Says so when a prompt is longer than what the model can read.
fn warn_of_cut(run: &Run, prompt: &str) -> anyhow::Result<()> {
    let Some(positions) = run.settings.model.longest() else { return Ok(()) };
    let tokens = run.encode(prompt)?.len();
    if tokens > positions {
        say!(
            "warning: the prompt has {tokens} tokens, the model knows {positions} positions; it goes on from the last {positions}"
        );
    }
    Ok(())
}
