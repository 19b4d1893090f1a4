//! `whatwhere serve`.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroUsize,
    path::PathBuf,
};

use clap::Args;

use crate::verb::weights::Computed;

/// What to serve, and to whom.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Run folders; a request names one by the last part of its path, or by NAME where it is given as NAME=PATH.
    #[arg(required_unless_present = "folders", value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Folders with runs and comparisons that the page lists and follows.
    #[arg(long = "runs", value_name = "FOLDER", num_args = 1..)]
    folders: Vec<PathBuf>,
    /// Where to listen; other machines reach the server only if this is not the loopback address.
    #[arg(long, default_value = "127.0.0.1", value_parser = host)]
    host: IpAddr,
    /// Where to listen; 0 takes any port that is free.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// A file with a key on each line; requests then need one of them (Authorization: Bearer KEY).
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Texts of one run that are written side by side; others wait.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,
    /// Texts that may wait for a slot of one run; further ones are refused (429).
    #[arg(long, default_value_t = 256)]
    queue: usize,
    /// Tokens of a prompt and its answer at the most; by default what the model was made for.
    #[arg(long)]
    context: Option<NonZeroUsize>,
    /// Seconds that a request may wait and take; then it is told so (504).
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    deadline: u64,
    /// Seconds that requests may go on after SIGINT or SIGTERM.
    #[arg(long, default_value_t = 30)]
    grace: u64,
    #[command(flatten)]
    computed: Computed,
}

/// An address of this machine; `localhost` is one, too.
fn host(text: &str) -> Result<IpAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        bare => bare.parse().map_err(|_| {
            "expected an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0".into()
        }),
    }
}

#[cfg(not(feature = "serve"))]
pub(crate) fn run(args: &Serve) -> anyhow::Result<()> {
    let Serve { runs, host, port, .. } = args;
    let count = runs.len();
    let what = format!("{count} run{} on {host}:{port}", if count == 1 { "" } else { "s" });
    let _ = (
        &args.folders,
        &args.api_key_file,
        args.slots,
        args.queue,
        args.context,
        args.deadline,
        args.grace,
    );
    let message = format!("cannot serve {what}: this program was built without its server");
    let hint = "build it with its feature, in the repository: `cargo build --release --features whatwhere/serve`, or `cargo install --path crates/cli --features serve`";
    Err(crate::failure::Failure::usage(message, hint).into())
}

#[cfg(feature = "serve")]
pub(crate) fn run(args: &Serve) -> anyhow::Result<()> {
    use std::{io::Write as _, time::Duration};

    use whatwhere_server::{Options, check_names, serve};

    let options = Options {
        host: args.host,
        port: args.port,
        keys: args.api_key_file.as_deref().map(keys).transpose()?.unwrap_or_default(),
        slots: args.slots.into(),
        queue: args.queue,
        context: args.context.map(NonZeroUsize::get),
        deadline: Duration::from_secs(args.deadline),
        grace: Duration::from_secs(args.grace),
        folders: args.folders.clone(),
    };
    let named: Vec<(String, PathBuf)> = args.runs.iter().map(|argument| named(argument)).collect();
    // Before any is opened, which takes its time.
    check_names(named.iter().map(|(name, _)| name.as_str()))?;
    for folder in args.folders.iter().filter(|folder| !folder.is_dir()) {
        crate::say::say!("warning: --runs {}: there is no such folder yet", folder.display());
    }
    let mut runs = Vec::with_capacity(named.len());
    for (name, path) in named {
        crate::say::say!("opening {}", path.display());
        runs.push((name, args.computed.open(&path)?));
    }
    let is_open = !options.host.is_loopback() && options.keys.is_empty();
    serve(runs, &options, |address| {
        if is_open {
            let hint = "--api-key-file FILE asks for one";
            crate::say::say!("warning: other machines can ask without a key; {hint}");
        }
        crate::say::say!("serving on http://{address} (Ctrl-C stops)");
        // For programs that asked for any port.
        let mut out = std::io::stdout();
        let _ = writeln!(out, "http://{address}").and_then(|()| out.flush());
    })?;
    Ok(())
}

/// The name and the folder of `NAME=PATH` or `PATH`.
#[cfg(feature = "serve")]
fn named(argument: &std::path::Path) -> (String, PathBuf) {
    let text = argument.to_string_lossy();
    if let Some((name, path)) = text.split_once('=').filter(|_| !argument.exists()) {
        return (name.to_owned(), path.into());
    }
    let whole = argument.canonicalize().unwrap_or_else(|_| argument.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    (name.unwrap_or_else(|| "run".into()), argument.to_owned())
}

/// The keys of a file, one on each line.
#[cfg(feature = "serve")]
fn keys(path: &std::path::Path) -> anyhow::Result<Vec<String>> {
    use anyhow::Context as _;
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} could not be read", path.display()))?;
    let keys: Vec<String> =
        text.lines().map(str::trim).filter(|key| !key.is_empty()).map(Into::into).collect();
    anyhow::ensure!(!keys.is_empty(), "{} has no key, expected one on each line", path.display());
    Ok(keys)
}
