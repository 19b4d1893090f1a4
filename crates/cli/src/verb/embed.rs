//! `whatwhere embed`: a vector for each line of standard input.

use std::{
    io::{self, BufRead, BufWriter, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use serde_json::json;
use whatwhere_training::Pooling;

use crate::{say::say, verb::weights::Computed};

/// What makes the vectors.
#[derive(Args, Clone, Debug)]
pub(crate) struct Embed {
    /// The run folder of an encoder (or of a decoder, whose last token has seen the whole text).
    run: PathBuf,
    /// How the states of a text become one vector.
    #[arg(long, value_enum, default_value_t = Pool::Mean)]
    pooling: Pool,
    /// Make every vector one of length 1, so that products are cosines.
    #[arg(long)]
    normalize: bool,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object for each line: {"embedding": […]}.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pool {
    Mean,
    First,
    Last,
}

pub(crate) fn run(args: &Embed) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let pooling = match args.pooling {
        Pool::Mean => Pooling::Mean,
        Pool::First => Pooling::First,
        Pool::Last => Pooling::Last,
    };
    let mut out = BufWriter::new(io::stdout());
    for (number, line) in io::stdin().lock().lines().enumerate() {
        let (tokens, found) = run.encode_to_embed(&line?)?;
        if tokens.len() < found {
            let (line, positions) = (number + 1, tokens.len());
            say!(
                "warning: line {line} has {found} tokens, the model knows {positions} positions; its vector is of the first {positions}"
            );
        }
        let vector = run.embed_tokens(tokens, pooling, args.normalize)?;
        if args.json {
            writeln!(out, "{}", json!({ "embedding": vector }))?;
        } else {
            let values: Vec<String> = vector.iter().map(f32::to_string).collect();
            writeln!(out, "{}", values.join("\t"))?;
        }
        out.flush()?;
    }
    Ok(())
}
