//! One process per run folder. The system holds the lock, so it ends with the process, however that ends.
//!
//! Some file systems of clusters have no locks. There a [`Lock`] is not held, and whoever takes it says so.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::{Error, machine};

/// Name of the lock file in a run folder. It stays; only who has it locked matters.
pub const NAME: &str = ".lock";

/// Something that is ours until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    is_held: bool,
}

impl Lock {
    /// Makes the run folder if need be, takes it, and clears what a killed process left half-written.
    pub fn acquire(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder, "made"))?;
        let lock = Self::take(&folder.join(NAME), folder)?;
        whatwhere_files::remove_partials(folder).map_err(Error::file(folder, "cleared"))?;
        Ok(lock)
    }

    /// Locks a file, which is made if need be, for a folder that it keeps to one process.
    pub fn take(path: &Path, folder: &Path) -> Result<Self, Error> {
        let mut file = open(path)?;
        let is_held = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy { folder: folder.into(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(e)) if has_no_locks(&e) => false,
            Err(TryLockError::Error(e)) => return Err(Error::file(path, "locked")(e)),
        };
        Self::signed(path, file, is_held)
    }

    /// Locks a file as soon as nobody else has it.
    pub fn wait(path: &Path) -> Result<Self, Error> {
        let file = open(path)?;
        let is_held = match file.lock() {
            Ok(()) => true,
            Err(e) if has_no_locks(&e) => false,
            Err(e) => return Err(Error::file(path, "locked")(e)),
        };
        Self::signed(path, file, is_held)
    }

    fn signed(path: &Path, mut file: File, is_held: bool) -> Result<Self, Error> {
        sign(&mut file).map_err(Error::file(path, "written"))?;
        Ok(Self { _file: file, is_held })
    }

    /// Whether others are kept out: not on a file system without locks.
    pub fn is_held(&self) -> bool {
        self.is_held
    }
}

/// Whether a run folder that was taken is kept from others: not on a file system without locks.
pub fn keeps(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join(NAME)) else { return true };
    !matches!(file.try_lock_shared(), Err(TryLockError::Error(e)) if has_no_locks(&e))
}

fn open(path: &Path) -> Result<File, Error> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(Error::file(path, "opened"))
}

/// Whether a file system has no locks (`ENOSYS`, `EOPNOTSUPP`), or nobody who keeps them (`ENOLCK`).
fn has_no_locks(error: &io::Error) -> bool {
    const NOBODY: i32 = if cfg!(target_os = "linux") { 37 } else { 77 };
    error.kind() == io::ErrorKind::Unsupported || cfg!(unix) && error.raw_os_error() == Some(NOBODY)
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    write!(file, "{}:{}", machine::host(), std::process::id())
}

/// Who has the lock, for the message; unknown where the system does not let others read a locked file.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let text = file.read_to_string(&mut text).map(|_| text.trim()).unwrap_or_default();
    let (host, process) = text.rsplit_once(':').unwrap_or(("", text));
    match (host, process.parse::<u32>()) {
        ("", Ok(process)) => format!("process {process}"),
        (host, Ok(process)) => format!("process {process} on {host}"),
        _ => "another process".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_once_and_free_again_after() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("runs/first");
        let lock = Lock::acquire(&folder).unwrap();
        // Locks belong to open files, so a second one of the same process is refused as another's would be.
        let error = Lock::acquire(&folder).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        if cfg!(unix) {
            let (process, host) = (std::process::id(), machine::host());
            let holder = format!("is in use by process {process} on {host};");
            assert!(error.to_string().contains(&holder), "{error}");
        }
        drop(lock);
        Lock::acquire(&folder).unwrap();
    }

    #[test]
    fn a_lock_file_of_an_ended_process_does_not_keep_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "4294967295").unwrap();
        Lock::acquire(folder.path()).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_without_locks_is_told_apart() {
        for (code, expected) in [(38, true), (95, true), (37, true), (11, false), (5, false)] {
            assert_eq!(has_no_locks(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(folder.path()).unwrap();
        assert!(lock.is_held() && keeps(folder.path()));
    }

    #[test]
    fn taking_a_folder_clears_half_written_files() {
        let folder = tempfile::tempdir().unwrap();
        let partial = folder.path().join(".model.partial");
        fs::write(&partial, "half").unwrap();
        let lock = Lock::acquire(folder.path()).unwrap();
        assert!(!partial.exists());
        drop(lock);
    }
}
