//! Tiles against sums in f64, and against vectors.

use std::io::Write;

use super::*;
use crate::simd::{
    gemm,
    panels::{DEPTH, SIDE},
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

fn multiply(out: &mut [f32], adds: bool, a: Matrix, b: Matrix) {
    assert!(is_available());
    assert_eq!((out.len(), a.columns), (a.rows * b.columns, b.rows));
    // SAFETY: tiles are available, and the result has its size.
    unsafe { product(Out::new(out), adds, a, b) };
}

fn skipped() -> bool {
    if !is_available() {
        // The real standard error, which the test harness does not hold back; nobody to tell if it is closed.
        let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no AMX tiles");
    }
    !is_available()
}

#[test]
fn tiles_are_as_precise_as_f32_in_every_orientation_and_at_every_edge() {
    if skipped() {
        return;
    }
    // Beyond a panel, a step, a task, and what is packed at once.
    let sizes = [
        (32, 32, 32),
        (1, 1, 1),
        (31, 33, 1),
        (33, 31, 65),
        (130, 70, 161),
        (40, DEPTH + 7, 35),
        (SIDE + 5, 17, 36),
        (34, 19, 2 * SIDE + 37),
    ];
    for (rows, inner, columns) in sizes {
        let (a, b) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        let (a_turned, b_turned) = (turned(&a, rows, inner), turned(&b, inner, columns));
        // The sum in f64, and what its terms add up to without their signs.
        let exact: Vec<(f64, f64)> = (0..rows * columns)
            .map(|i| {
                let terms = (0..inner).map(|j| {
                    f64::from(a[i / columns * inner + j]) * f64::from(b[j * columns + i % columns])
                });
                terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
            })
            .collect();
        let first =
            [Matrix::new(&a, rows, inner), Matrix::new(&a_turned, inner, rows).transposed()];
        let second =
            [Matrix::new(&b, inner, columns), Matrix::new(&b_turned, columns, inner).transposed()];
        for (a, b) in first.iter().flat_map(|a| second.iter().map(move |b| (*a, *b))) {
            let mut out = vec![f32::NAN; rows * columns];
            multiply(&mut out, false, a, b);
            for (out, (sum, size)) in out.iter().zip(&exact) {
                // Roundings of f32; three products instead of six would be 2⁻¹⁷ off, one 2⁻⁹.
                let error = (f64::from(*out) - sum).abs();
                assert!(error <= size * 2_f64.powi(-20), "{rows} {inner} {columns}: {error}");
            }
            multiply(&mut out, true, a, b);
            for (out, (sum, size)) in out.iter().zip(&exact) {
                let error = (f64::from(*out) - 2.0 * sum).abs();
                assert!(error <= 2.0 * size * 2_f64.powi(-20), "{rows} {inner} {columns}: {error}");
            }
        }
    }
}

/// Of sums of a thousand terms, whose own rounding is most of the error.
#[test]
fn tiles_are_no_less_precise_than_vectors() {
    if skipped() {
        return;
    }
    let (rows, inner, columns) = (64, 1000, 64);
    let spread =
        |seed| numbers(rows * inner, seed).iter().map(|x| x.signum() + x.fract()).collect();
    let (a, b): (Vec<f32>, Vec<f32>) = (spread(5), spread(6));
    let (a, b) = (Matrix::new(&a, rows, inner), Matrix::new(&b, inner, columns));
    let error = |out: &[f32]| -> f64 {
        let square = out.iter().enumerate().map(|(i, out)| {
            let terms = (0..inner).map(|j| {
                let (x, y) =
                    (a.values[i / columns * inner + j], b.values[j * columns + i % columns]);
                f64::from(x) * f64::from(y)
            });
            (f64::from(*out) - terms.sum::<f64>()).powi(2)
        });
        (square.sum::<f64>() / out.len() as f64).sqrt()
    };
    let (mut tiles, mut vectors) = (vec![0.0; rows * columns], vec![0.0; rows * columns]);
    multiply(&mut tiles, false, a, b);
    gemm::by_vectors(&mut vectors, false, a, b);
    let (tiles, vectors) = (error(&tiles), error(&vectors));
    // Six products of pairs of terms round three times as often as one of each term: √3 as far off by chance.
    assert!(tiles < 2.0 * vectors, "{tiles:e} with tiles, {vectors:e} with vectors");
}

#[test]
fn large_products_take_the_tiles() {
    if skipped() {
        return;
    }
    let (rows, inner, columns) = (256, 512, 512);
    assert!(pays(rows, columns, inner) && !pays(rows, 96, inner) && !pays(32, 32, 32));
    let (a, b) = (numbers(rows * inner, 7), numbers(inner * columns, 8));
    let (a, b) = (Matrix::new(&a, rows, inner), Matrix::new(&b, inner, columns));
    let (mut tiles, mut chosen) = (vec![0.0; rows * columns], vec![1.0; rows * columns]);
    multiply(&mut tiles, false, a, b);
    gemm::product(&mut chosen, false, a, b);
    assert_eq!(tiles, chosen);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    if skipped() {
        return;
    }
    let (rows, inner, columns) = (300, 1500, 200);
    let (a, b) = (numbers(rows * inner, 3), numbers(inner * columns, 4));
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut out = vec![0.0; rows * columns];
        let (a, b) = (Matrix::new(&a, rows, inner), Matrix::new(&b, inner, columns));
        pool.install(|| multiply(&mut out, false, a, b));
        out.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(4));
}
