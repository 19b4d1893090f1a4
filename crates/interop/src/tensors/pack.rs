//! Values in f32 as they are stored: the other way round than [`Kind::values`].

use super::Kind;

impl Kind {
    /// The bytes of whole blocks, if the kind can be written; `None` if a value is beyond its range.
    pub(crate) fn pack(self, values: &[f32]) -> Option<Vec<u8>> {
        let (count, size) = self.block();
        let mut out = Vec::with_capacity(values.len() / count * size);
        match self {
            Self::F32 => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::F16 => {
                for value in values {
                    out.extend(to_half(*value)?.to_le_bytes());
                }
            }
            Self::Q8_0 => {
                for block in values.chunks_exact(count) {
                    q8_0(block, &mut out)?;
                }
            }
            Self::Bf16 | Self::Q4_0 | Self::Q4_1 | Self::Q4K | Self::Q6K => return None,
        }
        Some(out)
    }
}

/// As llama.cpp rounds: the largest value is 127 steps, halves go away from zero, and the step is stored in 16 bits.
fn q8_0(block: &[f32], out: &mut Vec<u8>) -> Option<()> {
    let largest = block.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let step = largest / 127.0;
    let inverse = if step == 0.0 { 0.0 } else { step.recip() };
    out.extend(to_half(step)?.to_le_bytes());
    out.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
    Some(())
}

/// IEEE's number of 16 bits that is nearest, the even one of two; `None` beyond its range.
fn to_half(value: f32) -> Option<u16> {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let size = f32::from_bits(bits & 0x7fff_ffff);
    if !size.is_finite() {
        return None;
    }
    // Below the smallest number with a full fraction, steps are of one size.
    if size < 2f32.powi(-14) {
        let steps = size * 2f32.powi(24);
        return Some(sign | steps.round_ties_even() as u16);
    }
    let bits = size.to_bits();
    let rounded = bits + 0xfff + (bits >> 13 & 1);
    let half = (rounded >> 13) - (112 << 10);
    (half < 0x7c00).then_some(sign | half as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_written_as_it_was_read() {
        for bits in 0..=u16::MAX {
            let value = Kind::F16.values(&bits.to_le_bytes())[0];
            let written = to_half(value);
            if value.is_finite() {
                assert_eq!(written, Some(bits), "{value}");
            } else {
                assert_eq!(written, None, "{value}");
            }
        }
    }

    #[test]
    fn halves_are_the_nearest_ones() {
        for (value, bits) in [
            (1.0 + 2f32.powi(-11), Some(0x3c00)), // a tie, to even
            (1.0 + 3.0 * 2f32.powi(-11), Some(0x3c02)),
            (1.0 + 2f32.powi(-11) + 2f32.powi(-20), Some(0x3c01)),
            (65519.0, Some(0x7bff)),
            (65520.0, None),
            (-2f32.powi(-25), Some(0x8000)),
            (1.5 * 2f32.powi(-25), Some(0x0001)),
            (2f32.powi(-14) - 2f32.powi(-26), Some(0x0400)),
        ] {
            assert_eq!(to_half(value), bits, "{value:e}");
        }
    }

    #[test]
    fn blocks_of_eight_bits_are_within_half_a_step_and_its_rounding() {
        let values: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
        let bytes = Kind::Q8_0.pack(&values).unwrap();
        assert_eq!(bytes.len(), 2 * 34);
        // Half a step, and what the largest loses to a step of 16 bits: 127 · 2⁻¹¹ of it.
        let step = 3.0 / 127.0;
        for (found, want) in Kind::Q8_0.values(&bytes).iter().zip(&values) {
            assert!((found - want).abs() <= 0.57 * step, "{found}, expected {want}");
        }
        assert_eq!(Kind::Q8_0.pack(&[0.0; 32]).unwrap(), [0; 34]);
        assert!(Kind::F16.pack(&[1e6]).is_none() && Kind::Q4K.pack(&values).is_none());
    }
}
