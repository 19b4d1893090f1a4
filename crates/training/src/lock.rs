//! One process per run folder. The system holds the lock, so it ends with the process, however that ends.

use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::Error;

/// Name of the lock file in a run folder. It stays; only who has it locked matters.
pub const NAME: &str = ".lock";

/// A run folder that is ours until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Makes the folder if need be, takes it, and clears what a killed process left half-written.
    pub fn acquire(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder, "made"))?;
        let path = folder.join(NAME);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::file(&path, "opened"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy { folder: folder.into(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(e)) => return Err(Error::file(&path, "locked")(e)),
        }
        sign(&mut file).map_err(Error::file(&path, "written"))?;
        whatwhere_files::remove_partials(folder).map_err(Error::file(folder, "cleared"))?;
        Ok(Self { _file: file })
    }
}

fn sign(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    write!(file, "{}", std::process::id())
}

/// Who has the lock, for the message; unknown where the system does not let others read a locked file.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.read_to_string(&mut text).map(|_| text.trim().parse::<u32>()) {
        Ok(Ok(process)) => format!("process {process}"),
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
            let holder = format!("is in use by process {};", std::process::id());
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
