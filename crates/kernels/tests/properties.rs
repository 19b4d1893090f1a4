//! Laws the fast path obeys whatever it computes: about places, threads, instruction sets, decoding, rows that see
//! nothing, and numbers that are none.

mod common;

use std::{f32::consts::TAU, ops::Range};

use rayon::ThreadPoolBuilder;
use whatwhere_kernels::{
    Angles, Attended, Attention, Bias, Feature, Focus, Gradients, Inputs, Kind, Layout, Magnitude,
    Score, Shape, Simd,
    pattern::{And, Causal, Full, KeyLengths, Pair, Pattern, from_fn},
};

use common::{
    Case, PatternChoice, ROUNDING, Sizes, assert_close, assert_none, differences, every_extra,
    every_pattern, every_position, every_score, found_slices, numbers, passes, reference_slices,
    widen,
};

// Two results that are each within ROUNDING of the truth.
const TWO_ROUNDINGS: f64 = 2.0 * ROUNDING;

const SCALE_1: Score = Score::Dot { scale: 1.0 };

#[test]
fn shifting_both_places_leaves_everything_unchanged() {
    let sizes = Sizes::small();
    let shifted = sizes.at(sizes.first_query + 1000, sizes.first_key + 1000);
    let by_distance = ["full", "causal, upper left", "window", "dilated", "strided"];
    for position in every_position().into_iter().filter(|position| position.is_relative) {
        for pattern in every_pattern().into_iter().filter(|p| by_distance.contains(&p.name)) {
            let slices = |sizes| {
                let case = Case { position, pattern, ..Case::new(sizes) };
                case.run(|attention, inputs, d_out| {
                    let (made, gradients) = passes(attention, inputs, d_out);
                    found_slices(attention, &made, &gradients)
                })
            };
            let differences = differences(&slices(shifted), &slices(sizes), TWO_ROUNDINGS);
            assert!(
                differences.is_empty(),
                "{} | {}: {differences:?}",
                position.name,
                pattern.name
            );
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let pools = [1, 2, 4].map(|threads| {
        ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be started")
    });
    let sizes = Sizes::of(200, 290).at(90, 0).heads(4, 2);
    for case in all_choices(Case { pattern: PatternChoice::CAUSAL, ..Case::new(sizes) }) {
        case.run(|attention, inputs, d_out| {
            let [one, two, four] =
                pools.each_ref().map(|pool| pool.install(|| passes(attention, inputs, d_out)));
            assert!(bits(&one) == bits(&two), "2 threads: {}", case.name());
            assert!(bits(&one) == bits(&four), "4 threads: {}", case.name());
        });
    }
}

#[test]
fn every_instruction_set_gives_the_same_within_rounding() {
    let mut complaints = Vec::new();
    let mut cases = Vec::new();
    for sizes in [Sizes::small(), Sizes::of(2, 40).at(38, 0), Sizes::of(97, 110).dims(19, 33)] {
        cases.extend(all_choices(Case { pattern: PatternChoice::CAUSAL, ..Case::new(sizes) }));
    }
    for case in &cases {
        case.run(|attention, inputs, d_out| {
            let slices = |simd| {
                let attention = Attention { simd, ..attention.clone() };
                let (made, gradients) = passes(&attention, inputs, d_out);
                found_slices(&attention, &made, &gradients)
            };
            let scalar = slices(Simd::scalar());
            for simd in Simd::available() {
                for difference in differences(&slices(simd), &scalar, TWO_ROUNDINGS) {
                    complaints.push(format!("{}: {}: {difference}", simd.name(), case.name()));
                }
            }
        });
    }
    assert_none(&complaints, cases.len());
}

/// The case with every position, pattern, score and extra in turn.
fn all_choices(base: Case) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    cases.extend(every_position().into_iter().map(|position| Case { position, ..base }));
    cases.extend(every_pattern().into_iter().map(|pattern| Case { pattern, ..base }));
    cases.extend(every_score().into_iter().map(|score| Case { score, ..base }));
    cases.extend(every_extra().into_iter().map(|extra| Case { extra, ..base }));
    cases
}

/// Everything passes make, as bits.
fn bits((made, gradients): &(Attended, Gradients)) -> Vec<Vec<u32>> {
    let Gradients { q, k, v, score, query_bias, features, biases, relative_values, centers } =
        gradients;
    let single = [&made.out, &made.log_sum, q, k, v, score, query_bias, relative_values, centers];
    let of_biases = biases.iter().flat_map(|bias| [&bias.table, &bias.query_bias]);
    let all = single.into_iter().chain(features).chain(of_biases);
    all.map(|values| values.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn decoding_in_steps_equals_one_causal_pass() {
    let sizes = Sizes::of(138, 138).heads(4, 2);
    let mut complaints = Vec::new();
    let cases = all_choices(Case::new(sizes));
    for case in &cases {
        case.run(|attention, inputs, _| {
            let pattern = And(Causal::upper_left(), attention.pattern);
            let whole = Attention { pattern: &pattern, ..attention.clone() };
            let expected = whole.forward(inputs).expect("the case is allowed");
            let mut past = 0;
            for new in [1, 2, 3, 40].into_iter().cycle() {
                let step = Step { whole: &whole, queries: past..past + new };
                let found = step.forward(inputs);
                for (name, found, expected) in [
                    ("out", found.out, step.rows(&expected.out)),
                    ("log_sum", found.log_sum, step.rows(&expected.log_sum)),
                ] {
                    let difference =
                        common::difference(&widen(&found), &widen(&expected), TWO_ROUNDINGS);
                    complaints.extend(
                        difference.map(|d| format!("{}: {name} at {past}: {d}", case.name())),
                    );
                }
                past += new;
                if past == sizes.shape.queries {
                    break;
                }
            }
        });
    }
    assert_none(&complaints, cases.len());
}

/// Some queries of a call, against the keys up to the last of them.
struct Step<'a> {
    whole: &'a Attention<'a>,
    queries: Range<usize>,
}

impl Step<'_> {
    fn forward(&self, inputs: &Inputs) -> Attended {
        let shape = self.whole.shape;
        let keys = 0..self.queries.end;
        let q = self.rows(inputs.q);
        let k = cut(inputs.k, shape.batch * shape.kv_heads, &keys, shape.keys);
        let v = cut(inputs.v, shape.batch * shape.kv_heads, &keys, shape.keys);
        // What belongs to indices instead of places is cut as well.
        let centers = self.whole.focus.map(|focus| self.rows(focus.centers));
        let dense: Vec<_> = self.whole.biases.iter().map(|bias| self.dense(bias, &keys)).collect();
        let biases = self.whole.biases.iter().zip(&dense).map(|(bias, dense)| match dense {
            Some((values, shape)) => Bias::Dense { values, shape: *shape, learned: false },
            None => *bias,
        });
        let attention = Attention {
            shape: Shape { queries: self.queries.len(), keys: keys.len(), ..shape },
            first_query: self.queries.start,
            biases: biases.collect(),
            focus: self
                .whole
                .focus
                .zip(centers.as_deref())
                .map(|(focus, centers)| Focus { centers, ..focus }),
            ..self.whole.clone()
        };
        attention.forward(&Inputs { q: &q, k: &k, v: &v }).expect("the step is allowed")
    }

    /// The step's rows of something the call has for every query of every head.
    fn rows(&self, values: &[f32]) -> Vec<f32> {
        let shape = self.whole.shape;
        cut(values, shape.batch * shape.heads, &self.queries, shape.queries)
    }

    /// The step's part of a dense bias and its sizes.
    fn dense(&self, bias: &Bias, keys: &Range<usize>) -> Option<(Vec<f32>, [usize; 4])> {
        let Bias::Dense { values, shape: [batch, heads, queries, width], .. } = *bias else {
            return None;
        };
        let part = |size: usize, range: &Range<usize>| if size == 1 { 0..1 } else { range.clone() };
        let (rows, cols) = (part(queries, &self.queries), part(width, keys));
        let values = cut(values, batch * heads, &rows, queries);
        let values = cut(&values, batch * heads * rows.len(), &cols, width);
        Some((values, [batch, heads, rows.len(), cols.len()]))
    }
}

/// The part `range` of `length` in each of `blocks` blocks of equal size.
fn cut(values: &[f32], blocks: usize, range: &Range<usize>, length: usize) -> Vec<f32> {
    let width = values.len() / (blocks * length);
    let blocks = values.chunks_exact(length * width);
    blocks.flat_map(|block| &block[range.start * width..range.end * width]).copied().collect()
}

#[test]
fn a_row_that_sees_nothing_and_a_key_nobody_sees_yield_zeros() {
    let sizes = [Sizes::small().batch(3), Sizes::of(130, 97).at(0, 20).batch(3)];
    let mut blind_rows = 0;
    for case in sizes.into_iter().flat_map(|sizes| {
        let blind = every_pattern().into_iter().filter(|p| {
            ["causal, behind all of the first queries", "key lengths"].contains(&p.name)
        });
        blind.flat_map(move |pattern| all_choices(Case { pattern, ..Case::new(sizes) }))
    }) {
        case.run(|attention, inputs, d_out| {
            let (made, gradients) = passes(attention, inputs, d_out);
            let shape = attention.shape;
            for (row, at) in rows(&shape).enumerate() {
                if (0..shape.keys).any(|key| sees(attention, at, key)) {
                    continue;
                }
                blind_rows += 1;
                assert_eq!(made.log_sum[row], f32::NEG_INFINITY, "{}", case.name());
                let zero = all_zero(&made.out, row, shape.value_dim)
                    && all_zero(&gradients.q, row, shape.head_dim);
                assert!(zero, "row {row}: {}", case.name());
            }
            for index in 0..shape.batch * shape.kv_heads * shape.keys {
                let (block, key) = (index / shape.keys, index % shape.keys);
                let (batch, kv_head) = (block / shape.kv_heads, block % shape.kv_heads);
                let mut readers = rows(&shape)
                    .filter(|at| at.batch == batch && shape.kv_head(at.head) == kv_head);
                if readers.any(|at| sees(attention, at, key)) {
                    continue;
                }
                let zero = all_zero(&gradients.k, index, shape.head_dim)
                    && all_zero(&gradients.v, index, shape.value_dim);
                assert!(zero, "key {index}: {}", case.name());
            }
        });
    }
    assert!(blind_rows > 1000, "{blind_rows}");
}

#[test]
fn a_row_hidden_by_a_dense_bias_yields_zeros() {
    let case = Case::new(Sizes::of(97, 130));
    case.run(|attention, inputs, d_out| {
        let mut values = numbers(7, 97 * 130);
        values[5 * 130..6 * 130].fill(f32::NEG_INFINITY);
        values[96 * 130..].fill(f32::NEG_INFINITY);
        let bias = Bias::Dense { values: &values, shape: [1, 1, 97, 130], learned: true };
        let attention = Attention { biases: vec![bias], ..attention.clone() };
        let (made, gradients) = passes(&attention, inputs, d_out);
        for row in [5, 96] {
            assert!(all_zero(&made.out, row, attention.shape.value_dim));
            assert!(all_zero(&gradients.q, row, attention.shape.head_dim));
            assert!(all_zero(&gradients.biases[0].table, row, 130));
            assert_eq!(made.log_sum[row], f32::NEG_INFINITY);
        }
        let found = found_slices(&attention, &made, &gradients);
        let expected = reference_slices(&attention, inputs, d_out);
        assert_eq!(differences(&found, &expected, ROUNDING), [""; 0]);
    });
}

#[test]
fn no_keys_and_no_queries_give_zeros() {
    for (queries, keys) in [(3, 0), (0, 3), (0, 0)] {
        for case in all_choices(Case::new(Sizes::of(queries, keys))) {
            case.run(|attention, inputs, d_out| {
                let (made, gradients) = passes(attention, inputs, d_out);
                assert!(made.out.iter().all(|&x| x == 0.0), "{}", case.name());
                assert!(made.log_sum.iter().all(|&x| x == f32::NEG_INFINITY), "{}", case.name());
                assert_eq!(gradients, Gradients::zeros(attention), "{}", case.name());
            });
        }
    }
}

fn rows(shape: &Shape) -> impl Iterator<Item = Pair> + use<> {
    let Shape { batch, heads, queries, .. } = *shape;
    let rows = 0..batch * heads * queries;
    rows.map(move |row| Pair {
        batch: row / queries / heads,
        head: row / queries % heads,
        query: row % queries,
        key: 0,
    })
}

/// Whether the query of `at`, an index, sees a key of that index.
fn sees(attention: &Attention, at: Pair, key: usize) -> bool {
    let (query, key) = (attention.first_query + at.query, attention.first_key + key);
    attention.pattern.sees(Pair { query, key, ..at })
}

fn all_zero(values: &[f32], row: usize, width: usize) -> bool {
    values[row * width..(row + 1) * width].iter().all(|&x| x == 0.0)
}

// The published PoPE example: a query at place 5, a key at place 2, four channels.
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
        // The logarithmic sum over a single key is its score.
        let found = attention.forward(&inputs).unwrap().log_sum;
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
    let d_score = f64::from(gradients.biases[0].table[0]);
    let slopes: Vec<f64> =
        gradients.features[0].iter().map(|&d_delta| f64::from(d_delta) / d_score).collect();
    let expected = [0.1805232522, 0.1919908640, 0.7351747773, 0.0035379841];
    assert_close(&slopes, &expected, ROUNDING, "slopes");
}

#[test]
fn rotary_turns_are_the_published_ones() {
    let interleaved = [-1.27223251272, -1.83886498514, 2.87866810044, 4.08818663560];
    let half_split = [-1.41335252078, 1.87911806669, -2.82885748174, 4.05819113540];
    // A unit key at place 0 is not turned and reads one channel of the query at place 3.
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
        let found = attention.forward(&inputs).unwrap().log_sum;
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
    let places = 3..3 + length;
    let polar_angles =
        Angles::new(&Angles::polar_frequencies(width, 10_000.0), places.clone(), 1.0);
    let rotary_angles = Angles::new(&Angles::rotary_frequencies(2 * width, 10_000.0), places, 1.0);
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
    assert_close(&widen(&polar.log_sum), &widen(&rotary.log_sum), TWO_ROUNDINGS, "log_sum");
    assert_close(&widen(&d_polar.q), &through(&d_rotary.q, &q), TWO_ROUNDINGS, "d_q");
    assert_close(&widen(&d_polar.k), &through(&d_rotary.k, &k), TWO_ROUNDINGS, "d_k");
    assert_close(&widen(&d_polar.v), &widen(&d_rotary.v), TWO_ROUNDINGS, "d_v");
}

#[test]
fn scores_far_apart_and_large_additive_values_agree_with_the_reference() {
    // Scores reach ±1000, where f32 is 6e-5 coarse: a weight is off by as much, and a gradient, a sum over a few
    // tens of near winners with keys up to 30 in size, by the product.
    const COARSE: f64 = 2e-3;
    for score in every_score().into_iter().filter(|score| !score.name.contains("capped")) {
        let case = Case { score, pattern: PatternChoice::CAUSAL, ..Case::new(Sizes::of(100, 130)) };
        case.run(|attention, inputs, d_out| {
            let grow = |x: &[f32]| x.iter().map(|x| x * 30.0).collect::<Vec<f32>>();
            let (q, k) = (grow(inputs.q), grow(inputs.k));
            let inputs = Inputs { q: &q, k: &k, v: inputs.v };
            let (made, gradients) = passes(attention, &inputs, d_out);
            let found = found_slices(attention, &made, &gradients);
            let expected = reference_slices(attention, &inputs, d_out);
            let tolerance = if score.name == "dot" { COARSE } else { COARSE / 10.0 };
            let differences = differences(&found, &expected, tolerance);
            assert!(differences.is_empty(), "{}: {differences:?}", score.name);
        });
    }
}

#[test]
fn a_query_that_is_not_a_number_spoils_its_row_and_no_other() {
    let spoiled = 50;
    for case in nan_cases() {
        case.run(|attention, inputs, _| {
            let clean = attention.forward(inputs).expect("the case is allowed");
            let mut q = inputs.q.to_vec();
            q[spoiled * attention.shape.head_dim + 1] = f32::NAN;
            let made = attention.forward(&Inputs { q: &q, ..*inputs }).expect("as before");
            let sees_any = |at| (0..attention.shape.keys).any(|key| sees(attention, at, key));
            for (row, at) in rows(&attention.shape).enumerate() {
                assert_row(&case, &made, &clean, row, row == spoiled && sees_any(at));
            }
        });
    }
}

#[test]
fn a_key_that_is_not_a_number_spoils_the_rows_that_see_it_and_no_other() {
    for spoiled in [0, 40, 129] {
        for case in nan_cases() {
            case.run(|attention, inputs, _| {
                let clean = attention.forward(inputs).expect("the case is allowed");
                let mut k = inputs.k.to_vec();
                k[spoiled * attention.shape.head_dim + 1] = f32::NAN;
                let made = attention.forward(&Inputs { k: &k, ..*inputs }).expect("as before");
                for (row, at) in rows(&attention.shape).enumerate() {
                    let reads = at.batch == 0 && attention.shape.kv_head(at.head) == 0;
                    let sees = reads && sees(attention, at, spoiled);
                    assert_row(&case, &made, &clean, row, sees);
                }
            });
        }
    }
}

/// Every pattern, and every score, that NaN is tried with.
fn nan_cases() -> impl Iterator<Item = Case> {
    let base = Case::new(Sizes::of(97, 130));
    let patterns = every_pattern().into_iter().map(move |pattern| Case { pattern, ..base });
    let causal = Case { pattern: PatternChoice::CAUSAL, ..base };
    let scores = every_score().into_iter().map(move |score| Case { score, ..causal });
    let positions = every_position().into_iter().map(move |position| Case { position, ..causal });
    patterns.chain(scores).chain(positions)
}

/// A spoiled row is NaN throughout; another one is what it was, up to rounding (additive scores are formed in
/// another way beside numbers that are too large or none).
#[track_caller]
fn assert_row(case: &Case, made: &Attended, clean: &Attended, row: usize, spoiled: bool) {
    let width = case.sizes.shape.value_dim;
    let out = |made: &Attended| widen(&made.out[row * width..(row + 1) * width]);
    let name = || format!("row {row}: {}", case.name());
    if spoiled {
        assert!(out(made).iter().all(|x| x.is_nan()) && made.log_sum[row].is_nan(), "{}", name());
    } else {
        assert_close(&out(made), &out(clean), ROUNDING, &name());
        assert_close(
            &widen(&made.log_sum[row..=row]),
            &widen(&clean.log_sum[row..=row]),
            ROUNDING,
            &name(),
        );
    }
}

#[test]
fn padding_that_is_not_a_number_spoils_nothing_beyond_its_panel() {
    // Keys are worked on in panels of 32. Those wholly beyond a sequence's length are never read; a NaN value in the
    // panel that holds the last key still meets a weight of 0, and 0 · NaN is NaN.
    const PANEL: usize = 32;
    let keys = 200;
    let lengths = [70, 96, 130];
    let pattern = KeyLengths::new(lengths.to_vec()).unwrap();
    for score in every_score() {
        let case = Case { score, ..Case::new(Sizes::of(50, keys).batch(3)) };
        case.run(|attention, inputs, d_out| {
            let attention = Attention { pattern: &pattern, ..attention.clone() };
            let clean = passes(&attention, inputs, d_out);
            let (mut k, mut v) = (inputs.k.to_vec(), inputs.v.to_vec());
            let shape = attention.shape;
            for (batch, length) in lengths.iter().enumerate() {
                for head in 0..shape.kv_heads {
                    let unread = length.next_multiple_of(PANEL);
                    let (k_head, v_head) = (shape.k_head(batch, head), shape.v_head(batch, head));
                    k[k_head][unread * shape.head_dim..].fill(f32::NAN);
                    v[v_head][unread * shape.value_dim..].fill(f32::NAN);
                }
            }
            let mut spoiled = passes(&attention, &Inputs { k: &k, v: &v, ..*inputs }, d_out);
            // Their own gradient, 0 by the rules, may be NaN: it passes through what the key was.
            for (d_k, k) in spoiled.1.k.iter_mut().zip(&k) {
                *d_k = if k.is_nan() { 0.0 } else { *d_k };
            }
            // Rounding, because additive scores are formed in another way beside NaN.
            let [spoiled, clean] =
                [spoiled, clean].map(|(made, d)| found_slices(&attention, &made, &d));
            let differences = differences(&spoiled, &clean, ROUNDING);
            assert!(differences.is_empty(), "{}: {differences:?}", score.name);
        });
    }
}

#[test]
fn a_spoiled_call_leaves_no_trace_in_the_next() {
    let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let wide = Case::new(Sizes::of(200, 200).dims(40, 40));
    for case in all_choices(Case::new(Sizes::of(30, 50))) {
        case.run(|attention, inputs, d_out| {
            let clean = pool.install(|| passes(attention, inputs, d_out));
            // Larger than the other in every way, so that it fills every buffer with NaN.
            wide.run(|attention, inputs, d_out| {
                let q = vec![f32::NAN; inputs.q.len()];
                pool.install(|| passes(attention, &Inputs { q: &q, k: &q, v: &q }, d_out));
            });
            let again = pool.install(|| passes(attention, inputs, d_out));
            assert!(bits(&clean) == bits(&again), "{}", case.name());
        });
    }
}

#[test]
fn buffers_of_the_caller_are_overwritten_whatever_they_held() {
    for sizes in [Sizes::small(), Sizes::of(97, 200), Sizes::of(3, 0), Sizes::of(0, 3)] {
        for case in all_choices(Case::new(sizes)) {
            case.run(|attention, inputs, d_out| {
                let expected = passes(attention, inputs, d_out);
                let mut out = vec![f32::NAN; attention.shape.out_len()];
                let mut log_sum = vec![f32::NAN; attention.shape.rows()];
                attention.forward_into(inputs, &mut out, &mut log_sum).unwrap();
                let mut gradients = expected.1.clone();
                spoil(&mut gradients);
                attention.backward_into(inputs, &out, &log_sum, d_out, &mut gradients).unwrap();
                let found = (Attended { out, log_sum }, gradients);
                assert!(bits(&found) == bits(&expected), "{}", case.name());
            });
        }
    }
}

/// Fills gradients with NaN.
fn spoil(gradients: &mut Gradients) {
    let Gradients { q, k, v, score, query_bias, features, biases, relative_values, centers } =
        gradients;
    let of_biases = biases.iter_mut().flat_map(|bias| [&mut bias.table, &mut bias.query_bias]);
    let single = [q, k, v, score, query_bias, relative_values, centers];
    for values in single.into_iter().chain(features).chain(of_biases) {
        values.fill(f32::NAN);
    }
}

#[test]
fn a_pattern_may_call_attention_itself() {
    // Two heads in the inner call, so that it asks for threads of its own; several tiles of keys in the outer.
    Case::new(Sizes::of(100, 300).batch(1)).run(|attention, inputs, d_out| {
        let causal = Causal { offset: 200 };
        let plain = Attention { pattern: &causal, ..attention.clone() };
        let x = [1.0, 2.0];
        let nested = from_fn(|pair| {
            let inner = Attention::new(Shape::square(1, 2, 1, 1), &Full);
            let asks = pair.key.is_multiple_of(50);
            let agrees =
                || inner.forward(&Inputs { q: &x, k: &x, v: &x }).is_ok_and(|made| made.out == x);
            causal.sees(pair) && (!asks || agrees())
        });
        let asking = Attention { pattern: &nested, ..attention.clone() };
        let expected = found(&plain, inputs, d_out);
        for threads in [1, 2, 4] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let found = pool.install(|| found(&asking, inputs, d_out));
            assert_eq!(differences(&found, &expected, ROUNDING), [""; 0]);
        }
    });
}

fn found(attention: &Attention, inputs: &Inputs, d_out: &[f32]) -> Vec<common::Slice> {
    let (made, gradients) = passes(attention, inputs, d_out);
    found_slices(attention, &made, &gradients)
}

fn rotary<'a>(layout: Layout, width: usize, angles: &'a Angles) -> Feature<'a> {
    Feature { kind: Kind::Rotary { layout }, channels: 0..width, heads: 0..1, angles }
}

fn polar<'a>(delta: Option<&'a [f32]>, width: usize, angles: &'a Angles) -> Feature<'a> {
    let kind = Kind::Polar { magnitude: Magnitude::Softplus, delta };
    Feature { kind, channels: 0..width, heads: 0..1, angles }
}
