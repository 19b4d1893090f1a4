//! Ctrl-C: the first asks the run to stop after its step, the second ends the process at once. SIGUSR1, by which clusters
//! announce the end of a job's time, only asks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[cfg(not(target_family = "wasm"))]
use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGUSR1},
    flag,
};

#[cfg(not(target_family = "wasm"))]
use crate::Error;

/// What a shell expects of a process that ended by Ctrl-C: 128 + SIGINT.
pub const EXIT_CODE: i32 = 130;

/// Whether the run was asked to stop. Clones share the answer; the default listens to [`Interrupt::request`] only.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    #[cfg(not(target_family = "wasm"))]
    /// Listens for Ctrl-C, SIGTERM and SIGUSR1. SIGHUP is left alone, so that a run under `nohup` outlives its terminal.
    pub fn new() -> Result<Self, Error> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // Actions run in the order they were added: the end is asked for before the flag is set.
            flag::register_conditional_shutdown(signal, EXIT_CODE, interrupt.0.clone())
                .and_then(|_| flag::register(signal, interrupt.0.clone()))
                .map_err(Error::Signal)?;
        }
        flag::register(SIGUSR1, interrupt.0.clone()).map_err(Error::Signal)?;
        Ok(interrupt)
    }

    /// Whether to stop.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop, as the first Ctrl-C does.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
