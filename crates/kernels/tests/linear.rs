//! Linear attention against its plain definition in f64, and the laws it obeys.

use std::ops::Range;

mod common;

use common::{numbers, widen};
use whatwhere_kernels::{
    Error, Simd,
    attention::{Inputs, Shape},
    linear_attention::{FeatureMap, LinearAttention, LinearGradients, LinearOutput, LinearState},
};

// Tokens per chunk of the kernel: lengths around it are where chunked code goes wrong.
const CHUNK: usize = 48;

// Of the largest number expected. Sums of up to 1000 terms, each rounded by 6e-8, keep about six digits. The three
// gradients count as one: those of queries and keys are differences of sums as large as those of values.
const ROUNDED: f64 = 5e-6;
// Central differences of step 1e-5 in f64: the third derivative's 1e-10 and rounding's 1e-11, with room.
const DIFFERENCES: f64 = 1e-8;

/// The features of a row.
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

/// From gradients of a row's features to those of the row.
fn features_backward(map: FeatureMap, row: &[f64], d: &mut [f64]) {
    let made = features(map, row);
    let mean: f64 = made.iter().zip(d.iter()).map(|(f, d)| f * d).sum();
    for ((d, f), x) in d.iter_mut().zip(&made).zip(row) {
        *d = match map {
            FeatureMap::Elu => *d * if *x > 0.0 { 1.0 } else { *f },
            FeatureMap::Relu => *d * if *x > 0.0 { 1.0 } else { 0.0 },
            FeatureMap::Exp => *d * f,
            FeatureMap::Softmax => f * (*d - mean),
            FeatureMap::Identity => *d,
        };
    }
}

/// Every feature map, with a denominator where it can have one, and without.
fn every_form() -> Vec<(FeatureMap, Option<f32>)> {
    let forms = FeatureMap::ALL.into_iter().flat_map(|map| [(map, None), (map, Some(0.3))]);
    forms.filter(|form| *form != (FeatureMap::Identity, None)).collect()
}

/// The tensors of a call in f64.
#[derive(Clone)]
struct Exact {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Exact {
    fn new(inputs: &Inputs) -> Self {
        Self { q: widen(inputs.q), k: widen(inputs.k), v: widen(inputs.v) }
    }
}

/// Where head `head` of sequence `batch` finds its key head's tokens, and how many are not padding.
fn keys_of(linear: &LinearAttention, batch: usize, head: usize) -> (usize, usize) {
    let shape = &linear.shape;
    let first = (batch * shape.kv_heads + shape.kv_head(head)) * shape.keys;
    (first, linear.key_lengths.map_or(shape.keys, |lengths| lengths[batch]))
}

/// What sums of a call have as terms, at the most: where they nearly cancel, their rounding stays.
fn terms(linear: &LinearAttention, exact: &Exact) -> f64 {
    let values = exact.v.iter().map(|v| v.abs()).collect();
    let (out, _) = reference(linear, &Exact { v: values, ..exact.clone() });
    out.iter().fold(1.0, |top: f64, x| top.max(x.abs()))
}

/// The recurrence, one token at a time: outputs and denominators.
fn reference(linear: &LinearAttention, exact: &Exact) -> (Vec<f64>, Vec<f64>) {
    let Shape { batch, heads, queries, head_dim, value_dim, .. } = linear.shape;
    let (mut out, mut normalizer) = (Vec::new(), Vec::new());
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let (first, length) = keys_of(linear, b, h);
        let mut s = vec![0.0; head_dim * value_dim];
        let mut z = vec![0.0; head_dim];
        let mut taken = 0;
        for i in 0..queries {
            let visible = if linear.causal { length.min(i + 1) } else { length };
            for j in taken..visible {
                let key = features(linear.map, &exact.k[(first + j) * head_dim..][..head_dim]);
                for (d, feature) in key.into_iter().enumerate() {
                    z[d] += feature;
                    for m in 0..value_dim {
                        s[d * value_dim + m] += feature * exact.v[(first + j) * value_dim + m];
                    }
                }
            }
            taken = visible;
            let row = (b * heads + h) * queries + i;
            let q = features(linear.map, &exact.q[row * head_dim..][..head_dim]);
            let sum: f64 = (0..head_dim).map(|d| q[d] * z[d]).sum();
            let sum = sum + f64::from(linear.epsilon);
            normalizer.push(if linear.scale.is_some() { 1.0 } else { sum });
            out.extend((0..value_dim).map(|m| {
                let weighted: f64 = (0..head_dim).map(|d| q[d] * s[d * value_dim + m]).sum();
                match linear.scale {
                    Some(scale) => f64::from(scale) * weighted,
                    None if sum == 0.0 => 0.0,
                    None => weighted / sum,
                }
            }));
        }
    }
    (out, normalizer)
}

/// Gradients pair by pair: with the weight `w = φ(q)·φ(k)` of a pair, `d_w = d_out · (v − out) / normalizer`, or
/// `scale · d_out · v`.
fn reference_backward(linear: &LinearAttention, exact: &Exact, d_out: &[f64]) -> Exact {
    let Shape { batch, heads, queries, head_dim, value_dim, .. } = linear.shape;
    let (out, normalizer) = reference(linear, exact);
    let zeros = |x: &[f64]| vec![0.0; x.len()];
    let mut d = Exact { q: zeros(&exact.q), k: zeros(&exact.k), v: zeros(&exact.v) };
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let (first, length) = keys_of(linear, b, h);
        for i in 0..queries {
            let row = (b * heads + h) * queries + i;
            let visible = if linear.causal { length.min(i + 1) } else { length };
            for key in first..first + visible {
                let q = features(linear.map, &exact.q[row * head_dim..][..head_dim]);
                let k = features(linear.map, &exact.k[key * head_dim..][..head_dim]);
                let weight: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
                let mut d_weight = 0.0;
                for m in 0..value_dim {
                    let v = exact.v[key * value_dim + m];
                    let (factor, mean) = match linear.scale {
                        Some(scale) => (f64::from(scale), 0.0),
                        None => (1.0 / normalizer[row], out[row * value_dim + m]),
                    };
                    let g = d_out[row * value_dim + m] * factor;
                    d.v[key * value_dim + m] += g * weight;
                    d_weight += g * (v - mean);
                }
                for c in 0..head_dim {
                    d.q[row * head_dim + c] += d_weight * k[c];
                    d.k[key * head_dim + c] += d_weight * q[c];
                }
            }
        }
    }
    for (d, x) in [(&mut d.q, &exact.q), (&mut d.k, &exact.k)] {
        for (d, x) in d.chunks_exact_mut(head_dim).zip(x.chunks_exact(head_dim)) {
            features_backward(linear.map, x, d);
        }
    }
    d
}

/// Owned inputs; queries and keys reach from −3 to 3, to use both sides of the feature map.
struct Tensors {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    d_out: Vec<f32>,
}

impl Tensors {
    fn new(shape: &Shape) -> Self {
        let wide = |len, seed| numbers(seed, len).iter().map(|x| 3.0 * x).collect();
        Self {
            q: wide(shape.q_len(), 1),
            k: wide(shape.k_len(), 2),
            v: numbers(3, shape.v_len()),
            d_out: numbers(4, shape.out_len()),
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs { q: &self.q, k: &self.k, v: &self.v }
    }
}

/// Compares slices whose numbers are sums of terms of the same size, about 1 or larger.
#[track_caller]
fn assert_close<const N: usize>(what: &str, got: [&[f32]; N], want: [&[f64]; N]) {
    assert_close_of(what, 1.0, got, want);
}

/// Compares sums of terms as large as these, whose rounding stays where they nearly cancel.
#[track_caller]
fn assert_close_of<const N: usize>(what: &str, terms: f64, got: [&[f32]; N], want: [&[f64]; N]) {
    let largest = want.iter().copied().flatten().fold(terms, |top: f64, x| top.max(x.abs()));
    for (slice, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.len(), want.len(), "{what}, slice {slice}");
        for (i, (&got, want)) in got.iter().zip(want).enumerate() {
            let error = (f64::from(got) - want).abs();
            let right = error <= ROUNDED * largest;
            assert!(
                right,
                "{what}, slice {slice}[{i}]: {got}, not {want}; the largest is {largest}"
            );
        }
    }
}

/// Every kind of call: lengths around the chunk and beyond a segment, grouped heads, odd widths, padding.
fn for_each_call(mut check: impl FnMut(&str, LinearAttention, &Tensors)) {
    let mut run = |what: &str, shape: Shape, causal: bool, lengths: Option<&[usize]>| {
        for (map, scale) in every_form() {
            let plain = LinearAttention::new(shape, causal);
            let linear = LinearAttention { key_lengths: lengths, map, scale, ..plain };
            let form = format!("{map:?}, scale {scale:?}");
            let what = format!("{what}, {form}, causal {causal}, {shape:?}, lengths {lengths:?}");
            check(&what, linear, &Tensors::new(&shape));
        }
    };
    for causal in [true, false] {
        for length in [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3, 20 * CHUNK + 5] {
            run("length", Shape::square(1, 2, length, 8), causal, None);
        }
        for (head_dim, value_dim) in [(1, 1), (5, 3), (17, 40), (100, 33), (33, 200)] {
            let shape = Shape { value_dim, ..Shape::square(1, 1, CHUNK + 7, head_dim) };
            run("widths", shape, causal, None);
        }
        for kv_heads in [1, 2, 6] {
            let shape = Shape { kv_heads, value_dim: 5, ..Shape::square(2, 6, 2 * CHUNK + 3, 7) };
            run("grouped", shape, causal, None);
            run("grouped and padded", shape, causal, Some(&[CHUNK + 10, 0]));
        }
        let long = Shape { kv_heads: 1, ..Shape::square(2, 2, 10 * CHUNK, 6) };
        run("segments and padding", long, causal, Some(&[8 * CHUNK + 1, 1]));
    }
    for (queries, keys) in
        [(1, 300), (300, 1), (CHUNK, 2 * CHUNK), (0, 5), (5, 0), (50, 900), (900, 50)]
    {
        let shape = Shape { queries, keys, kv_heads: 2, ..Shape::square(1, 4, 0, 9) };
        run("unequal", shape, false, None);
    }
}

#[test]
fn forward_is_the_recurrence() {
    for_each_call(|what, linear, tensors| {
        let made = linear.forward(&tensors.inputs()).unwrap();
        let exact = Exact::new(&tensors.inputs());
        let (out, normalizer) = reference(&linear, &exact);
        assert_close_of(what, terms(&linear, &exact), [&made.out], [&out]);
        assert_close(what, [&made.normalizer], [&normalizer]);
    });
}

#[test]
fn backward_is_the_gradient_pair_by_pair() {
    for_each_call(|what, linear, tensors| {
        let inputs = tensors.inputs();
        let made = linear.forward(&inputs).unwrap();
        let got = linear.backward(&inputs, &made, &tensors.d_out).unwrap();
        let d_out = widen(&tensors.d_out);
        let want = reference_backward(&linear, &Exact::new(&inputs), &d_out);
        assert_close(what, [&got.q, &got.k, &got.v], [&want.q, &want.k, &want.v]);
    });
}

#[test]
fn the_reference_gradient_is_that_of_finite_differences() {
    let forms = || every_form().into_iter();
    for (causal, (map, scale)) in
        [true, false].into_iter().flat_map(|c| forms().map(move |f| (c, f)))
    {
        let shape = Shape { kv_heads: 1, value_dim: 2, ..Shape::square(2, 2, 5, 3) };
        let plain = LinearAttention::new(shape, causal);
        let linear = LinearAttention { key_lengths: Some(&[5, 3]), map, scale, ..plain };
        let tensors = Tensors::new(&shape);
        let exact = Exact::new(&tensors.inputs());
        let d_out = widen(&tensors.d_out);
        let loss = |x: &Exact| -> f64 {
            reference(&linear, x).0.iter().zip(&d_out).map(|(out, d)| out * d).sum()
        };
        let gradient = reference_backward(&linear, &exact, &d_out);
        let fields: [fn(&mut Exact) -> &mut Vec<f64>; 3] =
            [|x| &mut x.q, |x| &mut x.k, |x| &mut x.v];
        for field in fields {
            for i in 0..field(&mut exact.clone()).len() {
                let moved = |step: f64| {
                    let mut x = exact.clone();
                    field(&mut x)[i] += step;
                    loss(&x)
                };
                let want = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let got = field(&mut gradient.clone())[i];
                assert!((got - want).abs() < DIFFERENCES, "causal {causal}, {i}: {got} {want}");
            }
        }
    }
}

/// The tokens `range` of `[heads, length, width]`.
fn tokens<T: Copy>(values: &[T], length: usize, width: usize, range: Range<usize>) -> Vec<T> {
    let heads = values.chunks_exact(length * width);
    heads.flat_map(|head| &head[range.start * width..range.end * width]).copied().collect()
}

#[test]
fn decoding_in_any_steps_equals_one_pass() {
    let length = 18 * CHUNK + 40;
    let shape = Shape { kv_heads: 2, value_dim: 5, ..Shape::square(2, 4, length, 7) };
    let tensors = Tensors::new(&shape);
    let full = LinearAttention::new(shape, true);
    let (want, _) = reference(&full, &Exact::new(&tensors.inputs()));
    for step in [1, 7, CHUNK, CHUNK + 1, 10 * CHUNK, length] {
        let mut state = LinearState::new(&full);
        for start in (0..length).step_by(step) {
            let range = start..(start + step).min(length);
            let part = Shape { queries: range.len(), keys: range.len(), ..shape };
            let out = LinearAttention::new(part, true)
                .decode(
                    &mut state,
                    &Inputs {
                        q: &tokens(&tensors.q, length, shape.head_dim, range.clone()),
                        k: &tokens(&tensors.k, length, shape.head_dim, range.clone()),
                        v: &tokens(&tensors.v, length, shape.value_dim, range.clone()),
                    },
                )
                .unwrap();
            let want = tokens(&want, length, shape.value_dim, range.clone());
            assert_close(&format!("steps of {step}, tokens {range:?}"), [&out], [&want]);
        }
    }
}

#[test]
fn a_memory_built_in_parts_and_read_in_parts_equals_one_pass() {
    let (queries, keys) = (130, 10 * CHUNK);
    let shape = Shape { queries, keys, kv_heads: 1, value_dim: 5, ..Shape::square(2, 2, 0, 7) };
    let tensors = Tensors::new(&shape);
    let lengths = [400, 30];
    let full =
        LinearAttention { key_lengths: Some(&lengths), ..LinearAttention::new(shape, false) };
    let (want, _) = reference(&full, &Exact::new(&tensors.inputs()));
    let mut state = LinearState::new(&full);
    for range in [0..100, 100..101, 101..keys] {
        let inside = lengths.map(|length| length.clamp(range.start, range.end) - range.start);
        let part = Shape { keys: range.len(), ..shape };
        let part =
            LinearAttention { key_lengths: Some(&inside), ..LinearAttention::new(part, false) };
        let k = tokens(&tensors.k, keys, shape.head_dim, range.clone());
        let v = tokens(&tensors.v, keys, shape.value_dim, range);
        part.absorb(&mut state, &k, &v).unwrap();
    }
    let before = state.clone();
    assert_close("at once", [&full.read(&state, &tensors.q).unwrap()], [&want]);
    for range in [0..1, 1..queries] {
        let part = LinearAttention::new(Shape { queries: range.len(), ..shape }, false);
        let q = tokens(&tensors.q, queries, shape.head_dim, range.clone());
        let want = tokens(&want, queries, shape.value_dim, range);
        assert_close("in parts", [&part.read(&state, &q).unwrap()], [&want]);
    }
    assert_eq!(state, before, "reading changes nothing");
}

#[test]
fn threads_do_not_change_a_bit() {
    // Large enough to be shared out, with one segment per head and with many.
    for (heads, length, causal) in [(1, 2000, true), (1, 2000, false), (16, 100, true)] {
        let shape = Shape::square(1, heads, length, 64);
        let tensors = Tensors::new(&shape);
        let linear = LinearAttention::new(shape, causal);
        let results = [1, 2, 4].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let made = linear.forward(&tensors.inputs()).unwrap();
                let d = linear.backward(&tensors.inputs(), &made, &tensors.d_out).unwrap();
                (made, d)
            })
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{heads} heads {causal}");
    }
}

#[test]
fn every_instruction_set_agrees_with_the_reference() {
    for causal in [true, false] {
        let shape = Shape { kv_heads: 1, value_dim: 19, ..Shape::square(1, 2, CHUNK + 5, 21) };
        let tensors = Tensors::new(&shape);
        for simd in Simd::available() {
            let linear = LinearAttention { simd, ..LinearAttention::new(shape, causal) };
            let made = linear.forward(&tensors.inputs()).unwrap();
            let got = linear.backward(&tensors.inputs(), &made, &tensors.d_out).unwrap();
            let exact = Exact::new(&tensors.inputs());
            let d_out = widen(&tensors.d_out);
            let want = reference_backward(&linear, &exact, &d_out);
            assert_close(simd.name(), [&made.out], [&reference(&linear, &exact).0]);
            assert_close(simd.name(), [&got.q, &got.k, &got.v], [&want.q, &want.k, &want.v]);
        }
    }
}

#[test]
fn buffers_of_the_caller_are_overwritten() {
    for_each_call(|what, linear, tensors| {
        let (inputs, d_out) = (tensors.inputs(), &tensors.d_out);
        let made = linear.forward(&inputs).unwrap();
        let gradients = linear.backward(&inputs, &made, d_out).unwrap();
        let stale = |like: &[f32]| vec![f32::NAN; like.len()];
        let (mut out, mut normalizer) = (stale(&made.out), stale(&made.normalizer));
        linear.forward_into(&inputs, &mut out, &mut normalizer).unwrap();
        assert_eq!((&out, &normalizer), (&made.out, &made.normalizer), "{what}");
        let mut into = LinearGradients {
            q: stale(&gradients.q),
            k: stale(&gradients.k),
            v: stale(&gradients.v),
        };
        linear.backward_into(&inputs, &out, &normalizer, d_out, &mut into).unwrap();
        assert_eq!(into, gradients, "{what}");
    });
}

#[test]
fn rows_without_keys_are_zero_even_without_epsilon() {
    let shape = Shape::square(1, 1, 5, 4);
    let tensors = Tensors::new(&shape);
    for causal in [true, false] {
        let linear = LinearAttention {
            epsilon: 0.0,
            key_lengths: Some(&[0]),
            ..LinearAttention::new(shape, causal)
        };
        let made = linear.forward(&tensors.inputs()).unwrap();
        assert_eq!(made, LinearOutput { out: vec![0.0; 20], normalizer: vec![0.0; 5] });
        let d = linear.backward(&tensors.inputs(), &made, &tensors.d_out).unwrap();
        assert!([d.q, d.k, d.v].iter().flatten().all(|&x| x == 0.0));
    }
}

#[test]
fn one_key_returns_its_value() {
    // φ(−2) = e⁻², φ(−1) = e⁻¹, φ(0) = 1, φ(1) = 2: the denominator is their sum of squares.
    let x = [-2.0, -1.0, 0.0, 1.0];
    let linear =
        LinearAttention { epsilon: 0.0, ..LinearAttention::new(Shape::square(1, 1, 1, 4), true) };
    let made = linear.forward(&Inputs { q: &x, k: &x, v: &[1.0, 2.0, 3.0, 4.0] }).unwrap();
    let squares = 0.135335_f64.powi(2) + 0.367879_f64.powi(2) + 1.0 + 4.0;
    assert_close("normalizer", [&made.normalizer], [&[squares]]);
    assert_close("out", [&made.out], [&[1.0, 2.0, 3.0, 4.0]]);
}

#[test]
fn calls_that_cannot_be_right_are_refused() {
    let shape = Shape::square(1, 2, 3, 4);
    let tensors = Tensors::new(&shape);
    let inputs = tensors.inputs();
    let linear = LinearAttention::new(shape, true);
    let made = linear.forward(&inputs).unwrap();
    let length = |what, found, expected| Error::Length { what, found, expected };

    let short = Inputs { k: &inputs.k[1..], ..inputs };
    assert_eq!(linear.forward(&short), Err(length("k", 23, 24)));
    let (mut out, mut normalizer) = ([0.0; 24], [0.0; 5]);
    let refused = linear.forward_into(&inputs, &mut out, &mut normalizer);
    assert_eq!(refused, Err(length("normalizer", 5, 6)));
    assert_eq!(linear.backward(&inputs, &made, &[0.0]), Err(length("d_out", 1, 24)));

    let unequal = LinearAttention::new(Shape { keys: 4, ..shape }, true);
    assert!(matches!(unequal.check(), Err(Error::Combination { .. })));
    let long = LinearAttention { key_lengths: Some(&[4]), ..linear };
    assert!(matches!(long.check(), Err(Error::Range { what: "key length", .. })));
    let many = LinearAttention { key_lengths: Some(&[1, 2]), ..linear };
    assert_eq!(many.check(), Err(length("key_lengths", 2, 1)));
    let signed = LinearAttention { map: FeatureMap::Identity, ..linear };
    assert!(matches!(signed.check(), Err(Error::Combination { .. })));
    let endless = LinearAttention { scale: Some(f32::INFINITY), ..linear };
    assert!(matches!(endless.check(), Err(Error::Range { what: "scale", .. })));
    for epsilon in [-1.0, f32::NAN, f32::INFINITY] {
        let refused = LinearAttention { epsilon, ..linear }.check();
        assert!(matches!(refused, Err(Error::Range { what: "epsilon", .. })));
    }

    let bidirectional = LinearAttention { causal: false, ..linear };
    let mut state = LinearState::new(&linear);
    let refused = bidirectional.decode(&mut state, &inputs);
    assert!(matches!(refused, Err(Error::Combination { .. })));
    let mut other = LinearState::new(&LinearAttention::new(Shape::square(1, 1, 3, 4), true));
    assert_eq!(linear.decode(&mut other, &inputs), Err(length("the state's z", 4, 8)));
    assert_eq!(linear.absorb(&mut state, inputs.k, &[]), Err(length("v", 0, 24)));
    assert_eq!(linear.read(&state, &[]), Err(length("q", 0, 24)));
}
