//! `whatwhere evaluate`: figures of a trained run on a split of its data, or on other data.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use whatwhere_data::Split;
use whatwhere_training::{
    Evaluation, Folder, Run, RunSettings, Translation, bleu, chrf, classification::ClassFigures,
    classification_of, evaluate, imported::Imported, interrupt::Interrupt, trainer,
};

use crate::{
    say::say,
    verb::{train, weights::Computed},
};

/// What to evaluate on.
#[derive(Args, Clone, Debug)]
pub(crate) struct Evaluate {
    /// The run folder.
    run: PathBuf,
    /// Which part of the data.
    #[arg(long, value_enum, default_value_t = Part::Valid)]
    split: Part,
    /// Other data than the run's: a file or folder.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Change a setting, such as training.length=1024; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Batches at the most.
    #[arg(long)]
    batches: Option<usize>,
    /// Beginnings kept side by side when translations are scored.
    #[arg(long, default_value_t = 4)]
    beam: usize,
    #[command(flatten)]
    computed: Computed,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Train,
    Valid,
    Test,
}

#[derive(Serialize)]
struct Figures {
    #[serde(flatten)]
    evaluation: Evaluation,
    /// Those of the weights before they were quantized.
    #[serde(skip_serializing_if = "Option::is_none")]
    f32: Option<Evaluation>,
    /// Figures of each class, and which was told as which.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    classes: Option<Classes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bleu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bleu_signature: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chrf: Option<f64>,
}

#[derive(Serialize)]
struct Classes {
    /// Half of the 95 % confidence interval of the accuracy.
    accuracy_margin: f64,
    classes: Vec<ClassFigures>,
    /// Texts by their class and the likeliest.
    confusion: Vec<Vec<u64>>,
    /// Texts whose end was not read.
    cut: usize,
}

pub(crate) fn run(args: &Evaluate) -> anyhow::Result<()> {
    let run = args.computed.open(&args.run)?;
    let mut settings = RunSettings::read(&run.settings.to_toml()?, &args.changes)?;
    let mut split = match args.split {
        Part::Train => Split::Train,
        Part::Valid => Split::Valid,
        Part::Test => Split::Test,
    };
    if let Some(path) = &args.data {
        // Other data are evaluated whole, unless they have splits of their own.
        settings.read_from(path)?;
        (settings.data.valid_share, settings.data.test_share) = (0.0, 0.0);
    }
    // The run's own tokens, whatever the data.
    if settings.data.source.takes_tokens() {
        let tokens = Imported::tokens_of(&Folder::new(&args.run))?;
        settings.data.tokenizer = Some(tokens.fixed().into());
    }
    let corpus = train::load(&settings, &Interrupt::default())?;
    corpus.describe().notes.iter().for_each(|said| say!("{said}"));
    if args.data.is_some() && !corpus.has(split) {
        split = Split::Train;
    }
    let batches = trainer::batches(&settings, &corpus, split)?;
    let bytes_per_token = corpus.bytes_per_token(split);
    let classes = match corpus.classes() {
        [] => None,
        names => Some(classification_of(run.model(), &batches, args.batches, names)?),
    };
    let evaluation = match &classes {
        None => evaluate(run.model(), &batches, args.batches, bytes_per_token)?,
        Some(classes) => classes.evaluation(),
    };
    // A quantized run has no other weights to be held against.
    let f32 = match run.model().is_int8() && !run.is_stored_int8 {
        false => None,
        true => {
            let run = Run::open(&args.run)?;
            Some(evaluate(run.model(), &batches, args.batches, bytes_per_token)?)
        }
    };
    let classes = classes.map(|found| Classes {
        accuracy_margin: found.margin,
        classes: found.classes,
        confusion: found.confusion,
        cut: batches.cut(),
    });
    train::say_cut(&batches, &settings);
    let mut figures =
        Figures { evaluation, f32, classes, bleu: None, bleu_signature: None, chrf: None };
    if let Some(pairs) = corpus.pairs(split) {
        let sources: Vec<&str> = pairs.iter().map(|pair| pair.source_text.as_str()).collect();
        let references: Vec<Vec<&str>> =
            pairs.iter().map(|pair| vec![pair.target_text.as_str()]).collect();
        let translation = Translation { beam: args.beam, ..Translation::default() };
        let targets = run.translate(&sources, &translation)?;
        let score = bleu::Settings::default().corpus(&targets, &references)?;
        figures.bleu = Some(score.score);
        figures.bleu_signature = Some(score.signature);
        figures.chrf = Some(chrf::Settings::default().corpus(&targets, &references)?.score);
    }
    print(args, &figures, settings.data.source.unit())
}

fn print(args: &Evaluate, figures: &Figures, unit: &str) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(figures)?)?;
        return Ok(());
    }
    if let Some(classes) = &figures.classes {
        return print_classes(&figures.evaluation, figures.f32.as_ref(), classes, &mut out);
    }
    let Evaluation { loss, perplexity, bits_per_byte, accuracy, tokens, .. } = figures.evaluation;
    match unit {
        "token" => writeln!(out, "loss\t{loss:.4}")?,
        unit => writeln!(out, "loss\t{loss:.4}\tnats per {unit}")?,
    }
    writeln!(out, "perplexity\t{perplexity:.3}")?;
    if let Some(bits) = bits_per_byte {
        writeln!(out, "bits per byte\t{bits:.4}")?;
    }
    match figures.f32.map(|f32| (f32.loss, f32.bits_per_byte.zip(bits_per_byte))) {
        None => {}
        Some((_, Some((f32, int8)))) => {
            writeln!(out, "int8 costs\t{:+.5} bits per byte\tf32 has {f32:.5}", int8 - f32)?;
        }
        Some((f32, None)) => {
            writeln!(out, "int8 costs\t{:+.5} nats per {unit}\tf32 has {f32:.5}", loss - f32)?;
        }
    }
    writeln!(out, "accuracy\t{accuracy:.4}")?;
    writeln!(out, "{unit}s\t{tokens}")?;
    if let (Some(score), Some(signature)) = (figures.bleu, &figures.bleu_signature) {
        writeln!(out, "BLEU\t{score:.2}\t{signature}")?;
    }
    if let Some(score) = figures.chrf {
        writeln!(out, "chrF\t{score:.2}")?;
    }
    Ok(())
}

/// Classes that are listed one by one.
const LISTED: usize = 32;

fn print_classes(
    evaluation: &Evaluation,
    f32: Option<&Evaluation>,
    classes: &Classes,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Evaluation { loss, accuracy, tokens, .. } = evaluation;
    writeln!(out, "loss\t{loss:.4}")?;
    writeln!(out, "accuracy\t{accuracy:.4}\t± {:.4}", classes.accuracy_margin)?;
    if let Some(f32) = f32 {
        let costs = accuracy - f32.accuracy;
        writeln!(out, "int8 costs\t{costs:+.4} of the accuracy\tf32 has {:.4}", f32.accuracy)?;
    }
    for (name, figure) in
        [("macro F1", evaluation.macro_f1), ("calibration error", evaluation.calibration_error)]
    {
        writeln!(out, "{name}\t{:.4}", figure.unwrap_or(f64::NAN))?;
    }
    writeln!(out, "texts\t{tokens}")?;
    if classes.classes.len() > LISTED {
        return Ok(());
    }
    writeln!(out, "\nclass\ttexts\tprecision\trecall\tF1")?;
    for ClassFigures { class, precision, recall, f1, texts } in &classes.classes {
        writeln!(out, "{class}\t{texts}\t{precision:.4}\t{recall:.4}\t{f1:.4}")?;
    }
    let names: Vec<&str> = classes.classes.iter().map(|figures| figures.class.as_str()).collect();
    writeln!(out, "\nclass, told as\t{}", names.join("\t"))?;
    for (name, row) in names.iter().zip(&classes.confusion) {
        let row: Vec<String> = row.iter().map(u64::to_string).collect();
        writeln!(out, "{name}\t{}", row.join("\t"))?;
    }
    Ok(())
}
