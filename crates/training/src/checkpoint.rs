//! Checkpoints: named arrays of numbers and metadata, in one safetensors file.
//!
//! A file of its own for weights (`model.safetensors`) is what other tools read; the file to go on from
//! (`last.safetensors`) also holds what the optimizer remembers, so that both always belong to the same step.

use std::{borrow::Cow, collections::BTreeMap, io::Write, path::Path};

use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use whatwhere_files as files;
use whatwhere_kernels::layer::{bf16_value, f16_value};
use whatwhere_transformer::{Int8Values, Parameter};

use crate::{
    Error,
    archive::{self, Archive, Stored},
    hash,
};

/// An array to be saved, where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Array<'a> {
    pub(crate) name: String,
    pub(crate) shape: &'a [usize],
    pub(crate) values: Values<'a>,
}

/// Its values, as they are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    F32(&'a [f32]),
    /// Bits of f16.
    F16(&'a [u16]),
    /// Bits of bfloat16.
    Bf16(&'a [u16]),
    I8(&'a [i8]),
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

impl Values<'_> {
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F16(_) => Dtype::F16,
            Self::Bf16(_) => Dtype::BF16,
            Self::I8(_) => Dtype::I8,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(values) => size_of_val(*values),
            Self::F16(bits) | Self::Bf16(bits) => size_of_val(*bits),
            Self::I8(levels) => levels.len(),
        }
    }

    /// The values as little-endian bytes, some at a time.
    pub(crate) fn each_bytes<E>(
        &self,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        /// Values turned into bytes at a time.
        const CHUNK: usize = 4096;
        let mut bytes = [0; 4 * CHUNK];
        match self {
            Self::F32(values) => values.chunks(CHUNK).try_for_each(|chunk| {
                for (bytes, value) in bytes.chunks_exact_mut(4).zip(chunk) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
                each(&bytes[..4 * chunk.len()])
            }),
            Self::F16(bits) | Self::Bf16(bits) => bits.chunks(CHUNK).try_for_each(|chunk| {
                for (bytes, value) in bytes.chunks_exact_mut(2).zip(chunk) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
                each(&bytes[..2 * chunk.len()])
            }),
            Self::I8(levels) => each(bytemuck::cast_slice(levels)),
        }
    }
}

impl<'a> From<&'a Parameter> for Array<'a> {
    fn from(Parameter { name, shape, values }: &'a Parameter) -> Self {
        Self { name: name.clone(), shape, values: values.as_slice().into() }
    }
}

/// Writes the file whole or not at all, without a copy of its arrays.
pub(crate) fn save(
    path: &Path,
    mut arrays: Vec<Array>,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    // Wide values first, so that all lie where a reader can take them as they are.
    let width = |array: &Array| std::cmp::Reverse(array.values.dtype().bitsize());
    arrays.sort_by(|a, b| width(a).cmp(&width(b)).then(a.name.cmp(&b.name)));
    let mut end = 0;
    let info = |array: &Array| {
        let start = end;
        end += array.values.bytes();
        let (dtype, shape) = (array.values.dtype(), array.shape.to_vec());
        (array.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let infos = arrays.iter().map(info).collect();
    let said = serde_json::to_string(metadata).expect("texts can be written");
    let hash = hash::of_arrays(&arrays, &said);
    let header = Metadata::new(archive::metadata(metadata.clone(), hash), infos)
        .expect("as many values as the shapes say");
    let mut header = serde_json::to_vec(&header).expect("names and shapes can be written");
    header.resize(header.len().next_multiple_of(8), b' ');
    files::replace(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        arrays.iter().try_for_each(|array| array.values.each_bytes(|bytes| out.write_all(bytes)))
    })?;
    Ok(())
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) arrays: Vec<Parameter>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Reads a file, which must be whole and as it was written.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let archive = Archive::open(path)?;
        let arrays = archive.read(|name, shape, stored| {
            let values = stored.f32(name, shape).map_err(|found| archive.broken(found))?;
            let values = values.into_owned();
            Ok(Parameter { name: name.into(), shape: shape.to_vec(), values })
        })?;
        Ok(Self { arrays, metadata: archive.metadata })
    }

    /// The arrays whose names begin so, without that beginning.
    pub(crate) fn take(&mut self, beginning: &str) -> Vec<Parameter> {
        let (taken, left) = std::mem::take(&mut self.arrays)
            .into_iter()
            .partition(|array: &Parameter| array.name.starts_with(beginning));
        self.arrays = left;
        let mut taken: Vec<Parameter> = taken;
        for array in &mut taken {
            array.name.drain(..beginning.len());
        }
        taken
    }

    /// An entry of the metadata that must be there, read as a value.
    pub(crate) fn entry<T: std::str::FromStr>(&self, path: &Path, key: &str) -> Result<T, Error> {
        entry(&self.metadata, path, key)
    }
}

/// An entry of a file's metadata that must be there, read as a value.
pub(crate) fn entry<T: std::str::FromStr>(
    metadata: &BTreeMap<String, String>,
    path: &Path,
    key: &str,
) -> Result<T, Error> {
    let entry = metadata.get(key);
    entry.and_then(|entry| entry.parse().ok()).ok_or_else(|| Error::Checkpoint {
        path: path.into(),
        found: match entry {
            None => format!("no {key}"),
            Some(entry) => format!("{key} = {entry:?}"),
        },
    })
}

impl<'a> Stored<'a> {
    /// The values in f32, or what is wrong with them.
    pub(crate) fn f32(&self, name: &str, shape: &[usize]) -> Result<Cow<'a, [f32]>, String> {
        Ok(match self.dtype {
            Dtype::F16 => self.values().iter().map(|bits| f16_value(*bits)).collect(),
            Dtype::BF16 => self.values().iter().map(|bits| bf16_value(*bits)).collect(),
            Dtype::I8 => Cow::Owned(self.int8(name, shape)?.values()),
            _ => self.values(),
        })
    }

    /// Levels and scales as a model takes them, or what is wrong with them.
    pub(crate) fn int8(&self, name: &str, shape: &[usize]) -> Result<Int8Values, String> {
        let Some((scales_shape, scales)) = self.scales() else {
            return Err(format!("{name} is not of int8"));
        };
        Int8Values::new(shape, self.values().into_owned(), scales_shape, scales.into_owned())
            .map_err(|e| format!("{name}: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn example() -> Checkpoint {
        let array = |name: &str, shape: &[usize]| Parameter {
            name: name.into(),
            shape: shape.to_vec(),
            values: (0..shape.iter().product()).map(|i| i as f32 * 0.1).collect(),
        };
        let metadata = BTreeMap::from([("step".into(), "12".into()), ("a".into(), "b".into())]);
        let arrays = vec![array("a.x", &[2, 3]), array("b", &[]), array("c", &[4])];
        Checkpoint { arrays, metadata }
    }

    fn save(path: &Path) {
        let Checkpoint { arrays, metadata } = example();
        let views = arrays.iter().rev().map(|array| Array {
            name: array.name.clone(),
            shape: &array.shape,
            values: array.values.as_slice().into(),
        });
        super::save(path, views.collect(), &metadata).unwrap();
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        save(&path);
        let mut loaded = Checkpoint::load(&path).unwrap();
        assert_eq!(loaded, example());
        assert_eq!(loaded.entry::<u64>(&path, "step").unwrap(), 12);
        assert_eq!(loaded.take("a.")[0].name, "x");
    }

    #[test]
    fn a_bit_flipped_anywhere_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        save(&path);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            let outcome = Checkpoint::load(&path);
            // What is said of the arrays may be lost with its key, or be a blank that pads: the arrays are as they were.
            let message = match outcome {
                Ok(same) => {
                    assert_eq!(same.arrays, example().arrays, "byte {at}");
                    continue;
                }
                Err(error) => error.to_string(),
            };
            assert!(message.contains("x.safetensors"), "byte {at}: {message}");
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&path, &flipped).unwrap();
        let message = Checkpoint::load(&path).unwrap_err().to_string();
        assert!(message.contains("was changed, or is of another run: its SHA-256"), "{message}");
    }

    #[test]
    fn arrays_longer_than_the_buffer_are_saved_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let values: Vec<f32> = (0..9001).map(|i| i as f32 * 0.1).collect();
        let array = Array { name: "long".into(), shape: &[9001], values: values.as_slice().into() };
        super::save(&path, vec![array], &BTreeMap::new()).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap().arrays[0].values, values);
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        save(&path);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let message = Checkpoint::load(&path).unwrap_err().to_string();
            assert!(
                message.contains("x.safetensors") && message.contains("cut short"),
                "{message}"
            );
        }
    }
}
