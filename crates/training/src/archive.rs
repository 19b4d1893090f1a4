//! Reading safetensors files: they are mapped into memory, so that nothing is copied, and arrays are hashed by all threads.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytemuck::{AnyBitPattern, NoUninit};
use rayon::prelude::*;
use safetensors::{Dtype, tensor::Metadata};
use whatwhere_attention::bridge::Mapped;

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
    pub(crate) file: Arc<Mapped>,
    entries: BTreeMap<String, Entry>,
    /// Ours, without the hash.
    pub(crate) metadata: BTreeMap<String, String>,
    hash: Option<String>,
}

struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    part: Range<usize>,
}

/// Hashes by the names of what was hashed.
type Hashes = Vec<(String, Vec<u8>)>;

/// An array as it lies in the file.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) dtype: Dtype,
    bytes: &'a [u8],
    /// Of int8: the shape of the scales, and their bytes.
    scales: Option<(&'a [usize], &'a [u8])>,
}

impl<'a> Stored<'a> {
    /// Its values, of a type as wide as its own.
    pub(crate) fn values<T: AnyBitPattern + NoUninit>(&self) -> Cow<'a, [T]> {
        values(self.bytes)
    }

    /// The scales of int8 levels, as the bits of f16, and their shape.
    pub(crate) fn scales(&self) -> Option<(&'a [usize], Cow<'a, [u16]>)> {
        self.scales.map(|(shape, bytes)| (shape, values(bytes)))
    }
}

/// Values as they lie, or a copy where they do not lie as they must.
fn values<T: AnyBitPattern + NoUninit>(bytes: &[u8]) -> Cow<'_, [T]> {
    if cfg!(target_endian = "big") {
        let swapped: Vec<u8> =
            bytes.chunks(size_of::<T>()).flat_map(|value| value.iter().rev().copied()).collect();
        return Cow::Owned(bytemuck::pod_collect_to_vec(&swapped));
    }
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    }
}

impl Archive {
    /// Reads the header, which must agree with the file's length.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file(path, "read"))?;
        let length = file.metadata().map_err(Error::file(path, "read"))?.len();
        if length < 8 {
            // Nothing that could be mapped.
            return Self::of(path, fs::read(path).map_err(Error::file(path, "read"))?.into());
        }
        Self::of(path, Mapped::new(&file).map_err(Error::file(path, "read"))?)
    }

    /// The same of a file that is held; `path` is what messages call it.
    pub(crate) fn of(path: &Path, file: Mapped) -> Result<Self, Error> {
        let length = file.bytes().len();
        let file = Arc::new(file);
        let cut = |found: &dyn std::fmt::Display| Error::Checkpoint {
            path: path.into(),
            found: format!("{length} bytes that are cut short or were never such a file ({found})"),
        };
        let (size, rest) = file.bytes().split_first_chunk().ok_or_else(|| cut(&"no header"))?;
        let size = u64::from_le_bytes(*size);
        let header = usize::try_from(size).ok().and_then(|size| rest.get(..size));
        let Some(header) = header else { return Err(cut(&format!("a header of {size} bytes"))) };
        let first = 8 + header.len();
        let header: Metadata = serde_json::from_slice(header).map_err(|e| cut(&e))?;
        let data = header.data_len();
        if first.checked_add(data) != Some(file.bytes().len()) {
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
            let part = first + info.data_offsets.0..first + info.data_offsets.1;
            (name, Entry { dtype: info.dtype, shape: info.shape.clone(), part })
        });
        let (entries, hash) = (entries.collect(), metadata.remove(HASH));
        Ok(Self { path: path.into(), file, entries, metadata, hash })
    }

    /// Whether some of its arrays are of int8.
    pub(crate) fn is_int8(&self) -> bool {
        self.entries.values().any(|entry| entry.dtype == Dtype::I8)
    }

    /// Where an array lies in the file.
    pub(crate) fn part(&self, name: &str) -> Range<usize> {
        self.entries.get(name).map_or(0..0, |entry| entry.part.clone())
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
    fn stored(&self, name: &str, entry: &Entry) -> Result<(Stored<'_>, Hashes), Error> {
        let bytes = |entry: &Entry| &self.file.bytes()[entry.part.clone()];
        let mut stored = Stored { dtype: entry.dtype, bytes: bytes(entry), scales: None };
        let mut hashes = vec![(name.to_owned(), self.hash(entry))];
        match entry.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => {}
            Dtype::I8 => {
                let scales = format!("{name}{SCALES}");
                let of = self.entries.get(&scales).filter(|of| of.dtype == Dtype::F16);
                let Some(of) = of else {
                    return Err(self.broken(format!("{name} without {scales} in F16")));
                };
                stored.scales = Some((&of.shape, bytes(of)));
                hashes.push((scales, self.hash(of)));
            }
            other => {
                let found = format!("{name} holds {other:?}, expected F32, F16, BF16 or I8");
                return Err(self.broken(found));
            }
        }
        Ok((stored, hashes))
    }

    /// The hash of an array, if the file has one to be held against.
    fn hash(&self, entry: &Entry) -> Vec<u8> {
        let mut hash = hash::Hasher::new(entry.dtype, &entry.shape);
        if self.hash.is_some() {
            hash.update(&self.file.bytes()[entry.part.clone()]);
        }
        hash.finish()
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
