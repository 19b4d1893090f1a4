//! `whatwhere data`: what a model would read, and tokenizers to read it with.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;
use whatwhere_data::{
    Batch, Corpus, DataSettings, Split, Tokenizer, TokenizerSettings,
    settings::{Bpe, Bytes, Characters, Text},
};
use whatwhere_training::{RunSettings, interrupt::Interrupt, trainer};

use crate::{
    failure::Failure,
    progress::Preparing,
    say::say,
    verb::{Settings, train},
};

/// What to do with data.
#[derive(Args, Clone, Debug)]
pub(crate) struct Data {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Clone, Debug)]
enum Verb {
    /// Say how much there is in each split, and show tokens and a batch.
    Describe(Describe),
    /// Train a tokenizer on a text and write it as a tokenizer.json.
    Tokenizer(Train),
}

#[derive(Args, Clone, Debug)]
struct Describe {
    #[command(flatten)]
    settings: Settings,
    /// Rows of the batch to show.
    #[arg(long, default_value_t = 3)]
    rows: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
struct Train {
    /// A file, folder or archive of text.
    path: PathBuf,
    /// How text is cut.
    #[arg(long, value_enum, default_value_t = Kind::Bpe)]
    kind: Kind,
    /// Number of tokens of a bpe, special ones included; default 8192.
    #[arg(long, value_name = "N")]
    vocabulary: Option<usize>,
    /// Key of the text in .jsonl, or its column in .tsv, counted from 1.
    #[arg(long, default_value = "text")]
    field: String,
    /// Where to write it.
    #[arg(long, value_name = "FILE", default_value = "tokenizer.json")]
    out: PathBuf,
    /// Replace a file of that name.
    #[arg(long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Bpe,
    Characters,
    Bytes,
}

pub(crate) fn run(args: &Data) -> anyhow::Result<()> {
    match &args.verb {
        Verb::Describe(args) => describe(args),
        Verb::Tokenizer(args) => train(args),
    }
}

/// What there is to say of a corpus.
#[derive(Serialize)]
struct Report {
    source: &'static str,
    objective: &'static str,
    vocabulary: usize,
    /// Names of the classes, where something is classified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<String>,
    splits: BTreeMap<&'static str, Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<Shown>,
}

/// How much there is in a split. What is not known without making or reading everything is left out.
#[derive(Serialize)]
struct Figures {
    /// None is without end.
    documents: Option<u64>,
    bytes: u64,
    tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_token: Option<f64>,
    /// Tokens of a document, or of a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_length: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest: Option<usize>,
    /// Texts of each class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    texts_by_class: Vec<u64>,
}

/// The first batch of the training split.
#[derive(Serialize)]
struct Shown {
    rows: usize,
    length: usize,
    mean_length: f64,
    longest: usize,
    /// The first tokens of the first row, one by one.
    tokens: Vec<String>,
    samples: Vec<Sample>,
}

#[derive(Serialize)]
struct Sample {
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    text: String,
    /// What is to be predicted, where that is not simply the next token everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

fn describe(args: &Describe) -> anyhow::Result<()> {
    let settings = args.settings.read()?;
    let corpus = train::load(&settings, &Interrupt::default())?;
    corpus.describe().notes.iter().for_each(|said| say!("{said}"));
    let figures = |(split, part): (&Split, &whatwhere_data::Part)| {
        let pairs = corpus.pairs(*split).unwrap_or_default();
        let mean = part.tokens as f64 / part.documents as f64;
        let figures = Figures {
            documents: Some(part.documents).filter(|many| *many != u64::MAX),
            bytes: part.bytes,
            tokens: part.tokens,
            bytes_per_token: corpus.bytes_per_token(*split),
            mean_length: Some(mean).filter(|mean| *mean > 0.0),
            // With the token that ends a side, which `tokens` counts, too.
            longest: pairs.iter().map(|pair| pair.source.len().max(pair.target.len()) + 1).max(),
            texts_by_class: by_class(&corpus, *split),
        };
        (split.name(), figures)
    };
    let report = Report {
        source: settings.data.source.name(),
        objective: corpus.objective().name(),
        vocabulary: corpus.vocabulary(),
        classes: corpus.classes().to_vec(),
        splits: corpus.describe().splits.iter().map(figures).collect(),
        batch: first_batch(&settings, &corpus)
            .map(|batch| Shown::new(&batch, &corpus, args.rows))
            .inspect_err(|error| say!("warning: there is no batch to show: {error:#}"))
            .ok(),
    };
    let mut out = io::stdout().lock();
    match args.json {
        true => Ok(writeln!(out, "{}", serde_json::to_string(&report)?)?),
        false => Ok(report.write(&mut out)?),
    }
}

/// Texts of a split by their class.
fn by_class(corpus: &Corpus, split: Split) -> Vec<u64> {
    let Some(labels) = corpus.labels(split) else { return Vec::new() };
    let mut counts = vec![0; corpus.classes().len()];
    labels.into_iter().for_each(|class| counts[class as usize] += 1);
    counts
}

fn first_batch(settings: &RunSettings, corpus: &Corpus) -> anyhow::Result<Batch> {
    Ok(trainer::batches(settings, corpus, Split::Train)?.get(0)?)
}

impl Report {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { source, objective, vocabulary, classes, splits, batch } = self;
        writeln!(out, "source\t{source}\nobjective\t{objective}\nvocabulary\t{vocabulary}\n")?;
        writeln!(out, "split\tdocuments\tbytes\ttokens\tbytes/token\tmean length\tlongest")?;
        for split in [Split::Train, Split::Valid, Split::Test] {
            let name = split.name();
            let Some(figures) = splits.get(name) else { continue };
            let Figures { documents, bytes, tokens, .. } = figures;
            let documents = documents.map_or("endless".into(), |many| many.to_string());
            let float =
                |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
            let longest = figures.longest.map_or("-".into(), |longest| longest.to_string());
            let (density, mean) = (float(figures.bytes_per_token), float(figures.mean_length));
            writeln!(out, "{name}\t{documents}\t{bytes}\t{tokens}\t{density}\t{mean}\t{longest}")?;
        }
        if splits.values().any(|figures| !figures.texts_by_class.is_empty()) {
            writeln!(out, "\nclass\t{}", classes.join("\t"))?;
            for split in [Split::Train, Split::Valid, Split::Test] {
                let Some(figures) = splits.get(split.name()) else { continue };
                let counts: Vec<String> =
                    figures.texts_by_class.iter().map(u64::to_string).collect();
                writeln!(out, "{}\t{}", split.name(), counts.join("\t"))?;
            }
        }
        let Some(Shown { rows, length, mean_length, longest, tokens, samples }) = batch else {
            return Ok(());
        };
        let lengths = format!("mean {mean_length:.1}, longest {longest}");
        writeln!(out, "\nfirst batch\t{rows} rows of {length} tokens ({lengths})")?;
        let tokens: Vec<String> = tokens.iter().map(|token| format!("{token:?}")).collect();
        writeln!(out, "tokens\t{}", tokens.join(" "))?;
        for (row, Sample { source, text, target }) in samples.iter().enumerate() {
            let row = row + 1;
            if let Some(source) = source {
                writeln!(out, "row {row} source\t{source:?}")?;
            }
            writeln!(out, "row {row}\t{text:?}")?;
            if let Some(target) = target {
                writeln!(out, "row {row} target\t{target:?}")?;
            }
        }
        Ok(())
    }
}

/// Tokens that are shown one by one.
const TOKENS: usize = 16;

impl Shown {
    fn new(batch: &Batch, corpus: &Corpus, rows: usize) -> Self {
        let tokenizer = corpus.tokenizer();
        let first = &batch.tokens[..batch.lengths.first().map_or(0, |many| (*many).min(TOKENS))];
        Self {
            rows: batch.rows,
            length: batch.length,
            mean_length: batch.lengths.iter().sum::<usize>() as f64 / batch.rows.max(1) as f64,
            longest: batch.lengths.iter().copied().max().unwrap_or(0),
            tokens: first.iter().map(|token| tokenizer.token(*token)).collect(),
            samples: (0..batch.rows.min(rows)).map(|row| sample(batch, corpus, row)).collect(),
        }
    }
}

fn sample(batch: &Batch, corpus: &Corpus, row: usize) -> Sample {
    let tokenizer = corpus.tokenizer();
    let start = row * batch.length;
    let places = start..start + batch.lengths[row];
    let counts = |place: &usize| batch.weights[*place] > 0.0;
    let counted: Vec<usize> = places.clone().filter(counts).collect();
    let runs = counted.chunk_by(|a, b| a + 1 == *b);
    let target: Vec<String> =
        runs.map(|run| written(tokenizer, &batch.targets[run[0]..=run[run.len() - 1]])).collect();
    let source = batch.source.as_ref().map(|side| {
        let start = row * side.length;
        written(tokenizer, &side.tokens[start..start + side.lengths[row]])
    });
    if let Some(labels) = &batch.labels {
        let class = corpus.classes().get(labels.classes[row] as usize).cloned();
        return Sample { source, text: written(tokenizer, &batch.tokens[places]), target: class };
    }
    let is_plain = counted.len() == places.len() && source.is_none();
    Sample {
        source,
        text: written(tokenizer, &batch.tokens[places]),
        target: (!is_plain).then(|| target.join(" … ")),
    }
}

/// Text with special tokens by name, so that masks and ends can be seen.
fn written(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    tokens
        .chunk_by(|a, b| !tokenizer.is_special(*a) && !tokenizer.is_special(*b))
        .map(|run| match run {
            [token] if tokenizer.is_special(*token) => tokenizer.token(*token),
            run => tokenizer.decode(run),
        })
        .collect()
}

fn train(args: &Train) -> anyhow::Result<()> {
    if args.out.exists() && !args.force {
        let message = format!("{} exists and stays as it is", args.out.display());
        return Err(Failure::usage(message, "name another file with --out, or use --force").into());
    }
    let tokenizer: TokenizerSettings = match (args.kind, args.vocabulary) {
        (Kind::Bpe, None) => Bpe::default().into(),
        (Kind::Bpe, Some(vocabulary)) => Bpe { vocabulary }.into(),
        (Kind::Characters, None) => Characters {}.into(),
        (Kind::Bytes, None) => Bytes {}.into(),
        (_, Some(found)) => {
            let message =
                format!("--vocabulary {found}: only bpe has a number of tokens to choose");
            return Err(Failure::usage(message, "leave it out, or use --kind bpe").into());
        }
    };
    let source = Text { path: args.path.clone(), field: args.field.clone(), ..Text::default() };
    let settings =
        DataSettings { tokenizer: Some(tokenizer), valid_share: 0.0, ..DataSettings::of(source) };
    let (bar, interrupt) = (Preparing::new(), Interrupt::new()?);
    let corpus = Corpus::load_watched(&settings, &mut |work| bar.at(work, &interrupt))?;
    drop(bar);
    let tokenizer = corpus.tokenizer();
    tokenizer.save(&args.out).context("the tokenizer could not be written")?;
    let part = corpus.describe().splits.remove(&Split::Train).unwrap_or_default();
    let (bytes, tokens, vocabulary) = (part.bytes, part.tokens, tokenizer.vocabulary());
    if let Some(asked) = args.vocabulary.filter(|asked| *asked > vocabulary) {
        say!("warning: the text makes only {vocabulary} tokens, not the {asked} asked for");
    }
    let density = corpus.bytes_per_token(Split::Train);
    let mut out = io::stdout().lock();
    if args.json {
        let report = json!({
            "tokenizer": args.out, "vocabulary": vocabulary, "bytes": bytes, "tokens": tokens,
            "bytes_per_token": density,
        });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    writeln!(out, "tokenizer\t{}\nvocabulary\t{vocabulary}", args.out.display())?;
    writeln!(out, "bytes\t{bytes}\ntokens\t{tokens}")?;
    writeln!(out, "bytes per token\t{:.3}", density.unwrap_or(0.0))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_special_tokens_and_only_what_counts_as_target() {
        let settings = RunSettings::read(
            "[data]\nsource = { kind = 'copy', longest = 4 }\nobjective = 'masked'\n[training]\nbatch = 2",
            &[],
        )
        .expect("valid settings");
        let corpus = Corpus::load(&settings.data).expect("a task needs no file");
        let batch = first_batch(&settings, &corpus).expect("a batch");
        let Sample { text, target, source } = sample(&batch, &corpus, 0);
        let (given, hidden) = text.split_once('|').expect("a prompt");
        let target = target.expect("only the answer counts");
        assert_eq!((given, source), (target.as_str(), None));
        assert_eq!(hidden, "<mask>".repeat(target.len()));
    }
}
