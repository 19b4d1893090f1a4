//! Checkpoints: named arrays of numbers and metadata, in one safetensors file.
//!
//! A file of its own for weights (`model.safetensors`) is what other tools read; the file to go on from
//! (`last.safetensors`) also holds what the optimizer remembers, so that both always belong to the same step.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, Write},
    path::Path,
};

use safetensors::{
    Dtype, SafeTensors,
    tensor::{Metadata, TensorInfo},
};
use whatwhere_files as files;
use whatwhere_transformer::Parameter;

use crate::{Error, hash};

/// The entry of the file's own metadata that holds ours, as JSON.
const KEY: &str = "whatwhere";
/// The entry of our metadata that holds the hash of the arrays and the other entries.
const HASH: &str = "sha256";

/// An array to be saved, where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Array<'a> {
    pub(crate) name: String,
    pub(crate) shape: &'a [usize],
    pub(crate) values: &'a [f32],
}

impl<'a> From<&'a Parameter> for Array<'a> {
    fn from(Parameter { name, shape, values }: &'a Parameter) -> Self {
        Self { name: name.clone(), shape, values }
    }
}

/// Writes the file whole or not at all, without a copy of its arrays.
pub(crate) fn save(
    path: &Path,
    mut arrays: Vec<Array>,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    arrays.sort_by(|a, b| a.name.cmp(&b.name));
    let mut end = 0;
    let info = |array: &Array| {
        let start = end;
        end += size_of_val(array.values);
        let (dtype, shape) = (Dtype::F32, array.shape.to_vec());
        (array.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let infos = arrays.iter().map(info).collect();
    // One entry: several would be written in any order, and equal runs should have equal files.
    let mut metadata = metadata.clone();
    metadata.insert(HASH.into(), hash_of(&arrays, &metadata));
    let ours = serde_json::to_string(&metadata).expect("texts can be written");
    let header = Metadata::new(Some(HashMap::from([(KEY.into(), ours)])), infos)
        .expect("as many values as the shapes say");
    let mut header = serde_json::to_vec(&header).expect("names and shapes can be written");
    header.resize(header.len().next_multiple_of(8), b' ');
    files::replace(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        arrays.iter().try_for_each(|array| write_values(out, array.values))
    })?;
    Ok(())
}

/// The hash of all arrays and of the metadata.
fn hash_of(arrays: &[Array], metadata: &BTreeMap<String, String>) -> String {
    let metadata = serde_json::to_string(metadata).expect("texts can be written");
    hash::of_arrays(arrays, &metadata)
}

fn write_values(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    let mut bytes = [0; 1 << 14];
    for chunk in values.chunks(bytes.len() / 4) {
        for (bytes, value) in bytes.chunks_exact_mut(4).zip(chunk) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        out.write_all(&bytes[..4 * chunk.len()])?;
    }
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
        let file = fs::read(path).map_err(Error::file(path, "read"))?;
        let broken = |found: String| Error::Checkpoint { path: path.into(), found };
        let (_, header) =
            SafeTensors::read_metadata(&file).map_err(|e| broken(explain(&e, file.len())))?;
        let ours = header.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let mut metadata: BTreeMap<String, String> = match ours
            .map(|ours| serde_json::from_str(ours))
        {
            None => BTreeMap::new(),
            Some(read) => read.map_err(|e| broken(format!("metadata that is no JSON ({e})")))?,
        };
        let tensors =
            SafeTensors::deserialize(&file).map_err(|e| broken(explain(&e, file.len())))?;
        let mut arrays = Vec::with_capacity(tensors.len());
        for (name, view) in tensors.iter() {
            if view.dtype() != Dtype::F32 {
                return Err(broken(format!("{name} holds {:?}, expected F32", view.dtype())));
            }
            let values = view
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            arrays.push(Parameter { name: name.into(), shape: view.shape().to_vec(), values });
        }
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        let expected = metadata.remove(HASH);
        let checkpoint = Self { arrays, metadata };
        // Files of before have none.
        if let Some(expected) = expected {
            let views: Vec<Array> = checkpoint.arrays.iter().map(Array::from).collect();
            let found = hash_of(&views, &checkpoint.metadata);
            if found != expected {
                return Err(Error::changed(path, &found, &expected));
            }
        }
        Ok(checkpoint)
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
        let entry = self.metadata.get(key);
        entry.and_then(|entry| entry.parse().ok()).ok_or_else(|| Error::Checkpoint {
            path: path.into(),
            found: match entry {
                None => format!("no {key}"),
                Some(entry) => format!("{key} = {entry:?}"),
            },
        })
    }
}

/// What a broken file is, in words.
fn explain(error: &safetensors::SafeTensorError, bytes: usize) -> String {
    format!("{bytes} bytes that are cut short or were never such a file ({error})")
}

#[cfg(test)]
mod tests {
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
            values: &array.values,
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
        let array = Array { name: "long".into(), shape: &[9001], values: &values };
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
