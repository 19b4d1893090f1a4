//! The ranks that a launcher started, or this process alone.

use std::{env, sync::Arc, time::Duration};

use super::{Alone, Ranks};
use crate::Error;

/// How long an exchange may take before everything is ended; default of the command.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The ranks of this process; the connection ends when this is dropped, after all ranks have come that far.
#[derive(Debug)]
pub struct Joined {
    ranks: Arc<dyn Ranks>,
    /// What is worth knowing about how they were started.
    pub warnings: Vec<String>,
    #[cfg(feature = "mpi")]
    _library: Option<super::mpi::Library>,
}

impl Joined {
    /// The ranks.
    pub fn ranks(&self) -> Arc<dyn Ranks> {
        self.ranks.clone()
    }

    fn alone() -> Self {
        Self {
            ranks: Arc::new(Alone),
            warnings: Vec::new(),
            #[cfg(feature = "mpi")]
            _library: None,
        }
    }
}

/// What launchers call the number of processes they started: Open MPI, MPICH with its relatives, Slurm.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// How many processes a launcher says it has started, and in which words.
fn launched() -> Option<(&'static str, usize)> {
    SIZES.iter().find_map(|name| Some((*name, env::var(name).ok()?.parse().ok()?)))
}

/// Joins the ranks that `mpirun` or `srun` started; a process that nobody launched is alone. An exchange that takes longer
/// than `patience` ends them all.
pub fn join(patience: Duration) -> Result<Joined, Error> {
    match launched() {
        Some((name, size)) if size > 1 => connect(name, size, patience),
        _ => Ok(Joined::alone()),
    }
}

#[cfg(not(feature = "mpi"))]
fn connect(name: &str, size: usize, _: Duration) -> Result<Joined, Error> {
    Err(Error::Ranks(format!(
        "{name} = {size}, but this program was built without MPI, and each process would train by itself; build it with --features mpi"
    )))
}

#[cfg(feature = "mpi")]
fn connect(name: &str, size: usize, patience: Duration) -> Result<Joined, Error> {
    let (library, ranks) = super::mpi::connect(patience)?;
    if ranks.size() == 1 {
        return Err(Error::Ranks(format!(
            "{name} = {size}, but MPI knows one process; use srun --mpi=pmix, and the mpirun of the MPI that this program was built with"
        )));
    }
    let ranks: Arc<dyn Ranks> = Arc::new(ranks);
    let warnings = super::cores::share(&*ranks)?;
    Ok(Joined { ranks, warnings, _library: Some(library) })
}
