//! Ranks over MPI, by `ferrompi`: errors are values, and nothing but a C compiler and MPI's headers are needed to build it.
//!
//! A watchdog ends all ranks when a call does not come back: MPI itself waits for ever when a cable is pulled.

use std::{
    fmt,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use ferrompi::{Communicator, ThreadLevel};

use super::Ranks;
use crate::{Error, machine::host};

/// The library, initialized; finalized when it is dropped, for which it waits until all ranks are there.
pub(super) struct Library {
    _library: ferrompi::Mpi,
    watch: Watch,
    world: Communicator,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Library")
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if thread::panicking() {
            // The others wait for this rank, and would for ever.
            self.world.abort(101);
        }
        // Nobody takes it away: the watch lasts until the library, dropped after this, has finalized.
        self.watch.begin("the end of all ranks");
    }
}

/// The ranks.
pub(super) struct Mpi {
    world: Communicator,
    watch: Watch,
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

pub(super) fn connect(patience: Duration) -> Result<(Library, Mpi), Error> {
    let library = ferrompi::Mpi::init_thread(ThreadLevel::Multiple)
        .map_err(|e| Error::Ranks(format!("MPI could not be started: {e}")))?;
    let watch = Watch::start(library.world(), patience)?;
    let mpi = Mpi { world: library.world(), watch: watch.clone() };
    let world = library.world();
    Ok((Library { _library: library, watch, world }, mpi))
}

impl Mpi {
    /// A call under watch.
    fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce(&Communicator) -> ferrompi::Result<T>,
    ) -> Result<T, Error> {
        self.watch.begin(what);
        let result = call(&self.world);
        self.watch.end();
        result.map_err(|e| Error::Ranks(format!("{what} with the other ranks failed: {e}")))
    }
}

/// Counts and where each begins, as MPI takes them.
fn counts(counts: &[usize]) -> Result<(Vec<i32>, Vec<i32>), Error> {
    let int = |count: usize| {
        let reason = |_| Error::Ranks(format!("{count} bytes are more than MPI takes at a time"));
        i32::try_from(count).map_err(reason)
    };
    let mut start = 0;
    let starts = counts.iter().map(|count| {
        let here = int(start);
        start += count;
        here
    });
    let starts: Result<Vec<i32>, Error> = starts.collect();
    let lengths: Result<Vec<i32>, Error> = counts.iter().map(|count| int(*count)).collect();
    Ok((lengths?, starts?))
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn all_to_all(
        &self,
        send: &[u8],
        sent: &[usize],
        receive: &mut [u8],
        received: &[usize],
    ) -> Result<(), Error> {
        let ((sent, from), (received, to)) = (counts(sent)?, counts(received)?);
        self.call("the exchange of gradients", |world| {
            world.alltoallv(send, &sent, &from, receive, &received, &to)
        })
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8], lengths: &[usize]) -> Result<(), Error> {
        let (lengths, starts) = counts(lengths)?;
        self.call("the gathering of weights and figures", |world| {
            world.allgatherv(own, all, &lengths, &starts)
        })
    }

    fn broadcast(&self, data: &mut [u8]) -> Result<(), Error> {
        /// Bytes at a time, well below what MPI counts.
        const PIECE: usize = 1 << 30;
        data.chunks_mut(PIECE).try_for_each(|piece| {
            self.call("the broadcast of rank 0", |world| world.broadcast(piece, 0))
        })
    }

    fn abort(&self, code: i32) -> ! {
        self.world.abort(code)
    }
}

/// Since when a call has been going on, and which.
#[derive(Clone, Debug, Default)]
struct Watch(Arc<Mutex<Option<(Instant, &'static str)>>>);

impl Watch {
    /// Looks several times a second, or as often as a shorter patience asks for.
    fn start(world: Communicator, patience: Duration) -> Result<Self, Error> {
        let watch = Self::default();
        let watched = watch.clone();
        let pause = (patience / 4).min(Duration::from_millis(250));
        let look = move || {
            loop {
                thread::sleep(pause);
                let begun = *watched.0.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, what)) = begun.filter(|(begun, _)| begun.elapsed() > patience) {
                    give_up(&world, what, patience);
                }
            }
        };
        thread::Builder::new()
            .name("watchdog".into())
            .spawn(look)
            .map_err(|e| Error::Ranks(format!("no thread to watch over exchanges: {e}")))?;
        Ok(watch)
    }

    fn begin(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), what));
    }

    fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Ends everything, MPI's own way first; where that does not come back either, this process, which launchers notice.
fn give_up(world: &Communicator, what: &str, patience: Duration) -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "error: rank {} on {}: {what} has taken more than {} s: another rank, its machine or the network is gone; go on with --resume, with any number of ranks",
        world.rank(),
        host(),
        patience.as_secs()
    );
    thread::spawn(|| {
        thread::sleep(Duration::from_secs(3));
        std::process::abort();
    });
    world.abort(1)
}
