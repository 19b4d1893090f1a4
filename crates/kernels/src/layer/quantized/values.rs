//! Int8 levels and their scales as files hold them, and numbers of 16 bits.

use crate::{
    Error,
    error::expect_len,
    simd::int8::{self, BLOCK},
};

/// A matrix of int8 levels, each block of 32 of which has a scale in f16: along columns for linear layers, whose rows are
/// channels that go in, along rows for tables of embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Int8Values {
    shape: [usize; 2],
    is_table: bool,
    levels: Vec<i8>,
    scales: Vec<u16>,
}

impl Int8Values {
    /// Levels `[rows, columns]` and the bits of their scales: `[⌈rows / 32⌉, columns]` for a linear layer, `[rows,
    /// ⌈columns / 32⌉]` for a table.
    pub fn new(
        shape: &[usize],
        levels: Vec<i8>,
        scales_shape: &[usize],
        scales: Vec<u16>,
    ) -> Result<Self, Error> {
        let &[rows, columns] = shape else {
            return Err(Error::Length {
                what: "sizes of int8 values",
                found: shape.len(),
                expected: 2,
            });
        };
        for (what, size) in [("rows", rows), ("columns", columns)] {
            if size == 0 {
                return Err(Error::Zero { what });
            }
        }
        let shape = [rows, columns];
        let is_table = scales_shape != Self::scales_shape_of(shape, false);
        if is_table && scales_shape != Self::scales_shape_of(shape, true) {
            return Err(Error::Range {
                what: "shape of the scales",
                found: format!("{scales_shape:?}"),
                allowed: "one for each 32 rows of a column, or for each 32 columns of a row",
            });
        }
        expect_len("levels", levels.len(), rows * columns)?;
        expect_len("scales", scales.len(), scales_shape.iter().product())?;
        match scales.iter().find(|bits| **bits & INFINITE == INFINITE) {
            Some(bits) => Err(unscalable(format!("the f16 {bits:#06x}"))),
            None => Ok(Self { shape, is_table, levels, scales }),
        }
    }

    pub(super) fn zeros(shape: [usize; 2], is_table: bool) -> Self {
        let scales = Self::scales_shape_of(shape, is_table).iter().product();
        let levels = vec![0; shape[0] * shape[1]];
        Self { shape, is_table, levels, scales: vec![0; scales] }
    }

    fn scales_shape_of([rows, columns]: [usize; 2], is_table: bool) -> [usize; 2] {
        if is_table { [rows, columns.div_ceil(BLOCK)] } else { [rows.div_ceil(BLOCK), columns] }
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Those of the scales.
    pub fn scales_shape(&self) -> [usize; 2] {
        Self::scales_shape_of(self.shape, self.is_table)
    }

    /// Whether blocks lie along rows.
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// Row by row.
    pub fn levels(&self) -> &[i8] {
        &self.levels
    }

    /// The bits of the f16 of each block, row by row.
    pub fn scales(&self) -> &[u16] {
        &self.scales
    }

    pub(super) fn parts(&mut self) -> (&mut [i8], &mut [u16]) {
        (&mut self.levels, &mut self.scales)
    }

    /// The numbers they stand for, row by row.
    pub fn values(&self) -> Vec<f32> {
        let [_, columns] = self.shape;
        let [_, scale_columns] = self.scales_shape();
        let mut values = Vec::with_capacity(self.levels.len());
        for (row, levels) in self.levels.chunks_exact(columns).enumerate() {
            let scale_row = if self.is_table { row } else { row / BLOCK };
            let scales = &self.scales[scale_row * scale_columns..][..scale_columns];
            let value = |(column, level): (usize, &i8)| {
                let bits = scales[if self.is_table { column / BLOCK } else { column }];
                f32::from(*level) * int8::scale(bits)
            };
            values.extend(levels.iter().enumerate().map(value));
        }
        values
    }
}

const INFINITE: u16 = 0x7c00;

pub(super) fn unscalable(found: String) -> Error {
    Error::Range {
        what: "scale of a block of weights",
        found,
        allowed: "the finite numbers of f16",
    }
}

/// The bits of the f16 that is nearest to a positive number; infinity beyond the largest.
#[inline(always)]
pub(super) fn scale_bits(value: f32) -> u16 {
    /// 2⁻¹¹²: what an f16's bits stand for at their places in an f32.
    const SMALL: f32 = f32::from_bits((127 - 112) << 23);
    let bits = (value * SMALL).to_bits();
    ((bits + 0xfff + ((bits >> 13) & 1)) >> 13).min(u32::from(INFINITE)) as u16
}

/// The bits of the f16 that is nearest; infinity beyond the largest.
pub fn f16_bits(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    if value.is_nan() { sign | 0x7e00 } else { sign | scale_bits(value.abs()) }
}

/// The number that an f16's bits stand for.
pub fn f16_value(bits: u16) -> f32 {
    if bits & INFINITE < INFINITE {
        return int8::scale(bits);
    }
    f32::from_bits(u32::from(bits & 0x8000) << 16 | 0x7f80_0000 | u32::from(bits & 0x3ff) << 13)
}

/// The bits of the bfloat16 that is nearest.
pub fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The number that a bfloat16's bits stand for.
pub fn bf16_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_16_bits_go_out_and_come_back() {
        for bits in 0..=u16::MAX {
            for (value, again) in [
                (f16_value(bits), f16_bits(f16_value(bits))),
                (bf16_value(bits), bf16_bits(bf16_value(bits))),
            ] {
                assert!(again == bits || value.is_nan(), "{bits:#06x} {value} {again:#06x}");
            }
        }
        // Halfway between two: the even one.
        assert_eq!(
            [2049.0, 2051.0, 65519.0, 65520.0, -1e-8].map(f16_bits),
            [f16_bits(2048.0), f16_bits(2052.0), 0x7bff, INFINITE, 0x8000,]
        );
        assert_eq!(bf16_bits(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(bf16_bits(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(bf16_bits(f32::MAX), 0x7f80);
    }
}
