//! SHA-256 of what a run folder holds, so that a file that was changed or belongs to another run is noticed.

use std::{env, fs::File, io, sync::LazyLock};

use rayon::prelude::*;
use safetensors::Dtype;
use sha2::{Digest, Sha256};

use crate::checkpoint::Array;

/// The hash of some bytes, in hexadecimal.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The hash of the running program, which stays what it is; empty where the system does not let it be read.
pub(crate) static PROGRAM: LazyLock<String> = LazyLock::new(|| of_program().unwrap_or_default());

fn of_program() -> io::Result<String> {
    // Linux has it under this name also after the file was replaced, as by a build.
    let mut file = File::open("/proc/self/exe").or_else(|_| File::open(env::current_exe()?))?;
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash)?;
    Ok(hexadecimal(&hash.finalize()))
}

/// The hash of arrays with their names and shapes, whatever their order, and of what else is said of them.
pub(crate) fn of_arrays(arrays: &[Array], metadata: &str) -> String {
    let each = arrays.par_iter().map(|array| (array.name.clone(), of_array(array))).collect();
    of_all(each, metadata)
}

/// [`of_arrays`] of the hashes of each, by name.
pub(crate) fn of_all(mut each: Vec<(String, Vec<u8>)>, metadata: &str) -> String {
    each.sort_unstable();
    let mut hash = Sha256::new();
    for (name, array) in each {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(array);
    }
    hash.update(metadata);
    hexadecimal(&hash.finalize())
}

/// The hash of one array.
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn new(dtype: Dtype, shape: &[usize]) -> Self {
        let mut hash = Sha256::new();
        for size in shape {
            hash.update((*size as u64).to_le_bytes());
        }
        // Files of before have no other.
        if dtype != Dtype::F32 {
            hash.update(format!("{dtype:?}"));
        }
        Self(hash)
    }

    /// The next values, as little-endian bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

fn of_array(array: &Array) -> Vec<u8> {
    let mut hash = Hasher::new(array.values.dtype(), array.shape);
    let each: Result<(), std::convert::Infallible> = array.values.each_bytes(|bytes| {
        hash.update(bytes);
        Ok(())
    });
    let Ok(()) = each;
    hash.finish()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_bytes(b"abc"), abc);
    }

    #[test]
    fn a_program_has_the_hash_of_its_file() {
        let file = std::fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(*PROGRAM, of_bytes(&file));
    }

    #[test]
    fn every_part_of_an_array_counts_and_their_order_does_not() {
        fn array<'a>(name: &str, shape: &'a [usize], values: &'a [f32]) -> Array<'a> {
            Array { name: name.into(), shape, values: values.into() }
        }
        let (a, b) = (array("a", &[2], &[1.0, 2.0]), array("b", &[1], &[3.0]));
        let whole = of_arrays(&[a.clone(), b.clone()], "");
        assert_eq!(whole, of_arrays(&[b.clone(), a.clone()], ""));
        for other in [
            of_arrays(&[a.clone(), b.clone()], "step"),
            of_arrays(&[a.clone(), array("c", &[1], &[3.0])], ""),
            of_arrays(&[array("a", &[1, 2], &[1.0, 2.0]), b.clone()], ""),
            of_arrays(&[array("a", &[2], &[1.0, f32::from_bits(2.0f32.to_bits() ^ 1)]), b], ""),
            of_arrays(&[a], ""),
        ] {
            assert_ne!(whole, other);
        }
    }
}
