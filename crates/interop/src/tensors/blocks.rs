//! Blocks of GGML's quantized values, as ggml-quants.c defines them: low halves of bytes first, then high halves.

use super::kind::half;

pub(super) fn q4_0(block: &[u8], out: &mut Vec<f32>) {
    let (scale, packed) = (half(block), &block[2..]);
    out.extend(packed.iter().map(|byte| scale * (f32::from(byte & 15) - 8.0)));
    out.extend(packed.iter().map(|byte| scale * (f32::from(byte >> 4) - 8.0)));
}

pub(super) fn q4_1(block: &[u8], out: &mut Vec<f32>) {
    let (scale, least, packed) = (half(block), half(&block[2..]), &block[4..]);
    out.extend(packed.iter().map(|byte| scale * f32::from(byte & 15) + least));
    out.extend(packed.iter().map(|byte| scale * f32::from(byte >> 4) + least));
}

pub(super) fn q8_0(block: &[u8], out: &mut Vec<f32>) {
    let scale = half(block);
    out.extend(block[2..].iter().map(|byte| scale * f32::from(byte.cast_signed())));
}

/// `d · scale · value − dmin · least`, for eight groups of 32.
pub(super) fn q4_k(block: &[u8], out: &mut Vec<f32>) {
    let (d, least) = (half(block), half(&block[2..]));
    let (packed_scales, packed) = (&block[4..16], &block[16..]);
    // Four groups have their six bits in one byte, the others in two.
    let six = |group: usize| -> (f32, f32) {
        let at = |i: usize| packed_scales[i];
        let (scale, least) = match group < 4 {
            true => (at(group) & 63, at(group + 4) & 63),
            false => (
                at(group + 4) & 15 | (at(group - 4) >> 6) << 4,
                at(group + 4) >> 4 | (at(group) >> 6) << 4,
            ),
        };
        (f32::from(scale), f32::from(least))
    };
    for (pair, bytes) in packed.chunks_exact(32).enumerate() {
        let ((low, low_least), (high, high_least)) = (six(2 * pair), six(2 * pair + 1));
        out.extend(bytes.iter().map(|b| d * low * f32::from(b & 15) - least * low_least));
        out.extend(bytes.iter().map(|b| d * high * f32::from(b >> 4) - least * high_least));
    }
}

/// `d · scale · (value − 32)`, for sixteen groups of 16.
pub(super) fn q6_k(block: &[u8], out: &mut Vec<f32>) {
    let (lows, highs, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(&block[208..]);
    for part in 0..2 {
        let (lows, highs) = (&lows[64 * part..][..64], &highs[32 * part..][..32]);
        for quarter in 0..4 {
            for i in 0..32 {
                let low = lows[i + 32 * (quarter % 2)];
                let low = if quarter < 2 { low & 15 } else { low >> 4 };
                let value = f32::from(low | (highs[i] >> (2 * quarter) & 3) << 4) - 32.0;
                let scale = scales[8 * part + 2 * quarter + i / 16].cast_signed();
                out.push(d * f32::from(scale) * value);
            }
        }
    }
}
