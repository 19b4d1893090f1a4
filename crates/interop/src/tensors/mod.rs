//! Tensors in files: where each lies, and its values as f32. Nothing is read before it is asked for, and no more than the
//! file holds is ever allocated.

mod blocks;
mod kind;
mod pack;
pub(crate) mod safetensors;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

pub(crate) use kind::Kind;

use crate::{Error, error::Result};

/// Values with sizes, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) file: usize,
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<usize>,
    /// Bytes before it in its file.
    pub(crate) start: u64,
}

/// All tensors of a model, by name.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) entries: BTreeMap<String, Entry>,
}

impl Tensors {
    /// The values of a tensor that is there.
    pub(crate) fn read(&self, name: &str) -> Result<Array> {
        let entry = &self.entries[name];
        let path = &self.files[entry.file];
        let count: usize = entry.shape.iter().product();
        let length = entry.kind.bytes(count).expect("checked when the header was read");
        let mut file = File::open(path).map_err(Error::file(path))?;
        file.seek(SeekFrom::Start(entry.start)).map_err(Error::file(path))?;
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes).map_err(Error::file(path))?;
        Ok(Array { shape: entry.shape.clone(), values: entry.kind.values(&bytes) })
    }
}

impl Tensors {
    /// Refuses tensors of one file that share bytes: together they would be larger than it.
    pub(crate) fn apart(&self, file: usize) -> Result<()> {
        let own = self.entries.iter().filter(|(_, entry)| entry.file == file);
        let mut all: Vec<(u64, u64, &str)> = own
            .map(|(name, entry)| {
                let length = count(&entry.shape).and_then(|count| entry.kind.bytes(count));
                let end =
                    entry.start.saturating_add(length.map_or(u64::MAX, |length| length as u64));
                (entry.start, end, name.as_str())
            })
            .filter(|(start, end, _)| start < end)
            .collect();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            None => Ok(()),
            Some(pair) => {
                let ((_, end, other), (start, _, name)) = (pair[0], pair[1]);
                let found =
                    format!("byte {start} as its first, within {other}, which ends at {end}");
                Err(Error::tensor(name, found, "bytes of its own"))
            }
        }
    }
}

/// The number of values of a shape, unless it overflows.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
}
