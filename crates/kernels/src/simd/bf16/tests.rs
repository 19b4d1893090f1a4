//! Every means against sums in f64 of the rounded values.

use super::*;
use crate::{
    layer::{bf16_bits, bf16_value},
    simd::matmul::Accumulate,
};

/// Numbers whose sizes differ by up to 2³⁰.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| (next() - 0.5) * (30.0 * (next() - 0.5)).exp2()).collect()
}

fn turned(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect()
}

/// A product in every orientation: rows, terms and columns, and `out` against `check(place, out)`.
fn in_every_orientation(
    [rows, inner, columns]: [usize; 3],
    a: &[f32],
    b: &[f32],
    check: impl Fn(Means, Matrix, Matrix),
) {
    let (a_turned, b_turned) = (turned(a, rows, inner), turned(b, inner, columns));
    let first = [Matrix::new(a, rows, inner), Matrix::new(&a_turned, inner, rows).transposed()];
    let second =
        [Matrix::new(b, inner, columns), Matrix::new(&b_turned, columns, inner).transposed()];
    for means in Means::available() {
        for (a, b) in first.iter().flat_map(|a| second.iter().map(move |b| (*a, *b))) {
            check(means, a, b);
        }
    }
}

#[test]
fn products_are_those_of_rounded_values_in_every_orientation_and_at_every_edge() {
    // Beyond vectors, groups of rows, a panel, a step, a task, and what is packed at once.
    let sizes = [
        [32, 32, 32],
        [1, 1, 1],
        [7, 2, 17],
        [8, 3, 16],
        [9, 17, 15],
        [31, 33, 1],
        [33, 31, 65],
        [130, 70, 161],
        [40, 1031, 35],
        [2053, 17, 36],
        [34, 19, 4133],
    ];
    for size in sizes {
        let [rows, inner, columns] = size;
        let (a, b) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        let [x, y] =
            [&a, &b].map(|of| of.iter().map(|v| f64::from(bf16_value(bf16_bits(*v)))).collect());
        let (x, y): (Vec<f64>, Vec<f64>) = (x, y);
        // The sum in f64, and what its terms add up to without their signs.
        let exact: Vec<(f64, f64)> = (0..rows * columns)
            .map(|i| {
                let terms =
                    (0..inner).map(|j| x[i / columns * inner + j] * y[j * columns + i % columns]);
                terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
            })
            .collect();
        in_every_orientation(size, &a, &b, |means, a, b| {
            let mut out = vec![f32::NAN; rows * columns];
            for passes in [1.0, 2.0] {
                means.product(&mut out, passes > 1.0, a, b);
                for (out, (sum, size)) in out.iter().zip(&exact) {
                    // Roundings of sums in f32; without that of the inputs it would be 2⁻⁹.
                    let error = (f64::from(*out) - passes * sum).abs();
                    let bound = passes * size * 2_f64.powi(-20);
                    assert!(error <= bound, "{means:?} {rows} {inner} {columns}: {error} {bound}");
                }
            }
        });
    }
}

#[test]
fn rounding_is_to_the_nearest_even_and_nothing_is_subnormal() {
    let ties = [1.0 + 2_f32.powi(-8), 1.0 + 3.0 * 2_f32.powi(-8), -1.0 - 2_f32.powi(-8)];
    let near = [1.0 + 2_f32.powi(-8) + 2_f32.powi(-23), 2.675, -1e-30, 1e30, 0.0, -0.0];
    let border = [f32::MIN_POSITIVE, f32::MAX, f32::MIN, 3.39e38];
    let small = [f32::MIN_POSITIVE / 2.0, -f32::MIN_POSITIVE / 3.0, 1e-45];
    let values: Vec<f32> = [&ties[..], &near, &border, &small].concat();
    for means in Means::available() {
        for value in &values {
            let expected = match value.abs() < f32::MIN_POSITIVE {
                true => 0.0,
                false => bf16_value(bf16_bits(*value)),
            };
            for (a, b) in [([*value], [1.0]), ([1.0], [*value])] {
                let mut out = [f32::NAN];
                means.product(&mut out, false, Matrix::new(&a, 1, 1), Matrix::new(&b, 1, 1));
                assert_eq!(out[0], expected, "{means:?} {value:e}");
            }
            assert_eq!(round(*value), expected);
        }
    }
    assert!(round(f32::NAN).is_nan());
    assert_eq!(round(1.0 + 2_f32.powi(-8)), 1.0);
    assert_eq!(round(1.0 + 3.0 * 2_f32.powi(-8)), 1.0 + 2_f32.powi(-6));
}

#[test]
fn infinite_values_and_nan_reach_the_results_they_belong_to_and_no_other() {
    let (rows, inner, columns) = (5, 40, 19);
    for (special, is_there) in [
        (f32::INFINITY, f32::is_infinite as fn(f32) -> bool),
        (f32::NEG_INFINITY, f32::is_infinite),
        (f32::NAN, f32::is_nan),
    ] {
        let (mut a, b) = (vec![1.0; rows * inner], vec![2.0; inner * columns]);
        a[2 * inner + 37] = special;
        in_every_orientation([rows, inner, columns], &a, &b, |means, a, b| {
            let mut out = vec![0.0; rows * columns];
            means.product(&mut out, false, a, b);
            for (i, out) in out.iter().enumerate() {
                match i / columns {
                    2 => assert!(is_there(*out), "{means:?} {out}"),
                    _ => assert_eq!(*out, 80.0, "{means:?}"),
                }
            }
        });
    }
}

#[test]
fn an_empty_sum_is_zero() {
    for means in Means::available() {
        let mut out = vec![3.0; 6];
        means.product(&mut out, true, Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3));
        assert_eq!(out, [3.0; 6]);
        means.product(&mut out, false, Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3));
        assert_eq!(out, [0.0; 6]);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let (rows, inner, columns) = (300, 1500, 200);
    let (a, b) = (numbers(rows * inner, 3), numbers(inner * columns, 4));
    for means in Means::available() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = vec![0.0; rows * columns];
            let (a, b) = (Matrix::new(&a, rows, inner), Matrix::new(&b, inner, columns));
            pool.install(|| means.product(&mut out, false, a, b));
            out.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        let one = run(1);
        assert_eq!(one, run(2), "{means:?}");
        assert_eq!(one, run(4), "{means:?}");
    }
}

#[test]
fn small_products_are_those_of_rounded_values_for_every_size_stride_and_old_value() {
    let sizes = [[1, 1, 1], [12, 64, 32], [96, 64, 96], [33, 7, 65], [96, 96, 48], [5, 40, 17]];
    for (means, [rows, inner, cols]) in
        Means::available().into_iter().flat_map(|means| sizes.map(|size| (means, size)))
    {
        let factors: Vec<f32> = (0..rows).map(|i| (i % 3) as f32 / 2.0).collect();
        let olds = [Accumulate::Overwrite, Accumulate::Add, Accumulate::ScaleAdd(&factors)];
        for (old, transposed) in olds.into_iter().flat_map(|old| [(old, false), (old, true)]) {
            let (a_row, a_step) = if transposed { (1, rows + 2) } else { (inner + 3, 1) };
            let (b_row, c_row) = (cols + 1, cols + 2);
            let (a, b) = (numbers((rows + 2) * (inner + 3), 5), numbers(inner * b_row, 6));
            let start = numbers(rows * c_row, 7);
            let mut c = start.clone();
            let product = Matmul {
                rows,
                cols,
                inner,
                a: &a,
                a_row,
                a_step,
                b: &b,
                b_row,
                c: &mut c,
                c_row,
                old,
            };
            means.small_product(Simd::detect(), product);
            for (at, (found, before)) in c.iter().zip(&start).enumerate() {
                let (i, j) = (at / c_row, at % c_row);
                let factor = match (j < cols, old) {
                    (false, _) => {
                        assert_eq!(found, before, "{means:?} beyond the columns");
                        continue;
                    }
                    (true, Accumulate::Overwrite) => 0.0,
                    (true, Accumulate::Add) => 1.0,
                    (true, Accumulate::ScaleAdd(factors)) => factors[i],
                };
                let terms = (0..inner).map(|p| {
                    f64::from(round(a[i * a_row + p * a_step])) * f64::from(round(b[p * b_row + j]))
                });
                let old = f64::from(factor) * f64::from(*before);
                let (sum, size) = terms
                    .fold((old, old.abs()), |(sum, size), term| (sum + term, size + term.abs()));
                let error = (f64::from(*found) - sum).abs();
                assert!(
                    error <= size * 2_f64.powi(-20),
                    "{means:?} {rows} {inner} {cols}: {error}"
                );
            }
        }
    }
}
