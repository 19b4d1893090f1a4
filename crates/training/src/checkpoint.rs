//! Checkpoints: named arrays of numbers and a few words about them, in one safetensors file.
//!
//! A file of its own for weights (`model.safetensors`) is what other tools read; the file to go on from
//! (`last.safetensors`) also holds what the optimiser remembers, so that both always belong to the same step.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::Write,
    path::Path,
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use whatwhere_transformer::Parameter;

use crate::{Error, files, hash};

/// The entry of the file's own metadata that holds the words, as JSON.
const KEY: &str = "whatwhere";
/// The word that holds the hash of the arrays and the other words.
const HASH: &str = "sha256";

/// The content of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checkpoint {
    pub(crate) arrays: Vec<Parameter>,
    pub(crate) words: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Writes the file whole or not at all.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Error> {
        let bytes: Vec<Vec<u8>> = self
            .arrays
            .iter()
            .map(|array| array.values.iter().flat_map(|value| value.to_le_bytes()).collect())
            .collect();
        let views = self.arrays.iter().zip(&bytes).map(|(array, bytes)| {
            let view = TensorView::new(Dtype::F32, array.shape.clone(), bytes)
                .expect("as many values as the shape says");
            (array.name.as_str(), view)
        });
        // One entry: several would be written in any order, and equal runs should have equal files.
        let mut words = self.words.clone();
        words.insert(HASH.into(), self.hash());
        let words = serde_json::to_string(&words).expect("words can be written");
        let file = safetensors::serialize(views, Some(HashMap::from([(KEY.into(), words)])))
            .expect("names and shapes that can be written");
        files::replace(path, |writer| writer.write_all(&file))
    }

    /// The hash of all arrays and words.
    fn hash(&self) -> String {
        let words = serde_json::to_string(&self.words).expect("words can be written");
        hash::of_arrays(&self.arrays, &words)
    }

    /// Reads a file, which must be whole and as it was written.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let file = fs::read(path).map_err(Error::file(path, "read"))?;
        let broken = |found: String| Error::Checkpoint { path: path.into(), found };
        let (_, metadata) =
            SafeTensors::read_metadata(&file).map_err(|e| broken(explain(&e, file.len())))?;
        let words = metadata.metadata().as_ref().and_then(|words| words.get(KEY));
        let mut words: BTreeMap<String, String> = match words
            .map(|words| serde_json::from_str(words))
        {
            None => BTreeMap::new(),
            Some(words) => words.map_err(|e| broken(format!("words that are no JSON ({e})")))?,
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
        let expected = words.remove(HASH);
        let checkpoint = Self { arrays, words };
        // Files of before have none.
        if let Some(expected) = expected {
            let found = checkpoint.hash();
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

    /// A word that must be there, read as a value.
    pub(crate) fn word<T: std::str::FromStr>(&self, path: &Path, key: &str) -> Result<T, Error> {
        let word = self.words.get(key);
        word.and_then(|word| word.parse().ok()).ok_or_else(|| Error::Checkpoint {
            path: path.into(),
            found: match word {
                None => format!("no {key}"),
                Some(word) => format!("{key} = {word:?}"),
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
        let words = BTreeMap::from([("step".into(), "12".into()), ("a".into(), "b".into())]);
        Checkpoint { arrays: vec![array("a.x", &[2, 3]), array("b", &[]), array("c", &[4])], words }
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        example().save(&path).unwrap();
        let mut loaded = Checkpoint::load(&path).unwrap();
        assert_eq!(loaded, example());
        assert_eq!(loaded.word::<u64>(&path, "step").unwrap(), 12);
        assert_eq!(loaded.take("a.")[0].name, "x");
    }

    #[test]
    fn a_bit_flipped_anywhere_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        example().save(&path).unwrap();
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
    fn a_file_cut_anywhere_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        example().save(&path).unwrap();
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
