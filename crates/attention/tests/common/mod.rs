//! Reading the outputs of independent implementations.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use safetensors::{SafeTensors, tensor::TensorView};

/// A file or folder of the repository's `fixtures`, or of those at `$WHATWHERE_SHARED` or `../shared` beside the repository;
/// says so where there is none.
pub(crate) fn fixture(path: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = env::var_os("WHATWHERE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let found = [root, shared].map(|root| root.join("fixtures").join(path));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        // The real standard error, which the test harness does not hold back; nobody to tell if it is closed.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no fixtures/{path} in the repository, ../shared or $WHATWHERE_SHARED"
        );
    }
    found
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
