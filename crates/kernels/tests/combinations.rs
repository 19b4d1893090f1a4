//! The fast path against the reference: every score × pattern × position, and everything else in pairs.
//!
//! The whole product would take hours. Scores, patterns and positions meet in all combinations at a length that
//! crosses a strip but not a tile; lengths around the tile, head layouts, dropout and focus meet every other
//! choice one at a time.

mod common;

use rayon::prelude::*;
use whatwhere_kernels::{Attention, Error, Inputs, reference};

use common::{
    Case, ROUNDING, Sizes, assert_none, difference, every_extra, every_pattern, every_position,
    every_score, passes, slices, widen,
};

#[test]
fn every_combination_agrees_with_the_reference() {
    let cases = cases();
    let complaints: Vec<String> = cases.par_iter().flat_map_iter(complaints).collect();
    assert_none(&complaints, cases.len());
}

fn cases() -> Vec<Case> {
    let small = Case::new(Sizes::small());
    let mut cases = Vec::new();
    for score in every_score() {
        for pattern in every_pattern() {
            for position in every_position() {
                cases.push(Case { score, pattern, position, ..small });
            }
        }
    }
    let causal = every_pattern()[2];
    for sizes in every_length() {
        let base = Case { pattern: causal, ..Case::new(sizes) };
        cases.extend(every_position().into_iter().map(|position| Case { position, ..base }));
        cases.extend(every_pattern().into_iter().map(|pattern| Case { pattern, ..base }));
        cases.extend(every_score().into_iter().map(|score| Case { score, ..base }));
        cases.extend(every_extra().into_iter().map(|extra| Case { extra, ..base }));
    }
    for sizes in every_head_layout() {
        let base = Case { pattern: causal, ..Case::new(sizes) };
        cases.extend(every_position().into_iter().map(|position| Case { position, ..base }));
        cases.extend(every_score().into_iter().map(|score| Case { score, ..base }));
        cases.extend(every_extra().into_iter().map(|extra| Case { extra, ..base }));
    }
    for extra in every_extra() {
        let base = Case { extra, pattern: causal, ..small };
        cases.extend(every_position().into_iter().map(|position| Case { position, ..base }));
        cases.extend(every_pattern().into_iter().map(|pattern| Case { pattern, ..base }));
        cases.extend(every_score().into_iter().map(|score| Case { score, ..base }));
    }
    cases
}

/// Lengths around the tile of 96, the strip of 12 and the few queries that are worked on row by row.
fn every_length() -> Vec<Sizes> {
    let one = |queries, keys| Sizes::of(queries, keys).batch(1);
    vec![
        one(1, 1),
        one(1, 97).at(96, 0),
        one(3, 130).at(127, 0),
        one(4, 33).at(30, 2),
        one(12, 16).at(4, 0),
        one(95, 95),
        one(96, 96).at(0, 1),
        one(97, 97),
        one(33, 130).at(97, 0),
        one(130, 33),
        one(96, 192).at(50, 7),
        // Sixteen heads leave a head's queries and keys in one task of several tiles.
        one(110, 101).heads(16, 4).dims(2, 3),
    ]
}

fn every_head_layout() -> Vec<Sizes> {
    let small = Sizes::small();
    vec![
        small.heads(1, 1).batch(1),
        small.heads(3, 3),
        small.heads(4, 2),
        small.heads(4, 1),
        small.heads(2, 1).dims(8, 3),
        small.dims(5, 5),
        small.dims(20, 20),
        small.dims(1, 1),
        small.heads(4, 2).dims(17, 33),
        small.dims(64, 64).batch(1),
    ]
}

fn complaints(case: &Case) -> Vec<String> {
    let found = case.run(|attention, inputs, d_out| {
        if case.is_refused() {
            return refusal_complaint(attention, inputs).into_iter().collect::<Vec<_>>();
        }
        let expected = reference_slices(attention, inputs, d_out);
        let (made, gradients) = passes(attention, inputs, d_out);
        let found = slices(&made, &gradients);
        let pairs = found.into_iter().zip(expected);
        pairs
            .filter_map(|((name, found), (_, expected))| {
                let difference = difference(&found, &expected, ROUNDING)?;
                Some(format!("{name}: {difference}"))
            })
            .collect()
    });
    found.into_iter().map(|complaint| format!("{}: {complaint}", case.name())).collect()
}

fn reference_slices(
    attention: &Attention,
    inputs: &Inputs,
    d_out: &[f32],
) -> Vec<(String, Vec<f64>)> {
    let made = reference::forward(attention, inputs).expect("the case is allowed");
    let gradients = reference::backward(attention, inputs, d_out).expect("the case is allowed");
    let mut slices = vec![("out".to_owned(), made.out), ("log_sum".to_owned(), made.log_sum)];
    slices.extend(gradients.slices().into_iter().map(|(name, d)| (name, d.to_vec())));
    slices
}

fn refusal_complaint(attention: &Attention, inputs: &Inputs) -> Option<String> {
    let refused = |error| matches!(error, Some(Error::Combination { .. }));
    let fast = refused(attention.forward(inputs).err());
    let slow = refused(reference::forward(attention, inputs).err());
    (!fast || !slow).then(|| format!("not refused (fast path {fast}, reference {slow})"))
}
