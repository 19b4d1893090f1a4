//! One folder, many processes, on one machine or on many: a run belongs to whoever holds its lock, and is finished when its
//! outcome stands. There is no other list, no server and nothing to clean up: a lock ends with its process.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use whatwhere_training::{interrupt::Interrupt, lock::Lock};

use super::{
    Amount, Comparison, Trained, cell,
    queue::{self, Job, Queue},
};
use crate::{Error, grid::Cell, report::make_folder};

/// Between two looks at runs that others have.
const PAUSE: Duration = Duration::from_secs(2);
/// How soon Ctrl-C ends a pause.
const GLANCE: Duration = Duration::from_millis(100);

/// Waits a little, or until it is to stop.
pub(super) fn pause(interrupt: &Interrupt) {
    let end = Instant::now() + PAUSE;
    while Instant::now() < end && !interrupt.requested() {
        thread::sleep(GLANCE);
    }
}

/// Whether another process has what was asked for.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Training(whatwhere_training::Error::Busy { .. }))
}

/// Waits until no other process is in a folder that must not have two at a time; nothing if interrupted.
pub(crate) fn turn(folder: &Path, interrupt: &Interrupt) -> Result<Option<Lock>, Error> {
    make_folder(folder)?;
    while !interrupt.requested() {
        match Lock::take(&folder.join(".turn.lock"), folder).map_err(Error::from) {
            Err(e) if is_busy(&e) => pause(interrupt),
            lock => return lock.map(Some),
        }
    }
    Ok(None)
}

impl Comparison {
    /// Takes a run for this process, until it is measured. The run folder's own lock ends with its training.
    pub(super) fn hold(&self, job: &Job) -> Result<Lock, Error> {
        let folder = self.run_folder(job.cell, job.seed());
        let path = folder.path().with_file_name(format!(".seed-{}.lock", job.seed()));
        make_folder(path.parent().unwrap_or(&self.folder))?;
        let lock = Lock::take(&path, folder.path())?;
        if self.share && !lock.is_held() {
            return Err(Error::NoLocks { folder: self.folder.clone() });
        }
        Ok(lock)
    }

    /// What failed in this process, for want of memory or of disk, may have gone well in another: then it did not fail.
    pub(super) fn reconsider(
        &self,
        cells: &[Cell],
        amount: Amount,
        queue: &mut Queue,
        interrupt: &Interrupt,
    ) {
        for place in queue.failed() {
            let mut jobs = queue::jobs(cells, self.seeds);
            jobs.retain(|job| job.place == place);
            loop {
                let found: Result<Option<Vec<Trained>>, Error> =
                    jobs.iter().map(|job| self.outcome(job, amount, queue, interrupt)).collect();
                if let Ok(Some(runs)) = found {
                    queue.revive(place, runs);
                    break;
                }
                if interrupt.requested() {
                    return queue.interrupt();
                }
                if !jobs.iter().any(|job| self.hold(job).is_err_and(|e| is_busy(&e))) {
                    break;
                }
                pause(interrupt);
            }
        }
    }

    /// The outcome of a run, if it stands; nothing is trained or timed for it.
    pub(super) fn outcome(
        &self,
        job: &Job,
        amount: Amount,
        queue: &mut Queue,
        interrupt: &Interrupt,
    ) -> Result<Option<Trained>, Error> {
        let folder = self.run_folder(job.cell, job.seed());
        if !folder.has_run() {
            return Ok(None);
        }
        let corpus = queue.corpus(&job.settings, interrupt)?;
        cell::load(&folder, &self.resolved(job, &corpus)?, &corpus, self, amount)
    }
}
