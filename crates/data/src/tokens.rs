//! A long run of tokens, in memory or in a file that is read where it is needed.
//!
//! The file is little-endian `u16`, or `u32` for larger vocabularies. Positional reads let the system's page cache
//! do what a memory map would, without `unsafe`.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use whatwhere_files as files;

use crate::{Error, Result};

/// The tokens of a split, one after another. Clones share them.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Store>);

#[derive(Debug)]
enum Store {
    Memory(Vec<u32>),
    Disk { file: Positional, path: PathBuf, count: usize, width: usize },
}

impl Tokens {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        match &*self.0 {
            Store::Memory(tokens) => tokens.len(),
            Store::Disk { count, .. } => *count,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens of a range.
    ///
    /// # Panics
    /// If the range ends after the last token.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<u32>> {
        match &*self.0 {
            Store::Memory(tokens) => Ok(tokens[range].to_vec()),
            Store::Disk { file, path, count, width } => {
                assert!(range.end <= *count, "{} tokens, asked for {range:?}", count);
                let mut bytes = vec![0; range.len() * width];
                file.read_at(&mut bytes, (range.start * width) as u64)
                    .map_err(Error::file(path))?;
                Ok(bytes.chunks_exact(*width).map(number).collect())
            }
        }
    }

    /// Opens a file that a [`Writer`] finished; none if there is no such file.
    pub(crate) fn open(path: &Path, vocabulary: usize) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let file = File::open(path).map_err(Error::file(path))?;
        let width = width(vocabulary);
        let count = file.metadata().map_err(Error::file(path))?.len() as usize / width;
        let path = path.to_path_buf();
        Ok(Some(Self(Arc::new(Store::Disk { file: Positional::new(file), path, count, width }))))
    }
}

/// A file that is read anywhere: on Unix without a shared place in it, so that threads need not wait for each other.
#[derive(Debug)]
struct Positional {
    #[cfg(unix)]
    file: File,
    #[cfg(not(unix))]
    file: std::sync::Mutex<File>,
}

impl Positional {
    fn new(file: File) -> Self {
        #[cfg(not(unix))]
        let file = std::sync::Mutex::new(file);
        Self { file }
    }

    #[cfg(unix)]
    fn read_at(&self, bytes: &mut [u8], place: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, bytes, place)
    }

    #[cfg(not(unix))]
    fn read_at(&self, bytes: &mut [u8], place: u64) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(bytes)
    }
}

impl From<Vec<u32>> for Tokens {
    fn from(tokens: Vec<u32>) -> Self {
        Self(Arc::new(Store::Memory(tokens)))
    }
}

/// Takes tokens as they come, into memory or into a file that appears only when it is complete.
pub(crate) enum Writer {
    Memory(Vec<u32>),
    Disk { file: files::Writer, path: PathBuf, vocabulary: usize },
}

impl Writer {
    pub(crate) fn create(path: Option<PathBuf>, vocabulary: usize) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Memory(Vec::new())) };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
        }
        Ok(Self::Disk { file: files::Writer::create(&path)?, path, vocabulary })
    }

    pub(crate) fn add(&mut self, tokens: &[u32]) -> Result<()> {
        match self {
            Self::Memory(all) => all.extend_from_slice(tokens),
            Self::Disk { file, path, vocabulary } => {
                let width = width(*vocabulary);
                for token in tokens {
                    file.write_all(&token.to_le_bytes()[..width]).map_err(Error::file(&*path))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Tokens> {
        match self {
            Self::Memory(tokens) => Ok(tokens.into()),
            Self::Disk { file, path, vocabulary } => {
                file.finish()?;
                let missing =
                    || Error::content(path.display().to_string(), "was written and is gone");
                Tokens::open(&path, vocabulary)?.ok_or_else(missing)
            }
        }
    }
}

/// Bytes of a token in a file.
fn width(vocabulary: usize) -> usize {
    if vocabulary <= 1 << 16 { 2 } else { 4 }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_on_disk_equal_those_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        for (vocabulary, largest) in [(65_536u32, 65_535), (65_537, 65_536)] {
            let tokens: Vec<u32> =
                (0..1000).map(|i| i * 77_777 % vocabulary).chain([largest]).collect();
            let path = folder.path().join(format!("deep/{vocabulary}.bin"));
            let mut writer = Writer::create(Some(path.clone()), vocabulary as usize).unwrap();
            assert!(!path.exists(), "the file appears only when it is complete");
            tokens.chunks(300).for_each(|chunk| writer.add(chunk).unwrap());
            writer.finish().unwrap();
            let read = Tokens::open(&path, vocabulary as usize).unwrap().unwrap();
            assert_eq!(read.len(), tokens.len());
            for range in [0..1001, 0..0, 999..1001, 500..501] {
                assert_eq!(read.read(range.clone()).unwrap(), tokens[range]);
            }
            assert_eq!(
                std::fs::read_dir(folder.path().join("deep")).unwrap().count(),
                if largest == 65_535 { 1 } else { 2 }
            );
        }
    }
}
