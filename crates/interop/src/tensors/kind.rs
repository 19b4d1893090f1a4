//! How values are stored, and what they are in f32.

use super::blocks;

/// How the values of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    /// 32 values of 4 bits with a scale.
    Q4_0,
    /// 32 values of 4 bits with a scale and a least value.
    Q4_1,
    /// 32 values of 8 bits with a scale.
    Q8_0,
    /// 256 values of 4 bits, eight scales and least values of 6 bits, and two for all.
    Q4K,
    /// 256 values of 6 bits, sixteen scales of 8 bits, and one for all.
    Q6K,
}

impl Kind {
    /// The name in GGUF and in safetensors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Values and bytes of one block.
    pub(crate) fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q6K => (256, 210),
        }
    }

    /// Bytes of so many values, if they fill whole blocks.
    pub(crate) fn bytes(self, count: usize) -> Option<usize> {
        let (values, bytes) = self.block();
        if !count.is_multiple_of(values) {
            return None;
        }
        (count / values).checked_mul(bytes)
    }

    /// The values of whole blocks.
    pub(crate) fn values(self, bytes: &[u8]) -> Vec<f32> {
        let (count, size) = self.block();
        let mut out = Vec::with_capacity(bytes.len() / size * count);
        for block in bytes.chunks_exact(size) {
            match self {
                Self::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                Self::F16 => out.push(half(block)),
                Self::Bf16 => {
                    out.push(f32::from_bits(
                        u32::from(u16::from_le_bytes([block[0], block[1]])) << 16,
                    ));
                }
                Self::Q4_0 => blocks::q4_0(block, &mut out),
                Self::Q4_1 => blocks::q4_1(block, &mut out),
                Self::Q8_0 => blocks::q8_0(block, &mut out),
                Self::Q4K => blocks::q4_k(block, &mut out),
                Self::Q6K => blocks::q6_k(block, &mut out),
            }
        }
        out
    }
}

/// IEEE's number of 16 bits.
pub(super) fn half(bytes: &[u8]) -> f32 {
    let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
    let (sign, exponent, fraction) =
        (u32::from(bits >> 15) << 31, u32::from(bits >> 10) & 31, u32::from(bits) & 1023);
    match exponent {
        0 => {
            let size = fraction as f32 * 2f32.powi(-24);
            f32::from_bits(size.to_bits() | sign)
        }
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_what_the_gguf_package_makes_of_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/gguf/blocks.safetensors");
        let file = std::fs::read(path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&file).unwrap();
        let blocks = std::path::Path::new(path).with_extension("gguf");
        let blocks = crate::gguf::reader::read(&blocks).unwrap().tensors;
        let names: Vec<&String> = blocks.entries.keys().collect();
        assert_eq!(names, ["bf16", "f16", "f32", "q4_0", "q4_1", "q4_k", "q6_k", "q8_0"]);
        for name in names {
            let (found, want) = (blocks.read(name).unwrap(), file.tensor(name).unwrap());
            assert_eq!(found.shape, want.shape(), "{name}");
            let want = Kind::F32.values(want.data());
            for (found, want) in found.values.iter().zip(&want) {
                assert!(
                    (found - want).abs() <= 1e-6 * want.abs(),
                    "{name}: {found}, expected {want}"
                );
            }
        }
    }

    #[test]
    fn halves_are_those_of_the_standard() {
        for (bits, want) in [
            (0x3c00u16, 1.0f32),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x8000, -0.0),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
        ] {
            let found = half(&bits.to_le_bytes());
            assert_eq!(found.to_bits(), want.to_bits(), "{bits:x}: {found}");
        }
        assert!(half(&0x7e00u16.to_le_bytes()).is_nan());
    }
}
