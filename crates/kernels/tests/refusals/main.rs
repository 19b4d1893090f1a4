//! What the public entry refuses: anything that does not fit together gives an error, never a panic.

#[path = "../common/mod.rs"]
mod common;
mod draw;
mod rules;

use std::sync::Arc;

use whatwhere_kernels::{
    Error,
    attention::{
        Angles, Attention, Bias, Buckets, Dropout, Feature, FeatureKind, Focus, Gradients, Inputs,
        Layout, Output, Relative, Score, Shape,
        pattern::{Full, KeyLengths},
        reference,
    },
};
use whatwhere_random::Random;

use common::numbers;
use draw::{Dice, Tables};
use rules::fits;

#[test]
fn a_call_is_refused_exactly_when_something_does_not_fit() {
    let tables = Tables::new();
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..100_000 {
        let (attention, inputs) = Dice(Random::new(&[seed])).call(&tables);
        let name = format!("seed {seed}, {:?}", attention.shape);
        let fits = fits(&attention, &inputs, &tables);
        let found = attention.forward(&inputs);
        assert_eq!(found.is_ok(), fits, "{name}: {:?}", found.err());
        // The reference takes its time over heads without queries.
        if attention.shape.batch.saturating_mul(attention.shape.heads) < 1000 {
            assert_eq!(reference::forward(&attention, &inputs).is_ok(), fits, "{name}");
        }
        match found {
            Ok(made) => {
                allowed += 1;
                let d_out = &tables.numbers[..made.out.len()];
                assert!(attention.backward(&inputs, &made, d_out).is_ok(), "{name}");
            }
            Err(error) => {
                refused += 1;
                // The settings and the inputs are looked at first.
                let made = Output { out: Vec::new(), lse: Vec::new() };
                assert_eq!(attention.backward(&inputs, &made, &[]), Err(error), "{name}");
            }
        }
    }
    assert!(allowed > 10_000 && refused > 10_000, "{allowed} allowed, {refused} refused");
}

#[test]
fn results_and_gradients_of_the_wrong_length_are_refused() {
    let attention = Attention::new(Shape::square(1, 2, 3, 4), &Full);
    let x = numbers(1, 24);
    let inputs = Inputs { q: &x, k: &x, v: &x };
    let made = attention.forward(&inputs).unwrap();
    for wrong in [0, 1, 23, 25] {
        let length = |what, expected| Error::Length { what, found: wrong, expected };
        let cut = |values: &[f32]| values.iter().copied().cycle().take(wrong).collect::<Vec<f32>>();
        let (mut out, mut lse) = (vec![0.0; wrong], [0.0; 6]);
        let found = attention.forward_into(&inputs, &mut out, &mut lse);
        assert_eq!(found, Err(length("out", 24)));
        let found = attention.forward_into(&inputs, &mut [0.0; 24], &mut out);
        assert_eq!(found, Err(length("lse", 6)));
        let bad_out = Output { out: cut(&made.out), ..made.clone() };
        assert_eq!(attention.backward(&inputs, &bad_out, &x), Err(length("out", 24)));
        let bad_sum = Output { lse: cut(&made.lse), ..made.clone() };
        assert_eq!(attention.backward(&inputs, &bad_sum, &x), Err(length("lse", 6)));
        assert_eq!(attention.backward(&inputs, &made, &cut(&x)), Err(length("d_out", 24)));

        let right = Gradients::zeros(&attention);
        for (what, mut gradients) in [
            ("gradients of q", Gradients { q: cut(&x), ..right.clone() }),
            ("gradients of k", Gradients { k: cut(&x), ..right.clone() }),
            ("gradients of v", Gradients { v: cut(&x), ..right.clone() }),
        ] {
            let found = attention.backward_into(&inputs, &made.out, &made.lse, &x, &mut gradients);
            assert_eq!(found, Err(length(what, 24)));
        }
    }
}

#[test]
fn messages_say_what_was_found_and_what_would_be_right() {
    let shape = Shape { kv_heads: 2, ..Shape::square(1, 4, 3, 8) };
    let angles = Angles::new(&Angles::rotary_frequencies(8, 10_000.0), 0..3, 1.0);
    let rotary = Feature {
        kind: FeatureKind::Rotary { layout: Layout::HalfSplit },
        channels: 0..8,
        heads: 0..4,
        angles: Arc::new(angles),
    };
    let base = Attention { features: vec![rotary.clone()], ..Attention::new(shape, &Full) };
    let sized = |shape| Attention { shape, features: Vec::new(), ..base.clone() };
    let bias = |bias| Attention { biases: vec![bias], ..base.clone() };
    let feature = |feature| Attention { features: vec![feature], ..base.clone() };
    let dense = Bias::Dense { values: &[0.0; 6][..], shape: [1, 1, 2, 3], learned: false };
    let vectors = Relative { table: &[0.0; 7][..], per_head: false, left: 1, right: 1 };
    let two_sequences = KeyLengths::new(vec![1, 2]).unwrap();
    let cases = [
        (sized(Shape { heads: 0, ..shape }), "heads is 0, expected at least 1"),
        (sized(Shape { kv_heads: 3, ..shape }), "heads = 4 is not a multiple of kv_heads = 3"),
        (
            sized(Shape { queries: usize::MAX, ..shape }),
            "the shape's tensors are larger than this machine can address",
        ),
        (sized(Shape { queries: 4, ..shape }), "q has 96 values, expected 128"),
        (
            Attention { score: Score::Dot { scale: f32::NAN }, ..base.clone() },
            "scale = NaN is outside the finite numbers",
        ),
        (Attention { soft_cap: Some(0.0), ..base.clone() }, "soft_cap = 0.0 is outside (0, ∞)"),
        (
            Attention { dropout: Some(Dropout { rate: 1.0, seed: 0 }), ..base.clone() },
            "dropout rate = 1.0 is outside [0, 1)",
        ),
        (
            Attention {
                focus: Some(Focus { centers: &[0.0; 12], deviation: -1.0 }),
                ..base.clone()
            },
            "focus deviation = -1.0 is outside (0, ∞)",
        ),
        (
            Attention { query_bias: Some(&[0.0; 3]), ..base.clone() },
            "query bias has 3 values, expected 32",
        ),
        (
            Attention { first_query: usize::MAX, ..base.clone() },
            "first_query = 18446744073709551615 is outside positions below 2³²",
        ),
        (
            feature(Feature { channels: 4..12, ..rotary.clone() }),
            "feature.channels = 4..12 is outside a range of the head's channels",
        ),
        (
            feature(Feature { heads: 2..5, ..rotary.clone() }),
            "feature.heads = 2..5 is outside a range of the heads",
        ),
        (
            feature(Feature { channels: 0..7, ..rotary.clone() }),
            "rotary channels = 7 is outside the even numbers",
        ),
        (
            feature(Feature { channels: 0..6, ..rotary.clone() }),
            "angles' frequencies has 4 values, expected 3",
        ),
        (
            Attention { first_query: 2, ..base.clone() },
            "queries' positions = 2..5 is outside the positions of the angle table",
        ),
        (
            Attention { features: vec![rotary.clone(), rotary], ..base.clone() },
            "features: two of them claim the same channels of the same heads",
        ),
        (
            bias(Bias::ByDistance { table: &[0.0; 8], left: 1, right: 1 }),
            "distance table has 8 values, expected 12",
        ),
        (
            bias(Bias::Relative { vectors, query_bias: None, scale: 1.0 }),
            "relative keys has 7 values, expected 24",
        ),
        (bias(dense), "dense bias size = 2 is outside 1 or the call's own size"),
        (
            Attention { relative_values: Some(vectors), ..base.clone() },
            "relative values has 7 values, expected 24",
        ),
        (
            Attention { pattern: &two_sequences, ..base.clone() },
            "list of key lengths has 2 values, expected 1",
        ),
        (
            Attention { score: Score::Additive { weight: &[0.0; 32] }, ..base.clone() },
            "additive score with rotary or polar features: tanh(q + k) does not depend on the \
             distance after a rotation",
        ),
    ];
    let (q, k) = (numbers(1, 96), numbers(2, 48));
    let inputs = Inputs { q: &q, k: &k, v: &k };
    assert!(base.forward(&inputs).is_ok());
    let buckets = Buckets { count: 1, max_distance: 20, bidirectional: false };
    let message = "buckets.count = 1 is outside 2 and more (bidirectional: even, 4 and more)";
    assert_eq!(buckets.check().unwrap_err().to_string(), message);
    for (attention, message) in cases {
        assert_eq!(attention.forward(&inputs).unwrap_err().to_string(), message);
    }
}
