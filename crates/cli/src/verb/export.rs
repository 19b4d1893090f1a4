//! `whatwhere export`: a run folder for other programs.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use whatwhere_interop::{Weights, to_gguf, to_huggingface, to_onnx};

/// What to export, and what for.
#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    /// The run folder, trained or imported.
    run: PathBuf,
    /// Who is to read it.
    #[arg(long, value_enum)]
    to: Target,
    /// The folder to write; with gguf the file.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// How gguf stores matrices; default f32.
    #[arg(long, value_enum, value_name = "KIND")]
    weights: Option<Kind>,
    /// Print what was exported as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// transformers: config.json, model.safetensors and tokenizer.json.
    Huggingface,
    /// llama.cpp: one file with the weights, the tokenizer and the chat template.
    Gguf,
    /// onnxruntime and others: the model as a graph of standard operators, whatever its settings are.
    Onnx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    /// As they are.
    F32,
    /// 16 bits.
    F16,
    /// 8 bits, 32 of them with a common step.
    #[value(name = "q8_0")]
    Q8,
}

pub(crate) fn run(args: &Export) -> anyhow::Result<()> {
    if args.weights.is_some() && args.to != Target::Gguf {
        anyhow::bail!("--weights: only --to gguf stores weights in other kinds than f32");
    }
    let exported = match args.to {
        Target::Huggingface => to_huggingface(&args.run, &args.out)?,
        Target::Gguf => {
            let weights = match args.weights {
                None | Some(Kind::F32) => Weights::F32,
                Some(Kind::F16) => Weights::F16,
                Some(Kind::Q8) => Weights::Q8_0,
            };
            to_gguf(&args.run, &args.out, weights)?
        }
        Target::Onnx => to_onnx(&args.run, &args.out)?,
    };
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&exported)?)?;
    } else {
        let (path, family, tensors) = (args.out.display(), exported.family, exported.tensors);
        writeln!(out, "{path}: {family} of {tensors} tensors")?;
    }
    Ok(())
}
