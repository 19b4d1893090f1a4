//! Reading the outputs of independent implementations.

use std::{env, fs, path::Path, path::PathBuf};

use burn::tensor::{Device, Int, Tensor, TensorData};
use safetensors::{SafeTensors, tensor::TensorView};

/// A folder of fixtures at `$WHATWHERE_SHARED` or `../shared` beside the repository; says so where there is none.
pub(crate) fn fixtures(name: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = env::var_os("WHATWHERE_SHARED").map_or(beside, PathBuf::from);
    let folder = shared.join("fixtures").join(name);
    let found = folder.is_dir();
    if !found {
        eprintln!("skipped: no fixtures/{name} in ../shared or $WHATWHERE_SHARED");
    }
    found.then_some(folder)
}

/// The tensors of a safetensors file, on the CPU.
pub(crate) struct File(Vec<u8>);

impl File {
    pub(crate) fn read(path: &Path) -> Self {
        Self(fs::read(path).expect("a fixture that can be read"))
    }

    fn words<T>(&self, name: &str, word: fn([u8; 4]) -> T) -> (Vec<T>, Vec<usize>) {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let view: TensorView = file.tensor(name).expect("a tensor of that name");
        let words = view.data().chunks_exact(4).map(|b| word(b.try_into().expect("4 bytes")));
        (words.collect(), view.shape().to_vec())
    }

    pub(crate) fn floats<const D: usize>(&self, name: &str) -> Tensor<D> {
        let (values, shape) = self.words(name, f32::from_le_bytes);
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    #[allow(dead_code, reason = "not every file leaves out tensors")]
    pub(crate) fn has(&self, name: &str) -> bool {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        file.tensor(name).is_ok()
    }

    /// Token ids, flattened.
    pub(crate) fn ids(&self, name: &str) -> Tensor<1, Int> {
        let (values, _) = self.words(name, |b| i64::from(i32::from_le_bytes(b)));
        let len = values.len();
        Tensor::from_data(TensorData::new(values, [len]), &Device::flex())
    }

    /// A linear layer's weight, stored `[out, in]`.
    pub(crate) fn weight(&self, name: &str) -> Tensor<2> {
        self.floats::<2>(&format!("{name}.weight")).transpose()
    }
}

/// The largest difference between two tensors.
pub(crate) fn difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
    (a - b).abs().max().into_scalar::<f32>()
}
