//! Files that are whole or untouched, whatever happens while they are written.
//!
//! The new content goes to `.NAME.partial` in the same folder, reaches the disk, and takes the old file's place in one
//! step. A full disk or a killed process leaves the old file as it was.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::Error;

/// Replaces the file, or makes it, with what `fill` writes. If that fails, the old file stays.
///
/// One process at a time: hold the folder's [`Lock`](crate::lock::Lock).
pub fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Error> {
    let partial = Partial::beside(path);
    write(&partial.0, fill)
        .and_then(|()| fs::rename(&partial.0, path))
        .and_then(|()| sync_folder(path))
        .map_err(Error::file(path, "replaced and is as it was"))
}

/// Removes what writers that were killed have left in the folder.
pub(crate) fn remove_partials(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && path.file_name().is_some_and(is_partial) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn write(
    partial: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(partial)?);
    fill(&mut writer)?;
    writer.flush()?;
    // Without it, a power cut after the rename could leave an empty file.
    writer.get_ref().sync_all()
}

/// The unfinished file; gone when dropped, unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Self {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".partial");
        Self(path.with_file_name(name))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing to remove; after an error that error matters more.
        let _ = fs::remove_file(&self.0);
    }
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
        let Error::File { found, .. } = &error else { panic!("{error}") };
        assert_eq!(found.kind(), io::ErrorKind::StorageFull);
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
        std::os::unix::fs::symlink("/dev/full", folder.path().join(".model.partial")).unwrap();
        let error = replace(&path, |out| out.write_all(b"new")).unwrap_err();
        let Error::File { found, .. } = &error else { panic!("{error}") };
        assert_eq!(found.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["model"]);
    }

    #[test]
    fn only_partial_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".model.partial", "model", "my.partial", ".hidden"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_partials(folder.path()).unwrap();
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".hidden", "model", "my.partial"]);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = replace(Path::new("nowhere/model"), |_| Ok(())).unwrap_err().to_string();
        assert!(error.starts_with("nowhere/model could not be replaced"), "{error}");
    }
}
