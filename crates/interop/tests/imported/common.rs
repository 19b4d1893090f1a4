//! Models of others to test with, and what they answered.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors};

/// Every model of the repository's fixtures and of those in `../shared` or `$WHATWHERE_SHARED`.
pub(crate) fn folders() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = env::var_os("WHATWHERE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    let places = ["fixtures/families", "fixtures/huggingface"].map(|folder| root.join(folder));
    for place in places.into_iter().chain([shared.join("fixtures/huggingface")]) {
        let Ok(entries) = fs::read_dir(&place) else {
            // The real standard error, which the test harness does not hold back.
            let _ = writeln!(std::io::stderr(), "SKIPPED: no {}", place.display());
            continue;
        };
        let paths = entries.map(|entry| entry.expect("a folder that can be listed").path());
        found.extend(paths.filter(|path| path.join("config.json").is_file()));
    }
    found.sort();
    found
}

/// What a model answered; models that are others in other files have those.
pub(crate) fn golden(folder: &Path) -> Golden {
    let own = folder.join("golden.safetensors");
    if own.is_file() {
        return Golden::read(&own);
    }
    let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
    let (of, _) = name.rsplit_once('_').expect("a name with its kind");
    Golden::read(&folder.with_file_name(of).join("golden.safetensors"))
}

/// Configs that must be refused.
pub(crate) fn refused() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = fs::read_dir(root.join("fixtures/families/refused")).expect("fixtures");
    entries.map(|entry| entry.expect("a folder that can be listed").path()).collect()
}

/// Inputs and outputs of a model.
pub(crate) struct Golden(Vec<u8>);

impl Golden {
    pub(crate) fn read(path: &Path) -> Self {
        Self(fs::read(path).expect("a fixture that can be read"))
    }

    /// Whether it has a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        file.tensor(name).is_ok()
    }

    /// Rows of token ids.
    pub(crate) fn ids(&self, name: &str) -> Vec<Vec<u32>> {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let view = file.tensor(name).expect("a tensor of that name");
        let size = if view.dtype() == Dtype::I64 { 8 } else { 4 };
        let id = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let ids: Vec<u32> = view.data().chunks_exact(size).map(id).collect();
        ids.chunks(view.shape()[1]).map(<[u32]>::to_vec).collect()
    }

    /// Values and sizes.
    pub(crate) fn floats(&self, name: &str) -> (Vec<f32>, Vec<usize>) {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let view = file.tensor(name).expect("a tensor of that name");
        let values = view.data().chunks_exact(4);
        let values = values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        (values.collect(), view.shape().to_vec())
    }
}

/// The largest difference, of the largest value.
pub(crate) fn distance(a: &[f32], b: &[f32]) -> f32 {
    let largest = b.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let far = a.iter().zip(b).fold(0f32, |far, (a, b)| {
        let one = (a - b).abs();
        if one.is_nan() { f32::INFINITY } else { far.max(one) }
    });
    far / largest
}
