//! States that forget and overwrite against their plain definition in f64, and the laws they obey.

mod common;

use common::{numbers, widen};
use whatwhere_kernels::{
    Error, Simd,
    attention::{Inputs, Shape},
    linear_attention::{FeatureMap, LinearAttention, Recurrence},
};

// Of the largest number expected: products over up to 70 tokens in f32.
const ROUNDED: f64 = 2e-5;
// Central differences of step 1e-5 in f64, with room for sums of a hundred terms.
const DIFFERENCES: f64 = 1e-7;

/// What is forgotten, and whether what a key held is overwritten.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gates {
    None,
    Token,
    Channel,
}

/// A call's numbers in f64: q, k, v, decay, beta, state.
#[derive(Clone)]
struct Exact([Vec<f64>; 6]);

struct Tensors([Vec<f32>; 6], Vec<f32>);

impl Tensors {
    fn new(shape: &Shape, gates: Gates, delta: bool) -> Self {
        let tokens = shape.batch * shape.kv_heads * shape.keys;
        let decays = match gates {
            Gates::None => 0,
            Gates::Token => tokens,
            Gates::Channel => tokens * shape.head_dim,
        };
        let state = shape.batch * shape.kv_heads * shape.head_dim * shape.value_dim;
        let small = |seed, len| numbers(seed, len).iter().map(|x| 0.7 * x).collect();
        let all = [
            numbers(1, shape.q_len()),
            small(2, shape.k_len()),
            numbers(3, shape.v_len()),
            numbers(4, decays).iter().map(|x| 0.3 * (x - 1.0)).collect(),
            numbers(5, if delta { tokens } else { 0 }).iter().map(|x| 0.5 * (x + 1.0)).collect(),
            numbers(6, state),
        ];
        Self(all, numbers(7, shape.out_len()))
    }

    /// Forgets so many times faster.
    fn forgetting(mut self, pace: f32) -> Self {
        self.0[3].iter_mut().for_each(|decay| *decay *= pace);
        self
    }

    fn call(&self, shape: Shape) -> Recurrence<'_> {
        let some = |values: &'_ Vec<f32>| !values.is_empty();
        Recurrence {
            decay: Some(&self.0[3][..]).filter(|_| some(&self.0[3])),
            beta: Some(&self.0[4][..]).filter(|_| some(&self.0[4])),
            ..Recurrence::new(shape)
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs { q: &self.0[0], k: &self.0[1], v: &self.0[2] }
    }

    fn exact(&self) -> Exact {
        Exact(self.0.each_ref().map(|values| widen(values)))
    }
}

/// The outputs and the state after all tokens, by the definition.
fn reference(call: &Recurrence, Exact([q, k, v, decay, beta, state]): &Exact) -> [Vec<f64>; 2] {
    let Shape { batch, heads, kv_heads, queries, head_dim, value_dim, .. } = call.shape;
    let (mut out, mut states) = (vec![0.0; batch * heads * queries * value_dim], state.clone());
    let group = heads / kv_heads;
    for head in 0..batch * kv_heads {
        let s = &mut states[head * head_dim * value_dim..][..head_dim * value_dim];
        for t in 0..queries {
            let token = head * queries + t;
            let gates = decay.len() / (batch * kv_heads * queries);
            let k = &k[token * head_dim..][..head_dim];
            for (d, row) in s.chunks_exact_mut(value_dim).enumerate() {
                let log = if gates == 0 { 0.0 } else { decay[token * gates + d % gates] };
                row.iter_mut().for_each(|s| *s *= log.exp());
            }
            let u: Vec<f64> = (0..value_dim)
                .map(|m| {
                    let held: f64 = (0..head_dim).map(|d| k[d] * s[d * value_dim + m]).sum();
                    let v = v[token * value_dim + m];
                    if beta.is_empty() { v } else { beta[token] * (v - held) }
                })
                .collect();
            for (d, row) in s.chunks_exact_mut(value_dim).enumerate() {
                row.iter_mut().zip(&u).for_each(|(s, u)| *s += k[d] * u);
            }
            for member in 0..group {
                let row = (head * group + member) * queries + t;
                for m in 0..value_dim {
                    let read = (0..head_dim).map(|d| q[row * head_dim + d] * s[d * value_dim + m]);
                    out[row * value_dim + m] = f64::from(call.scale) * read.sum::<f64>();
                }
            }
        }
    }
    [out, states]
}

fn every_form() -> impl Iterator<Item = (Gates, bool)> {
    let gates = [Gates::None, Gates::Token, Gates::Channel];
    gates.into_iter().flat_map(|gates| [(gates, false), (gates, true)])
}

fn shapes() -> Vec<Shape> {
    let shape = |length, head_dim| Shape::square(1, 2, length, head_dim);
    vec![
        shape(0, 4),
        shape(1, 3),
        shape(31, 4),
        shape(32, 4),
        shape(33, 5),
        Shape { kv_heads: 2, value_dim: 3, ..Shape::square(2, 4, 70, 7) },
        Shape { kv_heads: 1, value_dim: 19, ..Shape::square(1, 3, 40, 17) },
        // From 64 tokens on in chunks of up to 48.
        shape(63, 4),
        shape(64, 4),
        shape(96, 16),
        shape(97, 5),
        Shape { kv_heads: 2, value_dim: 19, ..Shape::square(2, 4, 150, 17) },
    ]
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

#[test]
fn forward_is_the_recurrence_and_leaves_its_state() {
    for shape in shapes() {
        for (gates, delta) in every_form() {
            let tensors = Tensors::new(&shape, gates, delta);
            for simd in Simd::available() {
                let call = Recurrence { simd, ..tensors.call(shape) };
                let mut state = tensors.0[5].clone();
                let out = call.forward(&mut state, &tensors.inputs()).unwrap();
                let [expected, after] = reference(&call, &tensors.exact());
                let what = format!("{gates:?}, delta {delta}, {shape:?}, {}", simd.name());
                assert_near(&what, &out, &expected);
                assert_near(&what, &state, &after);
            }
        }
    }
}

#[test]
fn states_that_forget_at_once_are_right_in_chunks() {
    let shape = Shape { kv_heads: 1, value_dim: 3, ..Shape::square(1, 2, 150, 5) };
    for (gates, delta) in every_form() {
        for pace in [10.0, 100.0, 1e4, f32::INFINITY] {
            let mut tensors = Tensors::new(&shape, gates, delta).forgetting(pace);
            // 0 · ∞: nothing is forgotten where the decay is 0.
            tensors.0[3].iter_mut().filter(|d| d.is_nan()).for_each(|decay| *decay = 0.0);
            let call = tensors.call(shape);
            let mut state = tensors.0[5].clone();
            let out = call.forward(&mut state, &tensors.inputs()).unwrap();
            let [expected, after] = reference(&call, &tensors.exact());
            assert_near(&format!("{gates:?}, delta {delta}, {pace}"), &out, &expected);
            assert_near(&format!("{gates:?}, delta {delta}, {pace}"), &state, &after);
            let made = call.backward(&tensors.0[5], &tensors.inputs(), &tensors.1).unwrap();
            let all = [made.q, made.k, made.v, made.decay, made.beta, made.state];
            assert!(all.iter().flatten().all(|d| d.is_finite()), "{gates:?}, {delta}, {pace}");
        }
    }
}

#[test]
fn gradients_are_slopes_of_the_reference() {
    let lengths = [35, 100].into_iter();
    let every = lengths.flat_map(|length| [1.0, 60.0].map(|pace| (length, pace)));
    for ((length, pace), (gates, delta)) in every.flat_map(|a| every_form().map(move |b| (a, b))) {
        let shape = Shape { kv_heads: 1, value_dim: 3, ..Shape::square(1, 2, length, 2) };
        let tensors = Tensors::new(&shape, gates, delta).forgetting(pace);
        let call = tensors.call(shape);
        let made = call.backward(&tensors.0[5], &tensors.inputs(), &tensors.1).unwrap();
        let found = [made.q, made.k, made.v, made.decay, made.beta, made.state];
        let exact = tensors.exact();
        let d_out = widen(&tensors.1);
        let loss = |exact: &Exact| -> f64 {
            reference(&call, exact)[0].iter().zip(&d_out).map(|(out, d)| out * d).sum()
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
            assert!(expected.iter().all(|x| x.is_finite()) && DIFFERENCES < ROUNDED);
            let what =
                format!("{length} tokens, pace {pace}, {gates:?}, delta {delta}, part {part}");
            assert_near(&what, found, &expected);
        }
    }
}

#[test]
fn tokens_one_by_one_equal_one_call_to_the_bit() {
    let shape = Shape { kv_heads: 1, value_dim: 3, ..Shape::square(1, 2, 40, 5) };
    for (gates, delta) in every_form() {
        let tensors = Tensors::new(&shape, gates, delta);
        let mut whole = tensors.0[5].clone();
        let expected = tensors.call(shape).forward(&mut whole, &tensors.inputs()).unwrap();
        let mut state = tensors.0[5].clone();
        for t in 0..shape.keys {
            let one = Shape { queries: 1, keys: 1, ..shape };
            let of = |values: &[f32], width: usize| -> Vec<f32> {
                let heads = values.chunks_exact(shape.keys * width);
                heads.flat_map(|head| head[t * width..(t + 1) * width].to_vec()).collect()
            };
            let Tensors([q, k, v, decay, beta, _], _) = &tensors;
            let gates = decay.len() / shape.keys;
            let (decay, beta) = (of(decay, gates.max(1)), of(beta, 1));
            let call = Recurrence {
                decay: Some(&decay[..]).filter(|decay| !decay.is_empty()),
                beta: Some(&beta[..]).filter(|beta| !beta.is_empty()),
                ..Recurrence::new(one)
            };
            let (q, k, v) = (of(q, 5), of(k, 5), of(v, 3));
            let out = call.forward(&mut state, &Inputs { q: &q, k: &k, v: &v }).unwrap();
            assert_eq!(out, of(&expected, 3), "{gates:?}, delta {delta}, token {t}");
        }
        assert_eq!(state, whole);
    }
}

#[test]
fn without_gates_it_is_linear_attention_without_features_and_denominator() {
    let shape = Shape { kv_heads: 2, value_dim: 3, ..Shape::square(2, 4, 70, 7) };
    let tensors = Tensors::new(&shape, Gates::None, false);
    let call = tensors.call(shape);
    let mut state = vec![0.0; call.state_len()];
    let out = call.forward(&mut state, &tensors.inputs()).unwrap();
    let (map, scale) = (FeatureMap::Identity, Some(call.scale));
    let linear = LinearAttention { map, scale, ..LinearAttention::new(shape, true) };
    assert_near("linear", &linear.forward(&tensors.inputs()).unwrap().out, &widen(&out));
}

#[test]
fn threads_do_not_change_a_bit() {
    let shape = Shape { kv_heads: 4, ..Shape::square(2, 8, 70, 16) };
    let tensors = Tensors::new(&shape, Gates::Channel, true);
    let call = tensors.call(shape);
    let made = [1, 2, 4].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let out = call.forward(&mut tensors.0[5].clone(), &tensors.inputs()).unwrap();
            (out, call.backward(&tensors.0[5], &tensors.inputs(), &tensors.1).unwrap())
        })
    });
    assert!(made[0] == made[1] && made[0] == made[2]);
}

#[test]
fn calls_that_cannot_be_right_are_refused() {
    let shape = Shape::square(1, 2, 3, 4);
    let tensors = Tensors::new(&shape, Gates::Token, true);
    let call = tensors.call(shape);
    let length = |what, found, expected| Err(Error::Length { what, found, expected });
    assert_eq!(call.forward(&mut [0.0; 3], &tensors.inputs()), length("state", 3, 32));
    let decay = Recurrence { decay: Some(&[0.0; 5]), ..call };
    assert_eq!(decay.forward(&mut [0.0; 32], &tensors.inputs()), length("decay", 5, 24));
    let beta = Recurrence { beta: Some(&[0.0; 5]), ..call };
    assert_eq!(beta.forward(&mut [0.0; 32], &tensors.inputs()), length("beta", 5, 6));
    let unequal = Recurrence::new(Shape { keys: 4, ..shape });
    assert!(matches!(unequal.check(), Err(Error::Combination { .. })));
    let endless = Recurrence { scale: f32::NAN, ..call };
    assert!(matches!(endless.check(), Err(Error::Range { what: "scale", .. })));
}
