//! Products in integers: inputs of 16 bits (int16), weights of 8 (int8), sums of 32.

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
use pulp::Arch;
use pulp::{Simd, WithSimd};

/// Columns that lie together: their sums stay in registers while weights are read in order.
pub(crate) const PANEL: usize = 64;
/// Channels of a column that lie side by side, as vectors multiply and add them.
pub(crate) const PAIR: usize = 2;

/// A pair of rows of a panel.
pub(crate) type Rows = [[i8; PAIR]; PANEL];

/// `sums[j] = Σ_c x[c] · weights[c][j]` for some panels at once, which must fit into 32 bits. Memory gives more where
/// several places of it are read in turns.
pub(crate) fn sums<const N: usize>(
    simd: super::Simd,
    x: &[[i16; PAIR]],
    weights: [&[Rows]; N],
) -> [[i32; PANEL]; N] {
    match simd.0 {
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        Arch::V4(v4) => v4.vectorize(
            #[inline(always)]
            || wide(v4, x, weights),
        ),
        arch => weights.map(|weights| arch.dispatch(Plain { x, weights })),
    }
}

/// Left to the compiler.
struct Plain<'a> {
    x: &'a [[i16; PAIR]],
    weights: &'a [Rows],
}

impl WithSimd for Plain<'_> {
    type Output = [i32; PANEL];

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> [i32; PANEL] {
        let mut sums = [0; PANEL];
        for (x, rows) in self.x.iter().zip(self.weights) {
            let [x, y] = x.map(i32::from);
            for (sum, [v, w]) in sums.iter_mut().zip(rows) {
                *sum += x * i32::from(*v) + y * i32::from(*w);
            }
        }
        sums
    }
}

/// Pairs multiplied and added by one instruction, which the compiler does not find by itself.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[inline(always)]
fn wide<const N: usize>(
    v4: pulp::x86::V4,
    x: &[[i16; PAIR]],
    weights: [&[Rows]; N],
) -> [[i32; PANEL]; N] {
    use pulp::{bytemuck::cast, i8x32};

    let mut sums = [[v4.splat_i32x16(0); 4]; N];
    let weights = weights.map(|weights| &weights[..x.len()]);
    for (i, x) in x.iter().enumerate() {
        let x = cast(v4.splat_i32x16(cast(*x)));
        for (sums, weights) in sums.iter_mut().zip(weights) {
            let rows: [i8x32; 4] = cast(weights[i]);
            for (sum, rows) in sums.iter_mut().zip(rows) {
                let rows = v4.convert_i8x32_to_i16x32(rows);
                let products = v4.multiply_wrapping_add_adjacent_i16x32(rows, x);
                *sum = v4.wrapping_add_i32x16(*sum, products);
            }
        }
    }
    let mut out = [[0; PANEL]; N];
    for (out, sums) in out.iter_mut().zip(sums) {
        *out = cast(sums);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_sums() {
        let number = |i: usize, most: i64| (i as i64 * 7919 % (2 * most + 1) - most) as i16;
        for count in [0, 1, 37] {
            let x: Vec<[i16; PAIR]> =
                (0..count).map(|i| [number(2 * i, 32767), number(2 * i + 1, 32767)]).collect();
            let panel = |seed: usize| -> Vec<Rows> {
                let weight = |i: usize, j, k| number(seed + (i * PANEL + j) * PAIR + k, 127) as i8;
                (0..count)
                    .map(|i| std::array::from_fn(|j| [weight(i, j, 0), weight(i, j, 1)]))
                    .collect()
            };
            let panels = [panel(1), panel(2)];
            let expected = panels.each_ref().map(|panel| {
                std::array::from_fn(|j| {
                    let pairs = x.iter().zip(panel).flat_map(|(x, rows)| x.iter().zip(rows[j]));
                    pairs.map(|(x, weight)| i32::from(*x) * i32::from(weight)).sum()
                })
            });
            for simd in super::super::Simd::available() {
                let found = sums(simd, &x, panels.each_ref().map(Vec::as_slice));
                assert_eq!(found, expected, "{count} pairs, {}", simd.name());
            }
        }
    }
}
