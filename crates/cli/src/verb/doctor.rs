//! `whatwhere doctor`: which convention of a model is broken.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use whatwhere_interop::{
    doctor::{self, Check, Examination, Outcome, Sample},
    kit,
};

use crate::failure::Ended;

/// Whom to examine, and against what.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
With --logits the model is held against logits that another program computed of it; where they
differ, known conventions are tried one by one (layout, base and direction of rotary, head tiling,
causal alignment, ALiBi's slopes, windows, soft caps, scales, epsilon, gains, tied output, ...), and
the one that takes the difference down to rounding is named.
Safetensors hold input_ids [batch, length], logits [batch, length, vocabulary] and, for
encoder-decoders, decoder_input_ids; JSON one object a line: {\"ids\": [1, 2], \"logits\": [[...], [...]]},
with \"source\" for encoder-decoders. Lines of `whatwhere logits --json` need --ids, the lines it read.
Without --logits the model is held against itself: cached and whole, shifted, padded.
Ends with 0 where all agrees, with 1 where something does not.")]
pub(crate) struct Doctor {
    /// A run folder, a model folder as transformers writes it, or a GGUF file.
    #[arg(required_unless_present = "write_kit")]
    model: Option<PathBuf>,
    /// Logits to hold the model against, as safetensors or JSON.
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    /// Token ids of the logits, one sequence a line, if their file has none.
    #[arg(long, value_name = "FILE", requires = "logits")]
    ids: Option<PathBuf>,
    /// The largest difference, of the largest logit, that counts as rounding.
    #[arg(long, default_value_t = doctor::TOLERANCE)]
    tolerance: f64,
    /// Write the conformance kit into a folder instead: settings, inputs, outputs and gradients of every choice, as JSON and
    /// safetensors that any framework can run.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["model", "logits"])]
    write_kit: Option<PathBuf>,
    /// Print everything as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Doctor) -> anyhow::Result<()> {
    if let Some(folder) = &args.write_kit {
        return write_kit(args, folder);
    }
    let Some(path) = &args.model else { unreachable!("required without a kit to write") };
    let samples = match &args.logits {
        None => None,
        Some(path) => Some(Sample::read(path, args.ids.as_deref())?),
    };
    let model = doctor::open(path)?;
    let agrees = match samples {
        None => {
            let checks = doctor::examine_itself(&model, None, args.tolerance)?;
            print_checks(args, path, &checks)?;
            checks.iter().all(|check| check.agrees)
        }
        Some(samples) => {
            let target = match io::stderr().is_terminal() {
                true => ProgressDrawTarget::stderr(),
                false => ProgressDrawTarget::hidden(),
            };
            let bar = ProgressBar::with_draw_target(None, target);
            bar.set_style(
                ProgressStyle::with_template("{bar:24} {pos}/{len} conventions, {elapsed}")
                    .expect("a template that indicatif reads"),
            );
            let found = doctor::examine(&model, &samples, args.tolerance, &mut |done, all| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            })?;
            bar.finish_and_clear();
            print_examination(args, path, &found)?;
            found.agrees
        }
    };
    if agrees { Ok(()) } else { Err(Ended::FAILED.into()) }
}

fn write_kit(args: &Doctor, folder: &Path) -> anyhow::Result<()> {
    let written = kit::write(folder)?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&written)?)?,
        false => writeln!(
            out,
            "{}: {} cases of {} tensors in kit.json and kit.safetensors, {} refused combinations with their reason",
            folder.display(),
            written.cases,
            written.tensors,
            written.left_out
        )?,
    }
    Ok(())
}

fn print_checks(args: &Doctor, path: &Path, checks: &[Check]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let agrees = checks.iter().all(|check| check.agrees);
    if args.json {
        writeln!(
            out,
            "{}",
            json!({ "agrees": agrees, "tolerance": args.tolerance, "checks": checks })
        )?;
        return Ok(());
    }
    let word = if agrees { "agrees with itself" } else { "does not agree with itself" };
    writeln!(out, "{}: {word}", path.display())?;
    for Check { name, compared, distance, agrees, reason } in checks {
        let figure = distance.map_or("-".into(), |distance| format!("{distance:.1e}"));
        let word = if *agrees { "" } else { "  BROKEN" };
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        writeln!(out, "  {name:<8} {figure:>8}{word}  {compared}{reason}")?;
    }
    Ok(())
}

fn print_examination(args: &Doctor, path: &Path, found: &Examination) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(found)?)?;
        return Ok(());
    }
    let name = path.display();
    let far = format!("{:.1e} of the largest", found.distance);
    if found.agrees {
        writeln!(out, "{name}: agrees, logits differ by {far}")?;
        return Ok(());
    }
    writeln!(out, "{name}: does not agree, logits differ by {far}")?;
    match found.diagnosis.as_slice() {
        [] => writeln!(out, "diagnosis: none, no convention that was tried explains it")?,
        all => writeln!(out, "diagnosis: {}", all.join(", or "))?,
    }
    writeln!(out, "\n{:<32} {:>8}  change", "convention", "then")?;
    for tried in &found.tried {
        let word = match tried.outcome {
            Outcome::Agrees => "  (agrees)",
            Outcome::Unseen => "  (not seen by these tokens)",
            Outcome::Nearer | Outcome::Farther => "",
        };
        let (convention, change) = (&tried.convention, &tried.change);
        writeln!(out, "{convention:<32} {:>8.1e}  {change}{word}", tried.distance)?;
    }
    Ok(())
}
