//! The fast path against the reference: every score × pattern × position, and everything else in pairs.
//!
//! The whole product would take hours. Scores, patterns and positions meet in all combinations at a length that
//! crosses a strip but not a tile, and so do dropout and focus with patterns and positions. Lengths around the tile
//! and head layouts meet every other choice one at a time.

mod common;

use rayon::prelude::*;
use whatwhere_kernels::{
    Error,
    attention::{Arrangement, Attention, Inputs, reference},
};

use common::{
    Case, PatternChoice, ROUNDING, Sizes, assert_none, differences, every_extra, every_pattern,
    every_position, every_score, found_slices, passes, reference_slices,
};

#[test]
fn every_combination_agrees_with_the_reference() {
    let cases = cases();
    let complaints: Vec<String> = cases.par_iter().flat_map_iter(complaints).collect();
    assert_none(&complaints, cases.len());
}

fn cases() -> Vec<Case> {
    let (scores, patterns, positions) = (every_score(), every_pattern(), every_position());
    let small = Case::new(Sizes::small());
    let mut cases = Vec::new();
    for &pattern in &patterns {
        for &position in &positions {
            let base = Case { pattern, position, ..small };
            cases.extend(scores.iter().map(|&score| Case { score, ..base }));
            cases.extend(every_extra().map(|extra| Case { extra, ..base }));
        }
    }
    for (i, sizes) in every_length().into_iter().chain(every_head_layout()).enumerate() {
        let base = Case { pattern: PatternChoice::CAUSAL, ..Case::new(sizes) };
        cases.extend(patterns.iter().map(|&pattern| Case { pattern, ..base }));
        for (j, &position) in positions.iter().enumerate() {
            cases.push(Case { position, ..base });
            // Each size gives a position another pattern, and another score and extra besides.
            let base = Case { position, pattern: patterns[(i + j) % patterns.len()], ..base };
            let (score, extra) = (scores[(i + 3 * j) % scores.len()], every_extra()[(i + j) % 4]);
            cases.extend([base, Case { score, extra, ..base }]);
        }
        for extra in every_extra() {
            cases.extend(scores.iter().map(|&score| Case { score, extra, ..base }));
        }
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
        one(200, 210).at(3, 0).heads(1, 1),
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
    let found: Vec<String> = case.run(|attention, inputs, d_out| {
        if case.is_refused() {
            return refusal_complaint(attention, inputs).into_iter().collect();
        }
        let expected = reference_slices(attention, inputs, d_out);
        // Tiles of neighbors, and gathered as far as there are queries enough.
        let arranged = |arrangement| {
            let attention = Attention { arrangement, ..attention.clone() };
            let (made, gradients) = passes(&attention, inputs, d_out);
            let differences = differences(&found_slices(&made, &gradients), &expected, ROUNDING);
            differences.into_iter().map(move |d| format!("{arrangement:?}: {d}"))
        };
        [Arrangement::Neighbors, Arrangement::Gathered].into_iter().flat_map(arranged).collect()
    });
    found.into_iter().map(|complaint| format!("{}: {complaint}", case.name())).collect()
}

fn refusal_complaint(attention: &Attention, inputs: &Inputs) -> Option<String> {
    let refused = |error| matches!(error, Some(Error::Combination { .. }));
    let fast = refused(attention.forward(inputs).err());
    let slow = refused(reference::forward(attention, inputs).err());
    (!fast || !slow).then(|| format!("not refused (fast path {fast}, reference {slow})"))
}
