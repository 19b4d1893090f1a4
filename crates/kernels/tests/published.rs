//! Scores and slopes that papers print, and the identity between polar and rotary features.

mod common;

use std::{f32::consts::TAU, sync::Arc};

use whatwhere_kernels::attention::{
    Angles, Attention, Bias, Feature, FeatureKind, Inputs, Layout, Magnitude, Score, Shape,
    pattern::{Causal, Full},
};

use common::{ROUNDING, assert_close, numbers, passes, widen};

// Two results that are each within ROUNDING of the truth.
const TWO_ROUNDINGS: f64 = 2.0 * ROUNDING;

const SCALE_1: Score<&[f32]> = Score::Dot { scale: 1.0 };

// The published PoPE example: a query at position 5, a key at position 2, four channels.
const POPE_Q: [f32; 4] = [0.5, -1.0, 2.0, 0.0];
const POPE_K: [f32; 4] = [1.0, 0.3, -0.7, 1.5];
const POPE_DELTA: [f32; 4] = [0.0, -0.5, -1.0, -TAU];

#[test]
fn polar_scores_are_the_published_sums() {
    let angles = Angles::new(&Angles::polar_frequencies(4, 10_000.0), 0..6, 1.0);
    let inputs = Inputs { q: &POPE_Q, k: &POPE_K, v: &[0.0; 4] };
    let cases = [
        (None, 1.025753305470218),
        (Some(&[0.0; 4][..]), 1.025753305470218),
        (Some(&[-TAU; 4][..]), 1.025753305470218),
        (Some(&POPE_DELTA[..]), 0.5408543511587064),
    ];
    for (delta, expected) in cases {
        let attention = Attention {
            first_query: 5,
            first_key: 2,
            score: SCALE_1,
            features: vec![polar(delta, 4, &angles)],
            ..Attention::new(Shape::square(1, 1, 1, 4), &Full)
        };
        // The log-sum-exp over a single key is its score.
        let found = attention.forward(&inputs).unwrap().lse;
        assert_close(&widen(&found), &[expected], ROUNDING, "score");
    }
}

#[test]
fn delta_moves_the_score_by_the_published_slopes() {
    // A second key of magnitude 0 gives the softmax something to weigh against without touching δ; a bias shows the
    // gradient that reaches each score. The scale keeps the weights from saturating.
    let shape = Shape { keys: 2, value_dim: 1, ..Shape::square(1, 1, 1, 4) };
    let angles = Angles::new(&Angles::polar_frequencies(4, 10_000.0), 0..6, 1.0);
    let attention = Attention {
        first_query: 5,
        first_key: 2,
        score: SCALE_1,
        features: vec![polar(Some(&POPE_DELTA), 4, &angles)],
        biases: vec![Bias::Dense { values: &[0.0; 2], shape: [1, 1, 1, 2], learned: true }],
        ..Attention::new(shape, &Full)
    };
    let k = [POPE_K, [-1000.0; 4]].concat();
    let inputs = Inputs { q: &POPE_Q, k: &k, v: &[1.0, 0.0] };
    let (_, gradients) = passes(&attention, &inputs, &[1.0]);
    let learned = &gradients.learned;
    let Bias::Dense { values, .. } = &learned.biases[0] else { panic!("a dense bias") };
    let d_score = f64::from(values[0]);
    let d_delta = learned.features[0].delta().unwrap();
    let slopes: Vec<f64> = d_delta.iter().map(|&d_delta| f64::from(d_delta) / d_score).collect();
    let expected = [0.1805232522, 0.1919908640, 0.7351747773, 0.0035379841];
    assert_close(&slopes, &expected, ROUNDING, "slopes");
}

#[test]
fn rotary_turns_are_the_published_ones() {
    let interleaved = [-1.27223251272, -1.83886498514, 2.87866810044, 4.08818663560];
    let half_split = [-1.41335252078, 1.87911806669, -2.82885748174, 4.05819113540];
    // A unit key at position 0 is not turned and reads one channel of the query at position 3.
    let unit_keys: Vec<f32> = (0..16).map(|i| f32::from(i % 5 == 0)).collect();
    let inputs = Inputs { q: &[1.0, 2.0, 3.0, 4.0].repeat(4), k: &unit_keys, v: &[0.0; 16] };
    let angles = Angles::new(&Angles::rotary_frequencies(4, 10_000.0), 0..4, 1.0);
    for (layout, expected) in [(Layout::Interleaved, interleaved), (Layout::HalfSplit, half_split)]
    {
        let attention = Attention {
            first_query: 3,
            score: SCALE_1,
            features: vec![rotary(layout, 4, &angles)],
            ..Attention::new(Shape::square(4, 1, 1, 4), &Full)
        };
        let found = attention.forward(&inputs).unwrap().lse;
        assert_close(&widen(&found), &expected, ROUNDING, "turned query");
    }
}

#[test]
fn polar_without_delta_is_interleaved_rotary_of_twice_the_width() {
    let (length, width) = (100, 6);
    let narrow = Shape::square(1, 1, length, width);
    let wide = Shape { head_dim: 2 * width, ..narrow };
    let (q, k, v) =
        (numbers(1, narrow.q_len()), numbers(2, narrow.k_len()), numbers(3, narrow.v_len()));
    let d_out = numbers(4, narrow.out_len());
    let positions = 3..3 + length;
    let polar_angles =
        Angles::new(&Angles::polar_frequencies(width, 10_000.0), positions.clone(), 1.0);
    let rotary_angles =
        Angles::new(&Angles::rotary_frequencies(2 * width, 10_000.0), positions, 1.0);
    let call = |shape, feature| Attention {
        first_query: 3,
        first_key: 3,
        score: SCALE_1,
        features: vec![feature],
        ..Attention::new(shape, &Causal { offset: 0 })
    };
    let softplus = |x: f32| f64::from(x).exp().ln_1p() as f32;
    let pairs = |x: &[f32]| x.iter().flat_map(|&x| [softplus(x), 0.0]).collect::<Vec<f32>>();

    let polar = passes(
        &call(narrow, polar(Some(&[0.0; 6]), width, &polar_angles)),
        &Inputs { q: &q, k: &k, v: &v },
        &d_out,
    );
    let rotary = passes(
        &call(wide, rotary(Layout::Interleaved, 2 * width, &rotary_angles)),
        &Inputs { q: &pairs(&q), k: &pairs(&k), v: &v },
        &d_out,
    );
    // The gradient of a magnitude is that of its pair's first channel; softplus has the slope σ(x).
    let through = |d_pairs: &[f32], x: &[f32]| {
        let slope = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        let magnitudes = d_pairs.iter().step_by(2).zip(x);
        magnitudes.map(|(&d, &x)| f64::from(d) * slope(x)).collect::<Vec<f64>>()
    };
    let ((polar, d_polar), (rotary, d_rotary)) = (polar, rotary);
    assert_close(&widen(&polar.out), &widen(&rotary.out), TWO_ROUNDINGS, "out");
    assert_close(&widen(&polar.lse), &widen(&rotary.lse), TWO_ROUNDINGS, "lse");
    assert_close(&widen(&d_polar.q), &through(&d_rotary.q, &q), TWO_ROUNDINGS, "d_q");
    assert_close(&widen(&d_polar.k), &through(&d_rotary.k, &k), TWO_ROUNDINGS, "d_k");
    assert_close(&widen(&d_polar.v), &widen(&d_rotary.v), TWO_ROUNDINGS, "d_v");
}

/// Half of the channels see how many rows lie between two positions, half how many columns, whatever lies between them.
#[test]
fn on_a_grid_scores_are_sums_over_rows_and_columns() {
    let (grid, width, base) = (7usize, 8, 100.0f64);
    let (q, k) = (numbers(1, width), numbers(2, width));
    let delta: Vec<f32> = numbers(3, width).iter().map(|x| 3.0 * (x - 1.0)).collect();
    let twice = |own: Vec<f64>| [own.clone(), own].concat();
    let turns = twice(Angles::rotary_frequencies(width / 2, base));
    let phases = twice(Angles::polar_frequencies(width / 2, base));
    let [turns, phases] = [turns, phases].map(|own| Angles::on_grid(&own, Some(grid), 0..60, 1.0));
    let softplus = |x: f32| f64::from(x).exp().ln_1p();
    for (first_query, first_key) in [(0, 0), (6, 7), (20, 3), (50, 59), (14, 28)] {
        let apart = |of: fn(usize, usize) -> usize| {
            of(first_query, grid) as f64 - of(first_key, grid) as f64
        };
        let (rows, columns) = (apart(|a, b| a / b), apart(|a, b| a % b));
        let rotated: f64 = (0..width / 2)
            .map(|i| {
                let power = (i % (width / 4)) as f64 / (width / 4) as f64;
                let far = if i < width / 4 { rows } else { columns };
                let (sin, cos) = (far * base.powf(-power)).sin_cos();
                let [a, b, c, d] = [q[2 * i], q[2 * i + 1], k[2 * i], k[2 * i + 1]].map(f64::from);
                (a * c + b * d) * cos + (a * d - b * c) * sin
            })
            .sum();
        let polar_sum: f64 = (0..width)
            .map(|c| {
                let power = (c % (width / 2)) as f64 / (width / 2) as f64;
                // δ turns keys.
                let far = if c < width / 2 { -rows } else { -columns };
                let angle = far * base.powf(-power) + f64::from(delta[c]);
                softplus(q[c]) * softplus(k[c]) * angle.cos()
            })
            .sum();
        let features = [
            (rotary(Layout::Interleaved, width, &turns), rotated),
            (polar(Some(&delta), width, &phases), polar_sum),
        ];
        for (feature, expected) in features {
            let attention = Attention {
                first_query,
                first_key,
                score: SCALE_1,
                features: vec![feature],
                ..Attention::new(Shape::square(1, 1, 1, width), &Full)
            };
            let found = attention.forward(&Inputs { q: &q, k: &k, v: &[0.0; 8] }).unwrap().lse;
            assert_close(&widen(&found), &[expected], TWO_ROUNDINGS, "score");
        }
    }
}

fn rotary<'a>(layout: Layout, width: usize, angles: &Angles) -> Feature<&'a [f32]> {
    let angles = Arc::new(angles.clone());
    Feature { kind: FeatureKind::Rotary { layout }, channels: 0..width, heads: 0..1, angles }
}

fn polar<'a>(delta: Option<&'a [f32]>, width: usize, angles: &Angles) -> Feature<&'a [f32]> {
    let angles = Arc::new(angles.clone());
    let kind = FeatureKind::Polar { magnitude: Magnitude::Softplus, delta };
    Feature { kind, channels: 0..width, heads: 0..1, angles }
}
