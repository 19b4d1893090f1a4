//! `whatwhere show`: pictures of encodings, patterns, tasks and trained heads.

mod heads;

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use whatwhere_lab::show::{self, Heads, Page, Reading};
use whatwhere_training::Run;

use crate::failure::Failure;

const MOST: usize = 1 << 16; // positions of a choice that are drawn

/// What to draw.
#[derive(Args, Clone, Debug)]
pub(crate) struct Show {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Every pattern and every position encoding in one picture.
    Overview(Output),
    /// A position encoding: similarity against distance, waves, frequencies, biases.
    Position(Choice),
    /// A pattern: who sees whom, and its cost against length.
    Pattern(Choice),
    /// Examples of a synthetic task, as pictures where they are pictures.
    Task(Examples),
    /// The heads of a run over a text of any length.
    Attention(Looking),
    /// What the heads of a run do, measured over a text, and the loss without each.
    Heads(heads::Measuring),
    /// The scores of a run over a text, split into what and where.
    Split(Looking),
}

/// A choice and how it is drawn.
#[derive(Args, Clone, Debug)]
struct Choice {
    /// Its name in settings, or `all`.
    #[arg(default_value = "all")]
    name: String,
    /// Change one of its settings, such as base=500; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// How many positions are drawn; for an encoding, to either side of the query.
    #[arg(long)]
    length: Option<usize>,
    #[command(flatten)]
    output: Output,
}

/// A task and how many of its examples are shown.
#[derive(Args, Clone, Debug)]
struct Examples {
    /// Its name in settings, such as pathfinder.
    name: String,
    /// Change one of its settings, such as dashes=9; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// How many examples are shown.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=100))]
    count: u16,
    #[command(flatten)]
    output: Output,
}

/// A run, a text, and which heads are drawn.
#[derive(Args, Clone, Debug)]
struct Looking {
    /// The run folder.
    run: PathBuf,
    /// The text; `-` reads it from standard input.
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    text: Option<String>,
    /// A file with the text.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The other side of a pair, for an encoder-decoder; its own translation unless given.
    #[arg(long)]
    target: Option<String>,
    /// Only this layer, from 0; can be repeated.
    #[arg(long, value_name = "N")]
    layer: Vec<usize>,
    /// Only this head, from 0; can be repeated.
    #[arg(long, value_name = "N")]
    head: Vec<usize>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Clone, Debug)]
struct Output {
    /// Where to write index.html and the SVG files; files of their names are replaced. A folder in `show/` unless given.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of a path per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Show) -> anyhow::Result<()> {
    match &args.what {
        What::Overview(output) => output.save(&show::overview()?, "overview"),
        What::Position(choice) => {
            let page = show::position(name(choice), &choice.changes, length(choice)?)?;
            choice.output.save(&page, &format!("position-{}", choice.name))
        }
        What::Pattern(choice) => {
            let page = show::pattern(name(choice), &choice.changes, length(choice)?)?;
            choice.output.save(&page, &format!("pattern-{}", choice.name))
        }
        What::Task(task) => {
            let page = show::task(&task.name, &task.changes, task.count.into())?;
            task.output.save(&page, &format!("task-{}", task.name))
        }
        What::Attention(looking) => looking.draw("attention", usize::MAX, show::attention),
        What::Heads(measuring) => measuring.run(),
        What::Split(looking) => looking.draw("split", show::LONGEST_SPLIT, show::split),
    }
}

fn name(choice: &Choice) -> Option<&str> {
    Some(choice.name.as_str()).filter(|name| *name != "all")
}

fn length(choice: &Choice) -> anyhow::Result<Option<usize>> {
    match choice.length {
        Some(length) if !(1..=MOST).contains(&length) => {
            let message = format!("--length {length} is outside 1 to {MOST}");
            Err(Failure::usage(message, "try --length 256").into())
        }
        length => Ok(length),
    }
}

impl Looking {
    fn draw(
        &self,
        verb: &str,
        most: usize,
        draw: fn(&Reading, &Heads) -> Result<Page, whatwhere_lab::Error>,
    ) -> anyhow::Result<()> {
        let text = self.text()?;
        let run = Run::open(&self.run)?;
        let target = self.target.as_deref();
        let reading = match most {
            usize::MAX => Reading::new(&run, &text, target)?,
            most => Reading::of_at_most(&run, &text, target, most)?,
        };
        let heads = Heads { layers: self.layer.clone(), heads: self.head.clone() };
        let mut page = draw(&reading, &heads)?;
        page.words.insert(0, format!("Run `{}`.", self.run.display()));
        let run = self.run.file_name().unwrap_or(self.run.as_os_str()).to_string_lossy();
        self.output.save(&page, &format!("{verb}-{run}"))
    }

    fn text(&self) -> anyhow::Result<String> {
        Ok(given(self.text.as_deref(), self.file.as_deref())?.expect("one of the two is required"))
    }
}

/// A text that was given, or that a file has; `-` is standard input.
pub(crate) fn given(text: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    Ok(match (text, file) {
        (Some("-"), _) => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            Some(text)
        }
        (Some(text), _) => Some(text.to_owned()),
        (None, Some(path)) => {
            let text = fs::read_to_string(path);
            Some(text.with_context(|| format!("{} could not be read", path.display()))?)
        }
        (None, None) => None,
    })
}

impl Output {
    fn folder(&self, name: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new("show").join(name))
    }

    fn save(&self, page: &Page, name: &str) -> anyhow::Result<()> {
        let paths = page.save(&self.folder(name))?;
        let mut out = io::stdout();
        if self.json {
            let object = json!({ "title": page.title, "page": paths[0], "pictures": paths[1..] });
            writeln!(out, "{object}")?;
            return Ok(());
        }
        for path in paths {
            writeln!(out, "{}", path.display())?;
        }
        Ok(())
    }
}
