//! Laws the fast path obeys whatever it computes: about positions, threads, instruction sets, decoding, rows that see
//! nothing, and buffers.

mod common;

use std::ops::Range;

use rayon::{ThreadPoolBuilder, prelude::*};
use whatwhere_kernels::{
    Simd,
    attention::{
        Arrangement, Attention, Bias, Focus, Gradients, Inputs, Output, Shape,
        pattern::{And, Causal, Full, Pattern, from_fn},
    },
    with_busy_pool,
};

use common::{
    Case, PatternChoice, ROUNDING, Sizes, assert_none, differences, every_extra, every_pattern,
    every_position, every_score, found_slices, numbers, passes, reference_slices, rows, sees,
    widen,
};

// Two results that are each within ROUNDING of the truth.
const TWO_ROUNDINGS: f64 = 2.0 * ROUNDING;

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
                    found_slices(&made, &gradients)
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
        for arrangement in [Arrangement::Neighbors, Arrangement::Gathered] {
            case.run(|attention, inputs, d_out| {
                let attention = Attention { arrangement, ..attention.clone() };
                let [one, two, four] =
                    pools.each_ref().map(|pool| pool.install(|| passes(&attention, inputs, d_out)));
                assert!(bits(&one) == bits(&two), "2 threads: {arrangement:?}: {}", case.name());
                assert!(bits(&one) == bits(&four), "4 threads: {arrangement:?}: {}", case.name());
            });
        }
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
                found_slices(&made, &gradients)
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
fn bits((made, gradients): &(Output, Gradients)) -> Vec<Vec<u32>> {
    let Gradients { q, k, v, learned } = gradients;
    let all = [&made.out, &made.lse, q, k, v].into_iter().chain(learned.values());
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
                    ("lse", found.lse, step.rows(&expected.lse)),
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
    fn forward(&self, inputs: &Inputs) -> Output {
        let shape = self.whole.shape;
        let keys = 0..self.queries.end;
        let q = self.rows(inputs.q);
        let k = cut(inputs.k, shape.batch * shape.kv_heads, &keys, shape.keys);
        let v = cut(inputs.v, shape.batch * shape.kv_heads, &keys, shape.keys);
        // What belongs to indices instead of positions is cut as well.
        let centers = self.whole.focus.map(|focus| self.rows(focus.centers));
        let dense: Vec<_> = self.whole.biases.iter().map(|bias| self.dense(bias, &keys)).collect();
        let biases = self.whole.biases.iter().zip(&dense).map(|(bias, dense)| match dense {
            Some((values, shape)) => {
                Bias::Dense { values: &values[..], shape: *shape, learned: false }
            }
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
    fn dense(&self, bias: &Bias<&[f32]>, keys: &Range<usize>) -> Option<(Vec<f32>, [usize; 4])> {
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
fn room_for_more_keys_changes_nothing_and_has_no_gradient() {
    for case in all_choices(Case::new(Sizes::small())) {
        case.run(|attention, inputs, d_out| {
            let Shape { batch, kv_heads, keys, head_dim, value_dim, .. } = attention.shape;
            let capacity = keys + 5;
            // What stands beyond the keys must not be looked at.
            let wider = |values: &[f32], width: usize| -> Vec<f32> {
                let blank = vec![f32::NAN; (capacity - keys) * width];
                let heads =
                    (0..batch * kv_heads).map(|i| &values[i * keys * width..][..keys * width]);
                heads.flat_map(|head| head.iter().chain(&blank)).copied().collect()
            };
            let (k, v) = (wider(inputs.k, head_dim), wider(inputs.v, value_dim));
            let spacious = Attention { capacity: Some(capacity), ..attention.clone() };
            let inside = Inputs { q: inputs.q, k: &k, v: &v };
            let (made, expected) =
                (spacious.forward(&inside).unwrap(), attention.forward(inputs).unwrap());
            assert_eq!(made, expected);
            let refused = spacious.backward(&inside, &made, d_out).unwrap_err();
            assert!(refused.to_string().contains("capacity for more keys"), "{refused}");
            let few = Attention { capacity: Some(keys - 1), ..attention.clone() };
            assert!(few.forward(inputs).is_err());
        });
    }
}

#[test]
fn work_that_stays_awake_runs_on_every_pool_and_passes_on_its_panic() {
    for threads in [1, 2, 4] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let sum: u64 = pool.install(|| with_busy_pool(|| (0..10_000_u64).into_par_iter().sum()));
        assert_eq!(sum, 49_995_000);
        let nested = pool.install(|| with_busy_pool(|| with_busy_pool(|| 7)));
        assert_eq!(nested, 7);
        // Work that waits for others while there is nothing to do for longer than anybody stays awake.
        let waited: u32 = pool.install(|| {
            with_busy_pool(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                (0..64_u32).into_par_iter().with_max_len(1).map(|i| with_busy_pool(|| i)).sum()
            })
        });
        assert_eq!(waited, 2016);
        let panics =
            std::panic::AssertUnwindSafe(|| pool.install(|| with_busy_pool(|| panic!("asked to"))));
        assert!(std::panic::catch_unwind(panics).is_err());
    }
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
                assert_eq!(made.lse[row], f32::NEG_INFINITY, "{}", case.name());
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
        let bias = Bias::Dense { values: &values[..], shape: [1, 1, 97, 130], learned: true };
        let attention = Attention { biases: vec![bias], ..attention.clone() };
        let (made, gradients) = passes(&attention, inputs, d_out);
        for row in [5, 96] {
            assert!(all_zero(&made.out, row, attention.shape.value_dim));
            assert!(all_zero(&gradients.q, row, attention.shape.head_dim));
            assert!(all_zero(gradients.learned.values()[0], row, 130));
            assert_eq!(made.lse[row], f32::NEG_INFINITY);
        }
        let found = found_slices(&made, &gradients);
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
                assert!(made.lse.iter().all(|&x| x == f32::NEG_INFINITY), "{}", case.name());
                assert_eq!(gradients, Gradients::zeros(attention), "{}", case.name());
            });
        }
    }
}

fn all_zero(values: &[f32], row: usize, width: usize) -> bool {
    values[row * width..(row + 1) * width].iter().all(|&x| x == 0.0)
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
            let found = found_slices(&made, &gradients);
            let expected = reference_slices(attention, &inputs, d_out);
            let tolerance = if score.name == "dot" { COARSE } else { COARSE / 10.0 };
            let differences = differences(&found, &expected, tolerance);
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
                let mut lse = vec![f32::NAN; attention.shape.rows()];
                attention.forward_into(inputs, &mut out, &mut lse).unwrap();
                let mut gradients = expected.1.clone();
                spoil(&mut gradients);
                attention.backward_into(inputs, &out, &lse, d_out, &mut gradients).unwrap();
                let found = (Output { out, lse }, gradients);
                assert!(bits(&found) == bits(&expected), "{}", case.name());
            });
        }
    }
}

/// Fills gradients with NaN.
fn spoil(gradients: &mut Gradients) {
    let Gradients { q, k, v, learned } = gradients;
    for values in [q, k, v] {
        values.fill(f32::NAN);
    }
    *learned = learned.map((), |values| vec![f32::NAN; values.len()]);
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
    found_slices(&made, &gradients)
}
