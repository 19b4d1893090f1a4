//! The reference against published test vectors, sums done by hand, and the laws attention obeys.

use std::{f32::consts::TAU, sync::Arc};

use whatwhere_kernels::{
    Error,
    attention::{
        Angles, Attention, Bias, Buckets, Dropout, Feature, FeatureKind, Focus, Inputs, Layout,
        Magnitude, Relative, Score, Shape, alibi_table,
        pattern::{Causal, Full},
        reference::{backward, forward, scores, weights},
    },
};
use whatwhere_random::Random;

// Relative above 1. Inputs are exact in f32 and the angles are not used: only f64's rounding is left.
const EXACT: f64 = 1e-12;
// Cosines, sines and inputs are rounded to f32, 6e-8 each, in sums of a few terms near 1.
const ROUNDED: f64 = 1e-6;

const SCALE_1: Score<&[f32]> = Score::Dot { scale: 1.0 };

// The published PoPE example: one query at position 5, one key at position 2, four channels.
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
        assert_close(&scores(&attention, &inputs).unwrap(), &[expected], ROUNDED);
    }
}

#[test]
fn delta_moves_the_score_by_the_published_slopes() {
    // A second key of magnitude 0 gives the softmax something to weigh against without touching δ;
    // a bias shows the gradient that reaches each score.
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
    let gradients = backward(&attention, &inputs, &[1.0]).unwrap();
    let learned = &gradients.learned;
    let Bias::Dense { values, .. } = &learned.biases[0] else { panic!("a dense bias") };
    let d_score = values[0];
    let d_delta = learned.features[0].delta().unwrap();
    let slopes: Vec<f64> = d_delta.iter().map(|d_delta| d_delta / d_score).collect();
    let expected = [0.1805232522, 0.1919908640, 0.7351747773, 0.0035379841];
    assert_close(&slopes, &expected, ROUNDED);
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
        assert_close(&scores(&attention, &inputs).unwrap(), &expected, ROUNDED);
    }
}

#[test]
fn polar_without_delta_is_interleaved_rotary_of_twice_the_width() {
    let (length, width) = (7, 6);
    let (q, k) = (data(1, length * width), data(2, length * width));
    let narrow = Shape { value_dim: 1, ..Shape::square(1, 1, length, width) };
    let wide = Shape { head_dim: 2 * width, ..narrow };
    let polar_angles = Angles::new(&Angles::polar_frequencies(width, 10_000.0), 3..10, 1.0);
    let rotary_angles = Angles::new(&Angles::rotary_frequencies(2 * width, 10_000.0), 3..10, 1.0);
    let call = |shape, feature| Attention {
        first_query: 3,
        first_key: 3,
        score: SCALE_1,
        features: vec![feature],
        ..Attention::new(shape, &Causal { offset: 0 })
    };
    let pairs = |x: &[f32]| x.iter().flat_map(|x| [x.exp().ln_1p(), 0.0]).collect::<Vec<f32>>();

    let v = vec![0.0; length];
    let polar =
        scores(&call(narrow, polar(None, width, &polar_angles)), &Inputs { q: &q, k: &k, v: &v });
    let rotary = scores(
        &call(wide, rotary(Layout::Interleaved, 2 * width, &rotary_angles)),
        &Inputs { q: &pairs(&q), k: &pairs(&k), v: &v },
    );
    assert_close(&polar.unwrap(), &rotary.unwrap(), ROUNDED);
}

#[test]
fn one_score_is_the_sum_done_by_hand() {
    // q·k = 1, the distance is −3.
    let inputs = Inputs { q: &[1.0, 2.0], k: &[3.0, -1.0], v: &[0.0, 0.0] };
    let base = Attention {
        first_query: 5,
        first_key: 2,
        score: SCALE_1,
        ..Attention::new(Shape::square(1, 1, 1, 2), &Full)
    };
    let bias = |bias| Attention { biases: vec![bias], ..base.clone() };
    let table = &[10.0, 20.0, 30.0, 40.0][..];
    let vectors = Relative { table: &[1.0, 1.0, 9.0, 9.0][..], per_head: true, left: 1, right: 0 };
    let relative = |query_bias| bias(Bias::Relative { vectors, query_bias, scale: 0.5 });
    let seven = Bias::Dense { values: &[7.0][..], shape: [1; 4], learned: false };
    let buckets = Buckets { count: 4, max_distance: 6, bidirectional: false };
    let both_ways = Buckets { bidirectional: true, ..buckets }.table(table, 3, 0);
    let one_way = buckets.table(table, 3, 0);
    let slopes = alibi_table(&[0.25], 3, 0);
    let by_distance = |table, left, right| bias(Bias::ByDistance { table, left, right });
    let weight = &[0.5, -0.25][..];
    let cases = [
        ("dot", Attention { score: Score::Dot { scale: 0.5 }, ..base.clone() }, 0.5),
        (
            "cosine",
            Attention { score: Score::Cosine { scale: 2.0 }, ..base.clone() },
            2.0 / 50f64.sqrt(),
        ),
        (
            "additive",
            Attention { score: Score::Additive { weight }, ..base.clone() },
            0.5 * 4f64.tanh() - 0.25 * 1f64.tanh(),
        ),
        ("cap", Attention { soft_cap: Some(2.0), ..base.clone() }, 2.0 * 0.5f64.tanh()),
        ("query bias", Attention { query_bias: Some(&[1.0, 1.0]), ..base.clone() }, 3.0),
        ("slopes", by_distance(&slopes, 3, 0), 0.25),
        ("buckets", by_distance(&one_way, 3, 0), 31.0),
        ("both ways", by_distance(&both_ways, 3, 0), 21.0),
        ("table", by_distance(table, 1, 2), 11.0),
        ("shaw", relative(None), 2.5),
        ("transformer-xl", relative(Some(&[2.0, 0.0])), 3.5),
        (
            "relative terms do not see the query bias",
            Attention { query_bias: Some(&[1.0, 1.0]), ..relative(Some(&[2.0, 0.0])) },
            5.5,
        ),
        (
            "the bias comes after the cap",
            Attention { soft_cap: Some(2.0), ..bias(seven) },
            2.0 * 0.5f64.tanh() + 7.0,
        ),
        ("hidden", Attention { pattern: &Causal { offset: -4 }, ..bias(seven) }, f64::NEG_INFINITY),
    ];
    for (name, attention, expected) in cases {
        let found = scores(&attention, &inputs).unwrap()[0];
        assert!(found == expected || (found - expected).abs() < EXACT, "{name}: {found}");
    }
}

#[test]
fn one_output_is_the_sum_done_by_hand() {
    // A zero query weighs the keys at positions 4 and 5 equally; the query stands at position 5.
    let shape = Shape { keys: 2, ..Shape::square(1, 1, 1, 1) };
    let inputs = Inputs { q: &[0.0], k: &[1.0, 2.0], v: &[10.0, 20.0] };
    let base = Attention { first_query: 5, first_key: 4, ..Attention::new(shape, &Full) };
    let table = &[100.0, 200.0, 300.0][..];
    let relative_values = Some(Relative { table, per_head: false, left: 1, right: 1 });
    let focus = Some(Focus { centers: &[4.0][..], deviation: 0.5 });
    let gaussian = (-2f64).exp();
    let cases = [
        (base.clone(), 15.0),
        (Attention { relative_values, ..base.clone() }, 165.0),
        (Attention { focus, ..base.clone() }, 5.0 + 10.0 * gaussian),
        (Attention { focus, relative_values, ..base }, 55.0 + 110.0 * gaussian),
    ];
    for (attention, expected) in cases {
        let found = forward(&attention, &inputs).unwrap();
        assert_close(&found.out, &[expected], EXACT);
        assert_close(&found.lse, &[2f64.ln()], EXACT);
        assert_close(&weights(&attention, &inputs).unwrap(), &[0.5, 0.5], EXACT);
    }
}

#[test]
fn every_pair_reads_its_own_entry() {
    // One channel, q = k = 1 and positions 0 and 1: the distances are 0, 1, −1, 0.
    let shape = Shape::square(2, 2, 2, 1);
    let inputs = Inputs { q: &[1.0; 8], k: &[1.0; 8], v: &[0.0; 8] };
    let base = Attention { score: SCALE_1, ..Attention::new(shape, &Full) };
    let bias = |bias| Attention { biases: vec![bias], ..base.clone() };
    let dense = |values, shape| bias(Bias::Dense { values, shape, learned: false });
    let counting: Vec<f32> = (0..16u8).map(f32::from).collect();
    let table = &[10.0, 11.0, 12.0, 20.0, 21.0, 22.0][..];
    let per_head = Relative { table, per_head: true, left: 1, right: 1 };
    let shared = Relative { table: &table[..3], per_head: false, ..per_head };
    let relative = |vectors, query_bias| bias(Bias::Relative { vectors, query_bias, scale: 1.0 });
    let buckets = Buckets { count: 4, max_distance: 6, bidirectional: true };
    let bucket_table = buckets.table(&[10.0, 11.0, 12.0, 13.0, 20.0, 21.0, 22.0, 23.0], 1, 1);
    let slopes = alibi_table(&[1.0, 2.0], 1, 1);
    let by_distance = |table| bias(Bias::ByDistance { table, left: 1, right: 1 });
    let by_head = [12.0, 13.0, 11.0, 12.0, 22.0, 23.0, 21.0, 22.0];
    let additive = Score::Additive { weight: &[10.0, 20.0][..] };
    let tanh = 2f64.tanh();
    let cases = [
        ("slopes", by_distance(&slopes), { vec![1.0, 0.0, 0.0, 1.0, 1.0, -1.0, -1.0, 1.0] }),
        ("table", by_distance(table), by_head.to_vec()),
        ("vectors per head", relative(per_head, None), by_head.to_vec()),
        ("shared vectors", relative(shared, None), by_head[..4].to_vec()),
        ("relative query bias", relative(shared, Some(&[0.0, 1.0])), {
            vec![12.0, 13.0, 11.0, 12.0, 23.0, 25.0, 21.0, 23.0]
        }),
        ("buckets", by_distance(&bucket_table), {
            vec![11.0, 14.0, 12.0, 11.0, 21.0, 24.0, 22.0, 21.0]
        }),
        ("whole dense", dense(&counting, [2; 4]), (1..=16).map(f64::from).collect()),
        ("dense by query", dense(&[1.0, 2.0], [1, 1, 2, 1]), vec![2.0, 2.0, 3.0, 3.0]),
        ("dense by batch and key", dense(&[0.0, 1.0, 2.0, 3.0], [2, 1, 1, 2]), {
            [[1.0, 2.0].repeat(4), [3.0, 4.0].repeat(4)].concat()
        }),
        ("query bias", Attention { query_bias: Some(&[1.0, 2.0]), ..base.clone() }, {
            [[2.0; 4], [3.0; 4]].concat()
        }),
        ("additive weight", Attention { score: additive, ..base.clone() }, {
            [[10.0 * tanh; 4], [20.0 * tanh; 4]].concat()
        }),
    ];
    for (name, attention, expected) in cases {
        let expected = expected.repeat(16 / expected.len());
        assert_eq!(scores(&attention, &inputs).unwrap(), expected, "{name}");
    }

    let attention = Attention { relative_values: Some(per_head), ..base };
    let found = forward(&attention, &inputs).unwrap().out;
    assert_close(&found, &[11.5, 10.5, 21.5, 20.5].repeat(2), EXACT);
}

#[test]
fn a_row_that_sees_nothing_yields_zeros() {
    let shape = Shape::square(1, 1, 3, 2);
    let (q, k, v) = (data(1, 6), data(2, 6), data(3, 6));
    let inputs = Inputs { q: &q, k: &k, v: &v };
    // The first query stands at position 0, the first key at position 1.
    let attention = Attention { first_key: 1, ..Attention::new(shape, &Causal { offset: 0 }) };
    let found = forward(&attention, &inputs).unwrap();
    assert_eq!(found.out[..2], [0.0; 2]);
    assert_eq!(found.lse[0], f64::NEG_INFINITY);
    assert_eq!(weights(&attention, &inputs).unwrap()[..3], [0.0; 3]);
    let gradients = backward(&attention, &inputs, &[1.0; 6]).unwrap();
    assert_eq!(gradients.q[..2], [0.0; 2]);
    assert!(gradients.slices().iter().all(|(_, values)| values.iter().all(|d| d.is_finite())));

    let no_keys = Attention::new(Shape { keys: 0, ..shape }, &Full);
    let found = forward(&no_keys, &Inputs { k: &[], v: &[], ..inputs }).unwrap();
    assert_eq!(found.out, [0.0; 6]);
    assert_eq!(found.lse, [f64::NEG_INFINITY; 3]);
}

#[test]
fn dropout_keeps_or_grows_each_weight() {
    let shape = Shape { keys: 50, value_dim: 50, ..Shape::square(1, 1, 4, 2) };
    let (q, k) = (data(1, 8), data(2, 100));
    // The values are the identity, so that the output shows the weights.
    let v: Vec<f32> = (0..2500).map(|i| f32::from(i % 51 == 0)).collect();
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let whole = Attention::new(shape, &Full);
    let dropped = Attention { dropout: Some(Dropout { rate: 0.5, seed: 1 }), ..whole.clone() };
    let weights = weights(&whole, &inputs).unwrap();
    let kept = forward(&dropped, &inputs).unwrap().out;
    let share = kept.iter().filter(|&&weight| weight != 0.0).count() as f64 / 200.0;
    assert!((0.3..0.7).contains(&share), "{share}");
    for (kept, weight) in kept.iter().zip(weights) {
        assert!(*kept == 0.0 || (kept - 2.0 * weight).abs() < EXACT, "{kept} from {weight}");
    }
}

#[test]
fn grouped_heads_equal_repeated_ones_and_sum_their_gradients() {
    let grouped = Shape { heads: 4, kv_heads: 2, ..Shape::square(1, 4, 3, 2) };
    let repeated = Shape { kv_heads: 4, ..grouped };
    let (q, k, v, d_out) = (data(1, 24), data(2, 12), data(3, 12), data(4, 24));
    let repeat = |x: &[f32]| x.chunks(6).flat_map(|head| head.repeat(2)).collect::<Vec<f32>>();
    let (all_k, all_v) = (repeat(&k), repeat(&v));
    let attention = |shape| Attention::new(shape, &Causal { offset: 0 });
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let repeated_inputs = Inputs { q: &q, k: &all_k, v: &all_v };

    let found = forward(&attention(grouped), &inputs).unwrap();
    assert_eq!(found, forward(&attention(repeated), &repeated_inputs).unwrap());
    let found = backward(&attention(grouped), &inputs, &d_out).unwrap();
    let expected = backward(&attention(repeated), &repeated_inputs, &d_out).unwrap();
    let sum = |d: &[f64]| {
        let groups = d.chunks(12).flat_map(|pair| (0..6).map(|i| pair[i] + pair[6 + i]));
        groups.collect::<Vec<f64>>()
    };
    assert_close(&found.q, &expected.q, EXACT);
    assert_close(&found.k, &sum(&expected.k), EXACT);
    assert_close(&found.v, &sum(&expected.v), EXACT);
}

#[test]
fn shifting_both_places_leaves_relative_scores_unchanged() {
    let shape = Shape::square(1, 1, 5, 4);
    let (q, k, v, delta) = (data(1, 20), data(2, 20), data(3, 20), [-0.1, -1.0, -2.0, -6.0]);
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let rotary_angles = Angles::new(&Angles::rotary_frequencies(4, 10_000.0), 0..120, 1.0);
    let polar_angles = Angles::new(&Angles::polar_frequencies(4, 10_000.0), 0..120, 1.0);
    let features = [
        rotary(Layout::Interleaved, 4, &rotary_angles),
        rotary(Layout::HalfSplit, 4, &rotary_angles),
        polar(Some(&delta), 4, &polar_angles),
    ];
    let buckets = Buckets { count: 8, max_distance: 6, bidirectional: true };
    let table = buckets.table(&data(4, 8), 6, 4);
    let slopes = alibi_table(&[0.5], 6, 4);
    let by_distance = |table| Bias::ByDistance { table, left: 6, right: 4 };
    for feature in features {
        let at = |first| Attention {
            first_query: first + 2,
            first_key: first,
            features: vec![feature.clone()],
            biases: vec![by_distance(&slopes[..]), by_distance(&table[..])],
            ..Attention::new(shape, &Causal { offset: 0 })
        };
        let near = scores(&at(0), &inputs).unwrap();
        assert_close(&near, &scores(&at(100), &inputs).unwrap(), ROUNDED);
    }
}

#[test]
fn wrong_lengths_are_refused_by_name() {
    let attention = Attention::new(Shape::square(1, 1, 2, 2), &Full);
    let inputs = Inputs { q: &[0.0; 4], k: &[0.0; 3], v: &[0.0; 4] };
    let expected = Error::Length { what: "k", found: 3, expected: 4 };
    assert_eq!(forward(&attention, &inputs), Err(expected));
    let inputs = Inputs { k: &[0.0; 4], ..inputs };
    let expected = Error::Length { what: "d_out", found: 1, expected: 4 };
    assert_eq!(backward(&attention, &inputs, &[0.0]), Err(expected));
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

/// Numbers in (−1.5, 1.5).
fn data(seed: u64, len: usize) -> Vec<f32> {
    Random::new(&[seed]).signed(len).into_iter().map(|x| 1.5 * x).collect()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close =
            found == expected || (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(close, "number {i} is {found}, expected {expected}");
    }
}
