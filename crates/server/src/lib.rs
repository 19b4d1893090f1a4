//! Trained runs over HTTP: one server for decoders, encoders and encoder-decoders.
//!
//! [`serve`] is the public thing. `listen.rs` has connections and their limits, `routes.rs` the list of addresses, `openai/`,
//! `ours.rs`, `llama/` and `page.rs` what is answered there, `engine/` the thread of each run that computes, `guard.rs` who may
//! ask, `refusal.rs` the one shape of errors, `shared.rs` what all requests share.

mod address;
mod answer;
mod asked;
mod body;
mod described;
mod engine;
mod guard;
mod jinja;
mod listen;
mod llama;
mod metrics;
mod openai;
mod ours;
pub mod page;
mod patient;
mod refusal;
mod routes;
mod shared;
mod stream;
mod template;
#[cfg(test)]
mod tests;
mod text;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use thiserror::Error;
use whatwhere_training::Run;

pub use refusal::Refusal;
pub use shared::{Served, Shared};

/// What ends by itself once nobody waits for it may take so long at the end.
const LAST: Duration = Duration::from_secs(1);

/// How runs are served.
#[derive(Clone)]
pub struct Options {
    /// Where to listen.
    pub host: IpAddr,
    /// Where to listen; 0 takes any that is free.
    pub port: u16,
    /// Who may ask; everybody if empty.
    pub keys: Vec<String>,
    /// Sequences of one run that are written side by side.
    pub slots: usize,
    /// Sequences that may wait for a slot of one run.
    pub queue: usize,
    /// Tokens of a prompt and its answer at the most; what the run was made for if absent.
    pub context: Option<usize>,
    /// How long a request may take.
    pub deadline: Duration,
    /// How long requests may go on after the server was told to stop.
    pub grace: Duration,
    /// Folders with runs and comparisons, for the page.
    pub folders: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            keys: Vec::new(),
            slots: 8,
            queue: 256,
            context: None,
            deadline: Duration::from_secs(600),
            grace: Duration::from_secs(30),
            folders: Vec::new(),
        }
    }
}

/// Without the keys: what is printed is kept.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { host, port, keys, slots, queue, context, deadline, grace, folders } = self;
        f.debug_struct("Options")
            .field("host", host)
            .field("port", port)
            .field("keys", &format_args!("{} hidden", keys.len()))
            .field("slots", slots)
            .field("queue", queue)
            .field("context", context)
            .field("deadline", deadline)
            .field("grace", grace)
            .field("folders", folders)
            .finish()
    }
}

/// Why there is no server.
#[derive(Debug, Error)]
pub enum Error {
    /// The address is taken, or not this machine's.
    #[error("{address} cannot be listened on: {reason}")]
    Address {
        /// What was asked for.
        address: SocketAddr,
        /// The system's reason.
        reason: io::Error,
    },
    /// No threads, no signals.
    #[error("the server could not start: {0}")]
    Start(io::Error),
    /// Two runs of one name.
    #[error("two runs are called {0:?}; name one of them: NAME=PATH")]
    Name(String),
    /// A run that cannot be asked for.
    #[error("a run has no name, expected NAME=PATH")]
    NoName,
}

/// Refuses names by which runs cannot be told apart.
pub fn check_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut known = Vec::new();
    for name in names {
        match name {
            "" => return Err(Error::NoName),
            name if known.contains(&name) => return Err(Error::Name(name.into())),
            name => known.push(name),
        }
    }
    Ok(())
}

/// Serves runs by their names until the process is told to stop (SIGINT, SIGTERM). `ready` hears where it listens.
pub fn serve(
    runs: Vec<(String, Run)>,
    options: &Options,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let shared = Shared::new(runs, options)?;
    // Requests are read and written here; models compute on threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Error::Start)?;
    let outcome = runtime.block_on(listen::listen(routes::router(shared.clone()), options, ready));
    // What nobody waits for any more is left by the engines.
    runtime.shutdown_timeout(LAST);
    shared.stop(Instant::now() + LAST);
    outcome
}
