//! Files that are whole or untouched, whatever happens while they are written.
//!
//! The new content goes to a partial file in the same folder, reaches the disk, and takes the old file's place in one
//! step. A full disk or a killed process leaves the old file as it was.
//! [`replace`] writes a file at once, a [`Writer`] as its content comes; [`create`] makes a file that only the first of
//! several processes makes.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// A file that could not be replaced, and is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{} could not be replaced and is as it was: {found}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What the system said. Part of the message, hence not also its source.
    pub found: io::Error,
}

/// Replaces the file, or makes it, with what `fill` writes. If that fails, the old file stays.
pub fn replace(path: &Path, fill: impl FnOnce(&mut Writer) -> io::Result<()>) -> Result<(), Error> {
    let mut writer = Writer::create(path)?;
    match fill(&mut writer) {
        Ok(()) => writer.finish(),
        Err(found) => Err(Error { path: path.into(), found }),
    }
}

/// Makes the file with what `fill` writes, unless it is there; whether it did. Of several processes, also on several
/// machines, one makes it and the others find it whole.
pub fn create(
    path: &Path,
    fill: impl FnOnce(&mut Writer) -> io::Result<()>,
) -> Result<bool, Error> {
    let mut writer = Writer::create(path)?;
    fill(&mut writer).map_err(|found| Error { path: path.into(), found })?;
    writer.finish_new()
}

/// A file that appears when it is finished; dropped before that, it leaves the old one.
#[derive(Debug)]
pub struct Writer {
    file: BufWriter<File>,
    partial: Partial,
    path: PathBuf,
}

impl Writer {
    /// Begins the partial file. Two processes that write the same file do not write into each other's.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let partial = Partial(partial(path));
        let file = File::create(&partial.0).map_err(|found| Error { path: path.into(), found })?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), partial, path: path.into() })
    }

    /// Puts the file into its place.
    pub fn finish(mut self) -> Result<(), Error> {
        let result = self
            .sync()
            .and_then(|()| fs::rename(&self.partial.0, &self.path))
            .and_then(|()| sync_folder(&self.path));
        result.map_err(|found| Error { path: self.path.clone(), found })
    }

    /// Puts the file into its place, unless another is there; whether it did.
    fn finish_new(mut self) -> Result<bool, Error> {
        let path = self.path.clone();
        let failed = |found| Error { path: path.clone(), found };
        self.sync().map_err(failed)?;
        // A second name for the partial file is made or refused in one step, on network file systems too.
        match fs::hard_link(&self.partial.0, &self.path) {
            Ok(()) => sync_folder(&self.path).map(|()| true).map_err(failed),
            Err(_) if self.path.exists() => Ok(false),
            Err(_) => self.finish().map(|()| true), // a file system on which a file has one name
        }
    }

    /// Without it, a power cut after the rename could leave an empty file.
    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The unfinished file; gone when dropped, unless it was renamed.
#[derive(Debug)]
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing to remove; after an error that error matters more.
        let _ = fs::remove_file(&self.0);
    }
}

/// Tells this process from those of other machines that have its number.
static MARK: LazyLock<u32> =
    LazyLock::new(|| RandomState::new().hash_one(std::process::id()) as u32);

/// `.NAME.PROCESS-MARK.partial` in the same folder.
fn partial(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{:08x}.partial", std::process::id(), *MARK));
    path.with_file_name(name)
}

/// Removes what writers that were killed have left in the folder. No other process may write there.
pub fn remove_partials(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && path.file_name().is_some_and(is_partial) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn is_partial(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b".") && name.ends_with(b".partial")
}

/// Makes the rename itself last. Only Unix opens folders as files.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        fs::read_dir(folder).unwrap().map(|entry| name(entry).unwrap()).collect()
    }

    #[test]
    fn a_file_is_made_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        for content in ["a longer first content", "second"] {
            replace(&path, |out| out.write_all(content.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn a_failure_half_way_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        fs::write(&path, "old").unwrap();
        let error = replace(&path, |out| {
            out.write_all(&vec![7; 3 << 20])?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert_eq!(error.found.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("model could not be replaced and is as it was: "));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        fs::write(&path, "old").unwrap();
        // The partial file is on a device that is always full.
        std::os::unix::fs::symlink("/dev/full", partial(&path)).unwrap();
        let error = replace(&path, |out| out.write_all(b"new")).unwrap_err();
        assert_eq!(error.found.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn only_partial_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".model.17.partial", "model", "my.partial", ".hidden"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_partials(folder.path()).unwrap();
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".hidden", "model", "my.partial"]);
    }

    #[test]
    fn a_file_appears_when_its_writer_finishes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let mut writer = Writer::create(&path).unwrap();
        writer.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(writer);
        assert!(names(folder.path()).is_empty());
        let mut writer = Writer::create(&path).unwrap();
        writer.write_all(b"whole").unwrap();
        writer.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(names(folder.path()), ["tokens"]);
    }

    #[test]
    fn a_file_is_made_by_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("comparison");
        assert!(create(&path, |out| out.write_all(b"first")).unwrap());
        assert!(!create(&path, |out| out.write_all(b"second")).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(names(folder.path()), ["comparison"]);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = replace(Path::new("nowhere/model"), |_| Ok(())).unwrap_err().to_string();
        assert!(error.starts_with("nowhere/model could not be replaced"), "{error}");
    }
}
