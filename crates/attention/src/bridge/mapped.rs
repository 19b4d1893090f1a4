//! Tensors whose values lie in a file.

use std::{fs::File, io, mem::MaybeUninit, ops::Range, sync::Arc};

use burn::tensor::{DType, Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use whatwhere_kernels::Pooled;

use super::PooledBytes;

/// A file as the system holds it in memory anyway, read when it is asked for and never copied; or bytes that came without one.
#[derive(Debug)]
pub struct Mapped(Held);

#[derive(Debug)]
enum Held {
    File(memmap2::Mmap),
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for Mapped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Held::Bytes(bytes))
    }
}

impl Mapped {
    /// Maps a file, which must not be written to meanwhile: run folders replace theirs by others of the same name.
    pub fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is only read. Who writes into the file itself meanwhile, against the rule above, changes the
        // numbers that are computed with, and who shortens it ends the program.
        unsafe { memmap2::Mmap::map(file) }.map(|file| Self(Held::File(file)))
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Held::File(file) => file,
            Held::Bytes(bytes) => bytes,
        }
    }

    /// Says that a part will not be needed soon, so that it no longer counts as this process's memory.
    pub fn release(&self, part: Range<usize>) {
        #[cfg(unix)]
        if let Held::File(file) = &self.0 {
            // Pages that other parts share stay.
            const PAGE: usize = 1 << 16;
            let (start, end) = (part.start.next_multiple_of(PAGE), part.end / PAGE * PAGE);
            if start < end && end <= file.len() {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                // SAFETY: the mapping is of a file and never written to: what is asked for again is read again.
                let _ = unsafe { file.unchecked_advise_range(advice, start, end - start) };
            }
        }
        #[cfg(not(unix))]
        let _ = part;
    }
}

/// A tensor of `shape` whose values lie in a mapped file; a copy is made by whoever changes them. Nothing if the part holds
/// another number of values, or does not lie as they must.
pub fn mapped<const D: usize>(
    file: &Arc<Mapped>,
    part: Range<usize>,
    shape: [usize; D],
) -> Option<Tensor<D>> {
    let bytes = file.bytes().get(part.clone())?;
    let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<f32>());
    let count = shape.iter().try_fold(size_of::<f32>(), |bytes, size| bytes.checked_mul(*size))?;
    if cfg!(target_endian = "big") || !is_aligned || count != bytes.len() {
        return None;
    }
    let length = bytes.len();
    let window = Box::new(MappedPart { file: file.clone(), part, own: None });
    // SAFETY: all bytes of a file are initialised.
    let bytes = unsafe { Bytes::from_controller(window, length) };
    let data = TensorData::from_bytes(bytes, shape, DType::F32);
    Some(Tensor::from_primitive::<Flex>(FlexTensor::from_data(data)))
}

/// A part of a file behind a tensor.
struct MappedPart {
    file: Arc<Mapped>,
    part: Range<usize>,
    /// In place of the file, once something was changed.
    own: Option<PooledBytes>,
}

impl AllocationController for MappedPart {
    fn alloc_align(&self) -> usize {
        align_of::<f32>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(
        &mut self,
        policy: AccessPolicy,
    ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let bytes = &self.file.bytes()[self.part.clone()];
        let own = self.own.get_or_insert_with(|| {
            let value = |b: &[u8; 4]| f32::from_le_bytes(*b);
            let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(value).collect();
            PooledBytes(Pooled::from(values))
        });
        // SAFETY: what the caller ensures for this memory.
        unsafe { own.memory_mut(policy) }
    }

    fn memory(&self, policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        if let Some(own) = &self.own {
            return own.memory(policy);
        }
        let bytes = &self.file.bytes()[self.part.clone()];
        // SAFETY: the bytes are those of the slice, borrowed as long.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }

    fn capacity(&self) -> usize {
        self.part.len()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn a_mapped_tensor_is_its_file_and_changes_are_its_own() {
        let path = std::env::temp_dir().join(format!("whatwhere-mapped-{}", std::process::id()));
        let values: Vec<f32> = (0..50).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Arc::new(Mapped::new(&File::open(&path).unwrap()).unwrap());
        let tensor = mapped(&file, 8..48, [2, 5]).unwrap();
        let changed = tensor.clone() + 1.0;
        let of = |tensor: Tensor<2>| tensor.into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(of(changed), values[3..13]);
        let mut alone = mapped(&file, 8..48, [2, 5]).unwrap();
        alone = alone.slice_assign([0..1, 0..1], Tensor::zeros([1, 1], &Device::flex()));
        file.release(0..200);
        assert_eq!(of(alone)[..2], [0.0, 3.0]);
        assert_eq!(of(tensor), values[2..12]);
        for (part, shape) in [(8..44, [2, 5]), (9..49, [2, 5]), (180..220, [2, 5])] {
            assert!(mapped(&file, part, shape).is_none());
        }
        assert_eq!(file.bytes(), bytes);
        std::fs::remove_file(&path).unwrap();
    }
}
