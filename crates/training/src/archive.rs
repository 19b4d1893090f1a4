//! Reading safetensors files: every array goes straight from the file to where it stays, on all threads, and is hashed on
//! the way.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use bytemuck::Pod;
use rayon::prelude::*;
use safetensors::{Dtype, tensor::Metadata};

use crate::{Error, hash};

/// The entry of the file's own metadata that holds ours, as JSON.
pub(crate) const KEY: &str = "whatwhere";
/// The entry of our metadata that holds the hash of the arrays and the other entries.
pub(crate) const HASH: &str = "sha256";
/// What the name of an array of int8 levels is followed by in that of its scales.
pub(crate) const SCALES: &str = ".scales";

/// The header of a file whose arrays are still to be read.
pub(crate) struct Archive {
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
    /// Ours, without the hash.
    pub(crate) metadata: BTreeMap<String, String>,
    hash: Option<String>,
}

struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Bytes before it in the file.
    start: u64,
}

/// Values as they are stored.
pub(crate) enum Stored {
    F32(Vec<f32>),
    /// The bits of f16.
    F16(Vec<u16>),
    /// The bits of bfloat16.
    Bf16(Vec<u16>),
    /// Levels of 8 bits, and the bits of the f16 that each block of them is to be multiplied by.
    Int8 {
        levels: Vec<i8>,
        scales: Vec<u16>,
        scales_shape: Vec<usize>,
    },
}

impl Archive {
    /// Reads the header, which must agree with the file's length.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(Error::file(path, "read"))?;
        let length = file.metadata().map_err(Error::file(path, "read"))?.len();
        let cut = |found: &dyn std::fmt::Display| Error::Checkpoint {
            path: path.into(),
            found: format!("{length} bytes that are cut short or were never such a file ({found})"),
        };
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|e| cut(&e))?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8) {
            return Err(cut(&format!("a header of {size} bytes")));
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).map_err(|e| cut(&e))?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|e| cut(&e))?;
        let (first, data) = (8 + size, header.data_len() as u64);
        if first.checked_add(data) != Some(length) {
            return Err(cut(&format!("a header that tells of {data} bytes of arrays")));
        }
        let ours = header.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let mut metadata: BTreeMap<String, String> = match ours {
            None => BTreeMap::new(),
            Some(ours) => serde_json::from_str(ours).map_err(|e| Error::Checkpoint {
                path: path.into(),
                found: format!("metadata that is no JSON ({e})"),
            })?,
        };
        let entries = header.tensors().into_iter().map(|(name, info)| {
            let start = first + info.data_offsets.0 as u64;
            (name, Entry { dtype: info.dtype, shape: info.shape.clone(), start })
        });
        let hash = metadata.remove(HASH);
        Ok(Self { path: path.into(), entries: entries.collect(), metadata, hash })
    }

    /// Whether some of its arrays are of int8.
    pub(crate) fn is_int8(&self) -> bool {
        self.entries.values().any(|entry| entry.dtype == Dtype::I8)
    }

    /// What `make` makes of every array, given its name and shape, by name; refuses a file that is not as it was written.
    pub(crate) fn read<T: Send>(
        &self,
        make: impl Fn(&str, &[usize], Stored) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let mut names: Vec<(&str, &Entry)> = Vec::with_capacity(self.entries.len());
        for (name, entry) in &self.entries {
            let owner = name.strip_suffix(SCALES).and_then(|owner| self.entries.get(owner));
            if owner.is_none_or(|owner| owner.dtype != Dtype::I8) {
                names.push((name, entry));
            }
        }
        let mut order: Vec<usize> = (0..names.len()).collect();
        // The largest first: whoever has it is busy while others take the rest.
        order.sort_by_key(|at| std::cmp::Reverse(names[*at].1.shape.iter().product::<usize>()));
        let read = |at: usize| {
            let (name, entry) = names[at];
            let (stored, hashes) = self.stored(name, entry)?;
            Ok((at, make(name, &entry.shape, stored)?, hashes))
        };
        // One at a time: a thread that has taken many small ones could end with a large one.
        let read: Result<Vec<_>, Error> = order.into_par_iter().with_max_len(1).map(read).collect();
        let (mut made, mut hashes) = (Vec::with_capacity(names.len()), Vec::new());
        for (at, value, own) in read? {
            made.push((at, value));
            hashes.extend(own);
        }
        // Files of before have none.
        if let Some(expected) = &self.hash {
            let metadata = serde_json::to_string(&self.metadata).expect("texts can be written");
            let found = hash::of_all(hashes, &metadata);
            if found != *expected {
                return Err(Error::changed(&self.path, &found, expected));
            }
        }
        made.sort_by_key(|(at, _)| *at);
        Ok(made.into_iter().map(|(_, value)| value).collect())
    }

    /// An array, and the hashes of all it consists of by their names.
    fn stored(&self, name: &str, entry: &Entry) -> Result<(Stored, Vec<(String, Vec<u8>)>), Error> {
        let hashed = |hash| vec![(name.to_owned(), hash)];
        Ok(match entry.dtype {
            Dtype::F32 => {
                let (values, hash) = self.values::<f32>(entry)?;
                (Stored::F32(values), hashed(hash))
            }
            Dtype::F16 => {
                let (bits, hash) = self.values::<u16>(entry)?;
                (Stored::F16(bits), hashed(hash))
            }
            Dtype::BF16 => {
                let (bits, hash) = self.values::<u16>(entry)?;
                (Stored::Bf16(bits), hashed(hash))
            }
            Dtype::I8 => {
                let scales_name = format!("{name}{SCALES}");
                let of = self.entries.get(&scales_name).filter(|of| of.dtype == Dtype::F16);
                let Some(of) = of else {
                    return Err(self.broken(format!("{name} without {scales_name} in F16")));
                };
                let (levels, hash) = self.values::<i8>(entry)?;
                let (scales, scales_hash) = self.values::<u16>(of)?;
                let hashes = vec![(name.to_owned(), hash), (scales_name, scales_hash)];
                (Stored::Int8 { levels, scales, scales_shape: of.shape.clone() }, hashes)
            }
            other => {
                let found = format!("{name} holds {other:?}, expected F32, F16, BF16 or I8");
                return Err(self.broken(found));
            }
        })
    }

    /// The values of an array, and its hash. The header has been held against the file's length.
    fn values<T: Pod>(&self, entry: &Entry) -> Result<(Vec<T>, Vec<u8>), Error> {
        /// Bytes that are hashed while they are still at hand.
        const CHUNK: usize = 1 << 18;
        let read = || -> io::Result<(Vec<T>, Vec<u8>)> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(entry.start))?;
            let mut values = vec![T::zeroed(); entry.shape.iter().product()];
            let mut hash = hash::Hasher::new(entry.dtype, &entry.shape);
            let is_hashed = self.hash.is_some();
            for bytes in bytemuck::cast_slice_mut::<T, u8>(&mut values).chunks_mut(CHUNK) {
                file.read_exact(bytes)?;
                if is_hashed {
                    hash.update(bytes);
                }
                if cfg!(target_endian = "big") {
                    bytes.chunks_exact_mut(size_of::<T>()).for_each(<[u8]>::reverse);
                }
            }
            Ok((values, hash.finish()))
        };
        read().map_err(Error::file(&self.path, "read"))
    }

    pub(crate) fn broken(&self, found: String) -> Error {
        Error::Checkpoint { path: self.path.clone(), found }
    }
}

/// The metadata of a file, ours under one entry: several would be written in any order, and equal runs should have equal
/// files.
pub(crate) fn metadata(
    mut ours: BTreeMap<String, String>,
    hash: String,
) -> Option<HashMap<String, String>> {
    ours.insert(HASH.into(), hash);
    let ours = serde_json::to_string(&ours).expect("texts can be written");
    Some(HashMap::from([(KEY.into(), ours)]))
}
