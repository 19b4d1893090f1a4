//! `whatwhere view`: the page with its data inside, for machines without a browser, or with the program inside, for browsers
//! without a machine.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use whatwhere_lab::view::{self, Opened, Opening, View};
use whatwhere_training::Run;

use crate::verb::show::given;

/// What a packed file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Which run reads what, and where the page goes.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
The page shows the text by surprise with what else the model thought of, every head's attention, and scores as content +
position + interaction. It holds the text and what the models make of it; a long text's heads are pooled.")]
pub(crate) struct Look {
    /// The run folder.
    run: PathBuf,
    /// The text; `-` reads standard input.
    #[arg(long, required_unless_present = "file", conflicts_with = "file")]
    text: Option<String>,
    /// A file with the text.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The other side of a pair, for an encoder-decoder; its own translation unless given.
    #[arg(long)]
    target: Option<String>,
    /// Another run that reads the same; can be repeated.
    #[arg(long, value_name = "RUN")]
    beside: Vec<PathBuf>,
    /// The run once more, with a setting changed that leaves its weights as they are, such as position.base=500; can be
    /// repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// The run once more, with the text beginning at this position.
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: usize,
    /// A WebAssembly module of this program, as `.ci/web` makes it: the page then holds it and the runs, reads any text, and
    /// writes, without a server.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "changes", "first"])]
    module: Option<PathBuf>,
    /// Where to write the page; a file of this name is replaced.
    #[arg(long, value_name = "FILE")]
    save: PathBuf,
    /// Print one JSON object instead of the path.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Look) -> anyhow::Result<()> {
    let text = given(args.text.as_deref(), args.file.as_deref())?;
    let text = text.expect("one of the two is required");
    let page = match &args.module {
        Some(module) => alone(args, module, &text)?,
        None => saved(args, text)?,
    };
    let folder = args.save.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        let unmade = || format!("{} could not be made", folder.display());
        std::fs::create_dir_all(folder).with_context(unmade)?;
    }
    view::write(&args.save, &page)?;
    let mut out = io::stdout();
    match args.json {
        true => writeln!(out, "{}", json!({ "page": args.save, "bytes": page.len() }))?,
        false => writeln!(out, "{}", args.save.display())?,
    }
    Ok(())
}

/// The page with answers inside.
fn saved(args: &Look, text: String) -> anyhow::Result<String> {
    let plain = Opening { text, target: args.target.clone(), ..Opening::default() };
    let own = Arc::new(Run::open(&args.run)?);
    let mut opened = vec![read(&args.run, &own, plain.clone())?];
    if !args.changes.is_empty() || args.first > 0 {
        let changed = Opening { changes: args.changes.clone(), first: args.first, ..plain.clone() };
        opened.push(read(&args.run, &own, changed)?);
    }
    for path in &args.beside {
        let other = Arc::new(Run::open(path)?);
        opened.push(read(path, &other, plain.clone())?);
    }
    let opened: Vec<Opened> =
        opened.iter().map(|(name, opening, view)| Opened { name, opening, view }).collect();
    Ok(view::save(&opened)?)
}

/// The page with the program inside.
fn alone(args: &Look, module: &Path, text: &str) -> anyhow::Result<String> {
    let path = module.display();
    let module = std::fs::read(module).with_context(|| format!("{path} could not be read"))?;
    anyhow::ensure!(
        module.starts_with(&GZIP),
        "--module {path}: expected the packed module that `.ci/web page` makes, target/web-page/module.wasm.gz"
    );
    let paths = std::iter::once(&args.run).chain(&args.beside);
    let named: Vec<(String, &Path)> = paths.map(|path| (name(path), path.as_path())).collect();
    let runs: Vec<(&str, &Path)> =
        named.iter().map(|(name, path)| (name.as_str(), *path)).collect();
    Ok(view::alone(&module, &runs, text)?)
}

fn read(path: &Path, run: &Arc<Run>, opening: Opening) -> anyhow::Result<(String, Opening, View)> {
    let view = View::open(run, &opening).with_context(|| path.display().to_string())?;
    Ok((name(path), opening, view))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into()
}
