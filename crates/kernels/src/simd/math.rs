//! Elementary functions on vectors. Bounds are against f64 over the whole range, tested below.

use pulp::Simd;

/// Coefficients of `2^x` for x in [−½, ½].
const EXP2: [f32; 6] =
    [1.000_000_1, 0.693_146_97, 0.240_221_2, 0.055_507_135, 0.009_675_542, 0.001_327_646_7];

/// 1.5·2²³: adding it rounds to an integer and leaves that in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `2^x`, relative error below 3e-7; 0 below −126, NaN stays NaN. `x` must not exceed 127.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    exp2_above(s, x, -126.0)
}

/// `2^x` as a weight beside weights of about 1: 0 below 2⁻¹⁰⁰, which no sum in f32 would notice. Smaller weights would
/// make subnormal gradients, with which processors multiply many times slower.
#[inline(always)]
pub(crate) fn weight<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    exp2_above(s, x, -100.0)
}

/// `2^x`, or 0 where `x < least`.
#[inline(always)]
fn exp2_above<S: Simd>(s: S, x: S::f32s, least: f32) -> S::f32s {
    let shift = s.splat_f32s(ROUND);
    let rounded = s.add_f32s(x, shift);
    let fraction = s.sub_f32s(x, s.sub_f32s(rounded, shift)); // [−½, ½]
    let power = polynomial(s, fraction, EXP2);
    let exponent = s.wrapping_dyn_shl_u32s(s.transmute_u32s_f32s(rounded), s.splat_u32s(23));
    let scaled = s.transmute_f32s_u32s(s.add_u32s(s.transmute_u32s_f32s(power), exponent));
    s.select_f32s(s.less_than_f32s(x, s.splat_f32s(least)), s.splat_f32s(0.0), scaled)
}

/// `e^x` for `x ≤ 88`, relative error below 3e-7 · max(1, |x|/8).
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    exp2(s, s.mul_f32s(x, s.splat_f32s(std::f32::consts::LOG2_E)))
}

/// `e^x` of one value, for loops that the compiler vectorizes, relative error below 3e-7 in [−87, 88]; beyond, the bound's.
#[inline(always)]
pub(crate) fn exp_scalar(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E;
    let rounded = x + ROUND;
    let fraction = x - (rounded - ROUND);
    let [c0, c1, c2, c3, c4, c5] = EXP2;
    let power =
        ((((c5 * fraction + c4) * fraction + c3) * fraction + c2) * fraction + c1) * fraction + c0;
    f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23))
}

/// `tanh x`, relative error below 4e-7.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    let magnitude = s.abs_f32s(x);
    let square = s.mul_f32s(x, x);
    let small = s.mul_f32s(
        x,
        polynomial(
            s,
            square,
            [1.0, -0.333_332_6, 0.133_311_28, -0.053_721_067, 0.020_590_985, -0.005_659_985],
        ),
    );
    // Beyond 20 the result is ±1 in f32; the bound keeps `exp` in its range. NaN comes through `small`.
    let bounded = s.min_f32s(s.splat_f32s(20.0), magnitude);
    let one = s.splat_f32s(1.0);
    let grown = s.add_f32s(exp(s, s.add_f32s(bounded, bounded)), one);
    let large = s.sub_f32s(one, s.div_f32s(s.splat_f32s(2.0), grown));
    let negative = s.less_than_f32s(x, s.splat_f32s(0.0));
    let large = s.select_f32s(negative, s.neg_f32s(large), large);
    let is_large = s.greater_than_or_equal_f32s(magnitude, s.splat_f32s(0.625));
    s.select_f32s(is_large, large, small)
}

/// `(ln(1 + eˣ), 1/(1 + e⁻ˣ))`: softplus and its derivative, relative error below 1e-6 where they are normal numbers.
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::f32s) -> (S::f32s, S::f32s) {
    let one = s.splat_f32s(1.0);
    let small = exp(s, s.neg_f32s(s.abs_f32s(x))); // (0, 1]
    let ratio = s.div_f32s(small, s.add_f32s(small, s.splat_f32s(2.0)));
    let log = s.mul_f32s(
        ratio,
        polynomial(
            s,
            s.mul_f32s(ratio, ratio),
            [2.0, 0.666_663_15, 0.400_249_1, 0.279_606_05, 0.281_783_26],
        ),
    );
    let value = s.add_f32s(s.max_f32s(s.splat_f32s(0.0), x), log);
    let inverse = s.div_f32s(one, s.add_f32s(one, small));
    let negative = s.less_than_f32s(x, s.splat_f32s(0.0));
    (value, s.select_f32s(negative, s.mul_f32s(small, inverse), inverse))
}

/// `c₀ + c₁x + c₂x² + …`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::f32s, coefficients: [f32; N]) -> S::f32s {
    let mut sum = s.splat_f32s(coefficients[N - 1]);
    for &c in coefficients[..N - 1].iter().rev() {
        sum = s.mul_add_e_f32s(sum, x, s.splat_f32s(c));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;
    use pulp::WithSimd;

    /// Applies `exp2`, `exp`, `tanh`, `softplus` and the sigmoid to every value.
    struct Apply<'a>(&'a [f32], &'a mut [Vec<f32>; 5]);

    impl WithSimd for Apply<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, s: S) {
            for &x in self.0 {
                let v = s.splat_f32s(x);
                let (plus, sigmoid) = softplus(s, v);
                let results = [exp2(s, v), exp(s, v), tanh(s, v), plus, sigmoid];
                for (out, result) in self.1.iter_mut().zip(results) {
                    let mut first = [0.0];
                    s.partial_store_f32s(&mut first, result);
                    out.push(first[0]);
                }
            }
        }
    }

    fn apply(set: simd::Simd, x: &[f32]) -> [Vec<f32>; 5] {
        let mut out = Default::default();
        set.run(Apply(x, &mut out));
        out
    }

    #[test]
    fn functions_keep_their_stated_bounds_on_every_instruction_set() {
        let x: Vec<f32> = (-88_000..88_000).map(|i| i as f32 * 1e-3 + 3e-5).collect();
        let exact: [fn(f64) -> f64; 5] = [
            f64::exp2,
            f64::exp,
            f64::tanh,
            |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
            |x| 1.0 / (1.0 + (-x).exp()),
        ];
        // `exp` inherits the rounding of x·log₂e, which grows with |x|: 88 · 2⁻²⁴ · 1.5.
        let bounds = [3e-7, 8e-6, 4e-7, 9e-6, 9e-6];
        for set in simd::Simd::available() {
            let got = apply(set, &x);
            for (which, values) in got.iter().enumerate() {
                for (&x, &y) in x.iter().zip(values) {
                    let want = exact[which](f64::from(x));
                    if want.abs() < 1e-37 {
                        assert!(y.abs() < 2e-37, "function {which} at {x}: {y}");
                        continue;
                    }
                    let error = (f64::from(y) / want - 1.0).abs();
                    assert!(
                        error < bounds[which],
                        "{} function {which} at {x}: {error:e}",
                        set.name()
                    );
                }
            }
        }
    }

    #[test]
    fn limits_and_nan_come_out_as_they_should() {
        for set in simd::Simd::available() {
            let [exp2, exp, tanh, plus, sigmoid] =
                apply(set, &[f32::NEG_INFINITY, f32::NAN, 0.0, 1000.0]);
            assert_eq!((exp2[0], exp[0], tanh[0], plus[0], sigmoid[0]), (0.0, 0.0, -1.0, 0.0, 0.0));
            for values in [&exp2, &exp, &tanh, &plus, &sigmoid] {
                assert!(values[1].is_nan(), "{}: {values:?}", set.name());
            }
            assert_eq!(
                (exp2[2], exp[2], tanh[2], sigmoid[2]),
                (1.000_000_1, 1.000_000_1, 0.0, 0.5)
            );
            assert_eq!((tanh[3], plus[3], sigmoid[3]), (1.0, 1000.0, 1.0));
        }
    }
}
