//! Linear attention with positions against its definition pair by pair in f64, and its gradients against slopes.

mod common;

use std::sync::Arc;

use common::{numbers, widen};
use whatwhere_kernels::{
    Error, Simd,
    attention::{
        Angles, Attention, Feature, FeatureKind, Inputs, Layout, Magnitude, Shape, pattern::Full,
    },
    linear_attention::{FeatureMap, LinearAttention, RotatedGradients, RotatedLinearAttention},
};

// Of the largest number expected: sums of a hundred terms in f32, divided by sums that may be small.
const ROUNDED: f64 = 2e-5;

/// The tensors of a call and the phases of its polar feature.
#[derive(Clone)]
struct Exact([Vec<f64>; 4]);

fn features(map: FeatureMap, row: &[f64]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|x| x.exp()).sum();
    let feature = |&x: &f64| match map {
        FeatureMap::Elu => {
            if x > 0.0 {
                x + 1.0
            } else {
                x.exp()
            }
        }
        FeatureMap::Relu => x.max(0.0),
        FeatureMap::Exp => x.exp(),
        FeatureMap::Softmax => x.exp() / sum,
        FeatureMap::Identity => x,
    };
    row.iter().map(feature).collect()
}

/// How the heads of a test turn: half of them by rotary pairs, the other half, on some channels, in polar coordinates.
const CHANNELS: usize = 6;
const POLAR: std::ops::Range<usize> = 1..4;
const FIRST: usize = 7;

fn frequencies() -> [Vec<f64>; 2] {
    [Angles::rotary_frequencies(CHANNELS, 50.0), Angles::polar_frequencies(POLAR.len(), 20.0)]
}

fn with_features<'a>(shape: Shape, deltas: &'a [f32]) -> Attention<'a> {
    let mut call = Attention::new(shape, &Full);
    (call.first_query, call.first_key) = (FIRST, FIRST);
    let (half, end) = (shape.heads / 2, FIRST + shape.queries.max(shape.keys));
    let angles = frequencies().map(|all| Arc::new(Angles::new(&all, FIRST..end, 1.0)));
    let [rotary, polar] = angles;
    call.features.push(Feature {
        kind: FeatureKind::Rotary { layout: Layout::HalfSplit },
        channels: 0..CHANNELS,
        heads: 0..half,
        angles: rotary,
    });
    call.features.push(Feature {
        kind: FeatureKind::Polar { magnitude: Magnitude::Softplus, delta: Some(deltas) },
        channels: POLAR,
        heads: half..shape.heads,
        angles: polar,
    });
    call
}

/// The product of rotated features of one pair.
fn product(
    shape: &Shape,
    head: usize,
    fq: &[f64],
    fk: &[f64],
    distance: f64,
    deltas: &[f64],
) -> f64 {
    let [rotary, polar] = frequencies();
    if head < shape.heads / 2 {
        let half = CHANNELS / 2;
        return (0..half)
            .map(|i| {
                let (sin, cos) = (distance * rotary[i]).sin_cos();
                let (a, b) = (fk[i] * cos - fk[i + half] * sin, fk[i] * sin + fk[i + half] * cos);
                fq[i] * a + fq[i + half] * b
            })
            .sum();
    }
    (0..CHANNELS)
        .map(|c| match POLAR.contains(&c) {
            false => fq[c] * fk[c],
            true => {
                let at = c - POLAR.start;
                let delta = deltas[head * POLAR.len() + at];
                fq[c] * fk[c] * (distance * polar[at] + delta).cos()
            }
        })
        .sum()
}

fn reference(linear: &LinearAttention, Exact([q, k, v, deltas]): &Exact) -> Vec<f64> {
    let shape = &linear.shape;
    let (dim, width) = (shape.head_dim, shape.value_dim);
    let mut out = vec![0.0; shape.out_len()];
    for batch in 0..shape.batch {
        let length = linear.key_lengths.map_or(shape.keys, |lengths| lengths[batch]);
        for head in 0..shape.heads {
            let first = shape.k_head(batch, shape.kv_head(head)).start / dim;
            for query in 0..shape.queries {
                let row = shape.row_head(batch, head).start + query;
                let fq = features(linear.map, &q[row * dim..][..dim]);
                let seen = if linear.causal { length.min(query + 1) } else { length };
                let mut sum = f64::from(linear.epsilon);
                for key in 0..seen {
                    let fk = features(linear.map, &k[(first + key) * dim..][..dim]);
                    let distance = key as f64 - query as f64;
                    let weight = product(shape, head, &fq, &fk, distance, deltas);
                    sum += fq.iter().zip(&fk).map(|(q, k)| q * k).sum::<f64>();
                    for m in 0..width {
                        out[row * width + m] += weight * v[(first + key) * width + m];
                    }
                }
                let factor = linear.scale.map_or(1.0 / sum, f64::from);
                out[row * width..][..width].iter_mut().for_each(|out| *out *= factor);
            }
        }
    }
    out
}

#[track_caller]
fn assert_near(what: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0, |top: f64, x| top.max(x.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= ROUNDED * largest, "{what}, {i}: {found}, not {expected}");
    }
}

fn every_form() -> Vec<(FeatureMap, Option<f32>)> {
    let forms = FeatureMap::ALL.into_iter().flat_map(|map| [(map, None), (map, Some(0.3))]);
    forms.filter(|form| *form != (FeatureMap::Identity, None)).collect()
}

/// Queries, keys, values, phases and the gradient of the output.
fn tensors(shape: &Shape) -> [Vec<f32>; 5] {
    let phases = numbers(5, shape.heads * POLAR.len()).iter().map(|x| 2.0 * (x - 1.0)).collect();
    let [q, k, v, d_out] =
        [(1, shape.q_len()), (2, shape.k_len()), (3, shape.v_len()), (4, shape.out_len())]
            .map(|(seed, length)| numbers(seed, length));
    [q, k, v, phases, d_out]
}

fn run(
    rotated: &RotatedLinearAttention,
    inputs: &Inputs,
    shape: &Shape,
    d_out: &[f32],
) -> (Vec<f32>, RotatedGradients) {
    let (mut out, mut normalizer) = (vec![7.0; shape.out_len()], vec![7.0; shape.rows()]);
    rotated.forward_into(inputs, &mut out, &mut normalizer).expect("the call is right");
    let gradients = rotated.backward(inputs, &out, &normalizer, d_out).expect("the same");
    (out, gradients)
}

fn calls(mut check: impl FnMut(&str, LinearAttention)) {
    for causal in [true, false] {
        for (map, scale) in every_form() {
            for (shape, lengths) in [
                (Shape::square(1, 2, 1, CHANNELS), None),
                (Shape { value_dim: 5, ..Shape::square(1, 2, 101, CHANNELS) }, None),
                (
                    Shape { kv_heads: 2, value_dim: 3, ..Shape::square(2, 4, 53, CHANNELS) },
                    Some(&[53, 20][..]),
                ),
                (Shape::square(1, 2, 0, CHANNELS), None),
            ] {
                for simd in Simd::available() {
                    let plain = LinearAttention::new(shape, causal);
                    let linear =
                        LinearAttention { map, scale, simd, key_lengths: lengths, ..plain };
                    let what =
                        format!("{map:?} {scale:?} causal {causal} {shape:?} {}", simd.name());
                    check(&what, linear);
                }
            }
        }
    }
}

#[test]
fn the_output_is_that_of_the_definition() {
    calls(|what, linear| {
        let [q, k, v, deltas, d_out] = tensors(&linear.shape);
        let call = with_features(linear.shape, &deltas);
        let rotated = RotatedLinearAttention::new(linear, &call);
        let (out, _) = run(&rotated, &Inputs { q: &q, k: &k, v: &v }, &linear.shape, &d_out);
        let exact = Exact([widen(&q), widen(&k), widen(&v), widen(&deltas)]);
        assert_near(what, &out, &reference(&linear, &exact));
    });
}

#[test]
fn gradients_are_slopes_of_the_definition() {
    let shape = Shape { kv_heads: 1, value_dim: 2, ..Shape::square(2, 2, 5, CHANNELS) };
    for causal in [true, false] {
        for (map, scale) in every_form() {
            let plain = LinearAttention::new(shape, causal);
            let linear = LinearAttention { map, scale, key_lengths: Some(&[5, 3]), ..plain };
            let [q, k, v, deltas, d_out] = tensors(&shape);
            let call = with_features(shape, &deltas);
            let inputs = Inputs { q: &q, k: &k, v: &v };
            let (_, made) =
                run(&RotatedLinearAttention::new(linear, &call), &inputs, &shape, &d_out);
            // Heads that the polar feature does not have learn no phase.
            assert!(made.deltas[0][..POLAR.len()].iter().all(|d| *d == 0.0));
            let found = [made.q, made.k, made.v, made.deltas.concat()];
            let exact = Exact([widen(&q), widen(&k), widen(&v), widen(&deltas)]);
            let loss = |exact: &Exact| -> f64 {
                reference(&linear, exact)
                    .iter()
                    .zip(&d_out)
                    .map(|(out, d)| out * f64::from(*d))
                    .sum()
            };
            for (part, found) in found.iter().enumerate() {
                let slope = |i: usize| {
                    let moved = |step: f64| {
                        let mut exact = exact.clone();
                        exact.0[part][i] += step;
                        loss(&exact)
                    };
                    (moved(1e-5) - moved(-1e-5)) / 2e-5
                };
                let expected: Vec<f64> = (0..found.len()).map(slope).collect();
                assert_near(&format!("{map:?} {scale:?} {causal}, part {part}"), found, &expected);
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let shape = Shape { kv_heads: 2, ..Shape::square(2, 4, 700, CHANNELS) };
    let linear = LinearAttention::new(shape, true);
    let [q, k, v, deltas, d_out] = tensors(&shape);
    let call = with_features(shape, &deltas);
    let made = [1, 2, 4].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let inputs = Inputs { q: &q, k: &k, v: &v };
        pool.install(|| run(&RotatedLinearAttention::new(linear, &call), &inputs, &shape, &d_out))
    });
    assert!(made[0] == made[1] && made[0] == made[2]);
}

#[test]
fn features_that_do_not_fit_are_refused() {
    let shape = Shape::square(1, 2, 3, CHANNELS);
    let call = with_features(shape, &[0.0; 5]);
    let rotated = RotatedLinearAttention::new(LinearAttention::new(shape, true), &call);
    assert_eq!(rotated.check(), Err(Error::Length { what: "delta", found: 5, expected: 6 }));
}
