//! `whatwhere convert`: a run under another encoding, or with other heads.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use whatwhere_interop::convert::{Conversion, Converted, Loss, Recovery, Step, convert};
use whatwhere_lab::chart::{self, Axis, Lines, Series};
use whatwhere_training::{Folder, Run, RunSettings, imported::Imported, interrupt::Interrupt};

use super::train;
use crate::{failure::Failure, say::say};

/// What to change, and where to.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Exact where it can be: sinusoidal to learned, ALiBi to T5's table (for the texts its near buckets
hold), rotary between interleaved and half_split, key heads written out. Otherwise a start for
training: rotary to polar or to another scaling, key heads pooled by their mean. What has no path is
refused with what has. With --recover, or --data, the loss before and after is measured.")]
pub(crate) struct Convert {
    /// The run folder, trained or imported.
    run: PathBuf,
    /// The encoding: a name such as learned, t5 or polar, or a table such as '{ kind = \"rotary\", layout = \"interleaved\" }'.
    /// What is not said of it stays as it was.
    #[arg(long, value_name = "POSITION")]
    position: Option<String>,
    /// Heads of keys and values: fewer are means of those there are, more are copies.
    #[arg(long, value_name = "N")]
    kv_heads: Option<usize>,
    /// The run folder to write.
    #[arg(long, value_name = "RUN")]
    out: PathBuf,
    /// Updates of training after the conversion, on the run's own data or on --data.
    #[arg(long, value_name = "N", default_value_t = 0)]
    recover: u64,
    /// Data to measure and train with, in place of the run's own.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Change a setting of the training, such as training.lr=1e-4; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Batches of an evaluation at the most.
    #[arg(long, default_value_t = 20)]
    batches: usize,
    /// Write the report as a page, with the curve of the recovery.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Convert) -> anyhow::Result<()> {
    let out = Folder::new(&args.out);
    if out.has_run() {
        let message = format!("{} holds a run already", args.out.display());
        return Err(Failure::usage(message, "name another folder with --out").into());
    }
    let run = Run::open(&args.run)?;
    let length = run.imported.as_ref().and_then(|imported| imported.context);
    let conversion = Conversion {
        position: args.position.as_deref().map(Conversion::position).transpose()?,
        kv_heads: args.kv_heads,
        length: length.unwrap_or(0).max(run.settings.training.length),
    };
    let mut converted = convert(run.model(), &conversion)?;
    let loss = match args.recover > 0 || args.data.is_some() {
        false => None,
        true => Some(recover(args, &run, &mut converted)?),
    };
    run.save_as(&out, &converted.settings, &converted.parameters)?;
    if let Some(path) = &args.html {
        let page = page(args, &converted, loss.as_ref());
        whatwhere_files::replace(path, |file| file.write_all(page.as_bytes()))?;
    }
    print(args, &converted, loss.as_ref())
}

/// Measures the model before and after, and trains it as far as asked.
fn recover(args: &Convert, run: &Run, converted: &mut Converted) -> anyhow::Result<Loss> {
    let mut settings = RunSettings::read(&run.settings.to_toml()?, &args.changes)?;
    if let Some(path) = &args.data {
        settings.read_from(path)?;
    }
    if settings.data.source.takes_tokens() {
        let tokens = Imported::tokens_of(&Folder::new(&args.run))?;
        settings.data.tokenizer = Some(tokens.fixed().into());
    }
    let corpus = train::load(&settings, &Interrupt::default())?;
    let limit = Some(args.batches).filter(|limit| *limit > 0);
    let recovery = Recovery { settings: &settings, corpus: &corpus, limit, updates: args.recover };
    let every = (args.recover / 10).max(1);
    let (loss, parameters) = recovery.run(run.model(), converted, &mut |step, loss| {
        if step.is_multiple_of(every) {
            say!("update {step} of {}: loss {loss:.4}", args.recover);
        }
    })?;
    converted.parameters = parameters;
    Ok(loss)
}

/// What a step keeps, in words.
fn kept(step: &Step) -> String {
    match (step.exact, step.length) {
        (true, Some(length)) => format!("exact for texts up to {length} tokens"),
        (true, None) => "exact".into(),
        (false, _) => "not exact".into(),
    }
}

/// The report as a page.
fn page(args: &Convert, converted: &Converted, loss: Option<&Loss>) -> String {
    let title = format!("{} converted", args.run.display());
    let mut body = format!("<h1>{}</h1>\n", chart::escape(&title));
    for step in &converted.steps {
        let [change, kept, how] =
            [&step.change, &kept(step), &step.how].map(|words| chart::escape(words));
        body += &format!("<p><strong>{change}</strong>: {kept}.<br>{how}.</p>\n");
    }
    if let Some(Loss { before, after, recovered }) = loss {
        let mut points = vec![(0.0, *after)];
        points.extend(recovered.iter().map(|(updates, loss)| (*updates as f64, *loss)));
        let end = points.last().map_or(0.0, |(updates, _)| updates.max(1.0));
        let series = |name: &str, points, dashed| Series {
            name: name.into(),
            points,
            dashed,
            ..Series::default()
        };
        let lines = Lines {
            title: "Loss after the conversion".into(),
            x: Axis { label: "updates".into(), ..Axis::default() },
            y: Axis { label: "nats per token".into(), ..Axis::default() },
            series: vec![
                series("converted", points, false),
                series("as it was", vec![(0.0, *before), (end, *before)], true),
            ],
            marks: true,
            rule: None,
        };
        body += &lines.svg();
    }
    chart::page(&title, &body)
}

fn print(args: &Convert, converted: &Converted, loss: Option<&Loss>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let exact = converted.is_exact();
        let report =
            json!({ "run": args.out, "exact": exact, "steps": converted.steps, "loss": loss });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    for step in &converted.steps {
        let word = kept(step);
        writeln!(out, "{}: {word}\n  {}", step.change, step.how)?;
    }
    if let Some(Loss { before, after, recovered }) = loss {
        writeln!(out, "loss before\t{before:.4}\nloss after\t{after:.4}")?;
        for (updates, loss) in recovered {
            writeln!(out, "after {updates} updates\t{loss:.4}")?;
        }
    }
    writeln!(out, "{}", args.out.display())?;
    Ok(())
}
