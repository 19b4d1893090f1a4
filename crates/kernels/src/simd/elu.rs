//! The feature map of linear attention, `φ(x) = elu(x) + 1`, and row-wise work on its causal tiles.

use pulp::{Simd, WithSimd};

use super::{
    math,
    rows::{Region, dot},
};

/// `features[i] = φ(raw[i])`: `x + 1` from 0 on, `eˣ` below it.
pub(crate) struct Elu<'a> {
    pub(crate) raw: &'a [f32],
    pub(crate) features: &'a mut [f32],
}

impl WithSimd for Elu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (raw, raw_rest) = S::as_simd_f32s(self.raw);
        let (features, features_rest) = S::as_mut_simd_f32s(self.features);
        for (&x, feature) in raw.iter().zip(features) {
            *feature = elu(s, x);
        }
        s.partial_store_f32s(features_rest, elu(s, s.partial_load_f32s(raw_rest)));
    }
}

#[inline(always)]
fn elu<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    let zero = s.splat_f32s(0.0);
    let below = math::exp(s, s.min_f32s(x, zero));
    s.select_f32s(s.less_than_f32s(x, zero), below, s.add_f32s(x, s.splat_f32s(1.0)))
}

/// From gradients of features to those of the raw values, in place: `φ' = min(φ, 1)`.
pub(crate) struct EluBackward<'a> {
    pub(crate) features: &'a [f32],
    pub(crate) d: &'a mut [f32],
}

impl WithSimd for EluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (d, &feature) in self.d.iter_mut().zip(self.features) {
            *d *= if feature < 1.0 { feature } else { 1.0 };
        }
    }
}

/// Keeps the lower triangle of a region, each row's columns up to its own index, and adds `shifts[row]` to them.
pub(crate) struct Lower<'a> {
    pub(crate) region: Region,
    pub(crate) tile: &'a mut [f32],
    /// One per row of the tile.
    pub(crate) shifts: Option<&'a [f32]>,
}

impl WithSimd for Lower<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.region.rows.clone() {
            let values = &mut self.tile[self.region.of(row)];
            let kept = (row + 1).saturating_sub(self.region.cols.start).min(values.len());
            let (kept, hidden) = values.split_at_mut(kept);
            hidden.fill(0.0);
            if let Some(shifts) = self.shifts {
                kept.iter_mut().for_each(|value| *value += shifts[row]);
            }
        }
    }
}

/// `sums[row] += Σ tile[row]` over a region.
pub(crate) struct SumRows<'a> {
    pub(crate) region: Region,
    pub(crate) tile: &'a [f32],
    pub(crate) sums: &'a mut [f32],
}

impl WithSimd for SumRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for row in self.region.rows.clone() {
            let (values, _) = S::as_simd_f32s(&self.tile[self.region.of(row)]);
            let sum = values.iter().fold(s.splat_f32s(0.0), |sum, &value| s.add_f32s(sum, value));
            self.sums[row] += s.reduce_sum_f32s(sum);
        }
    }
}

/// `dots[row] = rows[row] · vector`.
pub(crate) struct DotVector<'a> {
    pub(crate) rows: &'a [f32],
    pub(crate) vector: &'a [f32],
    pub(crate) dots: &'a mut [f32],
}

impl WithSimd for DotVector<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for (row, out) in self.rows.chunks_exact(self.vector.len()).zip(self.dots) {
            *out = dot(s, row, self.vector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    fn elu(set: simd::Simd, raw: &[f32]) -> Vec<f32> {
        let mut features = vec![0.0; raw.len()];
        set.run(Elu { raw, features: &mut features });
        features
    }

    #[test]
    fn features_are_the_published_values_and_positive() {
        let published = [(-2.0, 0.135_335), (-1.0, 0.367_879), (0.0, 1.0), (1.0, 2.0)];
        for set in simd::Simd::available() {
            for (x, want) in published {
                // Six digits are published.
                assert!((elu(set, &[x])[0] - want).abs() < 1e-6, "{} at {x}", set.name());
            }
            let raw: Vec<f32> = (-8000..8000).map(|i| i as f32 * 1e-2 + 3e-4).collect();
            for (x, got) in raw.iter().zip(elu(set, &raw)) {
                let x = f64::from(*x);
                let want = if x < 0.0 { x.exp() } else { x + 1.0 };
                // The bound of `math::exp` at −80.
                assert!((f64::from(got) / want - 1.0).abs() < 8e-6, "{} at {x}", set.name());
            }
            let limits = elu(set, &[f32::NEG_INFINITY, f32::INFINITY, f32::NAN]);
            assert_eq!(limits[..2], [0.0, f32::INFINITY], "{}", set.name());
            assert!(limits[2].is_nan());
        }
    }

    #[test]
    fn slopes_are_one_above_zero_and_the_feature_below() {
        for set in simd::Simd::available() {
            let features = elu(set, &[-2.0, -1e-9, 0.0, 3.0]);
            let mut d = [2.0; 4];
            set.run(EluBackward { features: &features, d: &mut d });
            assert_eq!(d, [2.0 * features[0], 2.0, 2.0, 2.0]);
        }
    }
}
