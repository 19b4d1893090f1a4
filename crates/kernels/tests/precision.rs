//! Attention with products in bf16: against the reference in f64, and the same bits on any number of threads.

mod common;

use rayon::prelude::*;
use whatwhere_kernels::{
    Precision,
    attention::{Attention, Inputs},
};

use common::{
    Case, PatternChoice, Sizes, Slice, assert_none, differences, every_extra, every_pattern,
    every_position, every_score, found_slices, passes, reference_slices,
};

/// Each factor of a product is off by 2⁻⁹ = 0.002 at most. Scores here are sums of up to 64 products near 1, their weights
/// exponentials; gradients pass through two such products and through differences of their sums: a dense bias for all, which
/// changes nothing, is off by 0.06 where its gradient should be 0. Wrong terms are of the order of 1. Relative to the largest
/// number of a slice or to 1.
const ROUNDING_OF_BF16: f64 = 0.1;

fn in_bf16(attention: &Attention, inputs: &Inputs, d_out: &[f32]) -> Vec<Slice> {
    let attention = Attention { precision: Precision::Bf16, ..attention.clone() };
    let (made, gradients) = passes(&attention, inputs, d_out);
    found_slices(&made, &gradients)
}

#[test]
fn every_choice_agrees_with_the_reference_within_the_rounding_of_bf16() {
    let (small, long) = (Sizes::small(), Sizes::of(130, 197).at(67, 0).dims(64, 40).batch(1));
    let mut cases = Vec::new();
    for sizes in [small, long] {
        let causal = Case { pattern: PatternChoice::CAUSAL, ..Case::new(sizes) };
        for position in every_position() {
            let base = Case { position, ..causal };
            cases.extend(every_score().into_iter().map(|score| Case { score, ..base }));
            cases.extend(every_extra().map(|extra| Case { extra, ..base }));
        }
        cases.extend(every_pattern().into_iter().map(|pattern| Case { pattern, ..causal }));
    }
    cases.retain(|case| !case.is_refused());
    let complaints = cases.par_iter().flat_map_iter(|case| {
        let found = case.run(|attention, inputs, d_out| {
            let expected = reference_slices(attention, inputs, d_out);
            differences(&in_bf16(attention, inputs, d_out), &expected, ROUNDING_OF_BF16)
        });
        found.into_iter().map(|complaint| format!("{}: {complaint}", case.name()))
    });
    assert_none(&complaints.collect::<Vec<_>>(), cases.len());
}

#[test]
fn products_are_in_bf16_and_only_where_it_is_asked_for() {
    let case = Case { pattern: PatternChoice::CAUSAL, ..Case::new(Sizes::of(40, 40).dims(32, 32)) };
    case.run(|attention, inputs, d_out| {
        let expected = reference_slices(attention, inputs, d_out);
        let (made, gradients) = passes(attention, inputs, d_out);
        let none = differences(&found_slices(&made, &gradients), &expected, 1e-4);
        assert!(none.is_empty(), "{none:?}");
        let all = differences(&in_bf16(attention, inputs, d_out), &expected, 1e-4);
        assert_eq!(all.len(), expected.len(), "{all:?}");
    });
}

#[test]
fn a_query_that_sees_one_key_has_no_gradient() {
    let sizes = Sizes::of(70, 70).dims(64, 64);
    let case = Case { pattern: PatternChoice::CAUSAL, ..Case::new(sizes) };
    case.run(|attention, inputs, d_out| {
        let attention = Attention { precision: Precision::Bf16, ..attention.clone() };
        let (_, gradients) = passes(&attention, inputs, d_out);
        let largest = |row: usize| {
            let values = &gradients.q[row * 64..][..64];
            values.iter().fold(0.0f32, |top, x| top.max(x.abs()))
        };
        // What is left is the order of two sums in f32; what `d_out` loses to rounding would leave 7e-4.
        assert!(largest(0) < 1e-5 && largest(1) > 1e-2, "{} {}", largest(0), largest(1));
    });
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let sizes = Sizes::of(300, 300).dims(40, 40);
    let case = Case { pattern: PatternChoice::CAUSAL, ..Case::new(sizes) };
    case.run(|attention, inputs, d_out| {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let made = pool.expect("threads").install(|| in_bf16(attention, inputs, d_out));
            let bits = |slice: Slice| slice.values.into_iter().map(f64::to_bits).collect();
            made.into_iter().map(bits).collect::<Vec<Vec<u64>>>()
        };
        let one = run(1);
        assert!(one == run(2) && one == run(5));
    });
}
