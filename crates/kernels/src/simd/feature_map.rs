//! The feature maps of linear attention and their gradients. Each slope follows from the feature itself.

use pulp::{Simd, WithSimd};

use super::{math, rows::dot};
use crate::linear_attention::FeatureMap;

/// `features = φ(raw)`, row by row.
pub(crate) struct Features<'a> {
    pub(crate) map: FeatureMap,
    /// `[rows, width]`.
    pub(crate) raw: &'a [f32],
    pub(crate) width: usize,
    pub(crate) features: &'a mut [f32],
}

impl WithSimd for Features<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self { map, raw, width, features } = self;
        match map {
            FeatureMap::Elu => each(s, raw, features, Elu),
            FeatureMap::Relu => each(s, raw, features, Relu),
            FeatureMap::Exp => each(s, raw, features, Exp { top: 0.0 }),
            FeatureMap::Identity => features.copy_from_slice(raw),
            FeatureMap::Softmax => {
                for (raw, row) in raw.chunks_exact(width).zip(features.chunks_exact_mut(width)) {
                    let top = raw.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    each(s, raw, row, Exp { top });
                    let share = 1.0 / row.iter().sum::<f32>();
                    row.iter_mut().for_each(|feature| *feature *= share);
                }
            }
        }
    }
}

/// From gradients of features to those of the raw values, in place.
pub(crate) struct FeaturesBackward<'a> {
    pub(crate) map: FeatureMap,
    /// `[rows, width]`.
    pub(crate) features: &'a [f32],
    pub(crate) width: usize,
    pub(crate) d: &'a mut [f32],
}

impl WithSimd for FeaturesBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self { map, features, width, d } = self;
        let each = d.iter_mut().zip(features);
        match map {
            FeatureMap::Elu => each.for_each(|(d, &f)| *d *= if f < 1.0 { f } else { 1.0 }),
            FeatureMap::Relu => each.for_each(|(d, &f)| *d *= if f > 0.0 { 1.0 } else { 0.0 }),
            FeatureMap::Exp => each.for_each(|(d, &f)| *d *= f),
            FeatureMap::Identity => {}
            FeatureMap::Softmax => {
                for (d, row) in d.chunks_exact_mut(width).zip(features.chunks_exact(width)) {
                    let mean = dot(s, d, row);
                    d.iter_mut().zip(row).for_each(|(d, f)| *d = f * (*d - mean));
                }
            }
        }
    }
}

/// What is done to each value. A trait and no closure: a closure that is called twice is a function of its own, without the
/// instructions of `S`, whose every vector operation then is a call.
trait Each: Copy {
    fn of<S: Simd>(self, s: S, x: S::f32s) -> S::f32s;
}

#[inline(always)]
fn each<S: Simd>(s: S, raw: &[f32], features: &mut [f32], map: impl Each) {
    let (raw, raw_rest) = S::as_simd_f32s(raw);
    let (features, features_rest) = S::as_mut_simd_f32s(features);
    for (&x, feature) in raw.iter().zip(features) {
        *feature = map.of(s, x);
    }
    s.partial_store_f32s(features_rest, map.of(s, s.partial_load_f32s(raw_rest)));
}

#[derive(Clone, Copy)]
struct Elu;

impl Each for Elu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::f32s) -> S::f32s {
        let zero = s.splat_f32s(0.0);
        let below = math::exp(s, s.min_f32s(x, zero));
        s.select_f32s(s.less_than_f32s(x, zero), below, s.add_f32s(x, s.splat_f32s(1.0)))
    }
}

/// NaN stays NaN.
#[derive(Clone, Copy)]
struct Relu;

impl Each for Relu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::f32s) -> S::f32s {
        let zero = s.splat_f32s(0.0);
        s.select_f32s(s.less_than_f32s(x, zero), zero, x)
    }
}

/// `exp(x − top)`.
#[derive(Clone, Copy)]
struct Exp {
    top: f32,
}

impl Each for Exp {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::f32s) -> S::f32s {
        math::exp(s, s.sub_f32s(x, s.splat_f32s(self.top)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    fn features(set: simd::Simd, map: FeatureMap, raw: &[f32]) -> Vec<f32> {
        let mut features = vec![0.0; raw.len()];
        set.run(Features { map, raw, width: raw.len(), features: &mut features });
        features
    }

    #[test]
    fn features_are_the_published_values_and_positive() {
        let published = [(-2.0, 0.135_335), (-1.0, 0.367_879), (0.0, 1.0), (1.0, 2.0)];
        for set in simd::Simd::available() {
            let elu = |raw: &[f32]| features(set, FeatureMap::Elu, raw);
            for (x, want) in published {
                // Six digits are published.
                assert!((elu(&[x])[0] - want).abs() < 1e-6, "{} at {x}", set.name());
            }
            let raw: Vec<f32> = (-8000..8000).map(|i| i as f32 * 1e-2 + 3e-4).collect();
            for (x, got) in raw.iter().zip(elu(&raw)) {
                let x = f64::from(*x);
                let want = if x < 0.0 { x.exp() } else { x + 1.0 };
                // The bound of `math::exp` at −80.
                assert!((f64::from(got) / want - 1.0).abs() < 8e-6, "{} at {x}", set.name());
            }
            let limits = elu(&[f32::NEG_INFINITY, f32::INFINITY, f32::NAN]);
            assert_eq!(limits[..2], [0.0, f32::INFINITY], "{}", set.name());
            assert!(limits[2].is_nan());
        }
    }

    #[test]
    fn gradients_are_slopes_of_the_features() {
        let raw: Vec<f32> = (0..21).map(|i| (i * 37 % 21) as f32 * 0.3 - 3.05).collect();
        let d_out: Vec<f32> = (0..21).map(|i| (i * 13 % 21) as f32 * 0.1 - 1.0).collect();
        let step = 1e-2;
        for set in simd::Simd::available() {
            for map in FeatureMap::ALL {
                let mut d = d_out.clone();
                let made = features(set, map, &raw);
                set.run(FeaturesBackward { map, features: &made, width: raw.len(), d: &mut d });
                for (i, got) in d.iter().enumerate() {
                    let loss = |by: f32| -> f32 {
                        let mut moved = raw.clone();
                        moved[i] += by;
                        features(set, map, &moved).iter().zip(&d_out).map(|(f, d)| f * d).sum()
                    };
                    let want = (loss(step) - loss(-step)) / (2.0 * step);
                    // Central differences in f32: rounding over the step, and the square of the step.
                    assert!(
                        (got - want).abs() < 2e-3 * (1.0 + want.abs()),
                        "{map:?} {i}: {got} {want}"
                    );
                }
            }
        }
    }
}
