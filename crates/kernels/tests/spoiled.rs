//! Numbers that are none: what they spoil, and what they must not.

mod common;

use whatwhere_kernels::attention::{Attention, Inputs, Output, pattern::KeyLengths};

use common::{
    Case, PatternChoice, ROUNDING, Sizes, assert_close, differences, every_pattern, every_position,
    every_score, found_slices, passes, rows, sees, widen,
};

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
fn assert_row(case: &Case, made: &Output, clean: &Output, row: usize, spoiled: bool) {
    let width = case.sizes.shape.value_dim;
    let out = |made: &Output| widen(&made.out[row * width..(row + 1) * width]);
    let name = || format!("row {row}: {}", case.name());
    if spoiled {
        assert!(out(made).iter().all(|x| x.is_nan()) && made.lse[row].is_nan(), "{}", name());
    } else {
        assert_close(&out(made), &out(clean), ROUNDING, &name());
        assert_close(
            &widen(&made.lse[row..=row]),
            &widen(&clean.lse[row..=row]),
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
            let [spoiled, clean] = [spoiled, clean].map(|(made, d)| found_slices(&made, &d));
            let differences = differences(&spoiled, &clean, ROUNDING);
            assert!(differences.is_empty(), "{}: {differences:?}", score.name);
        });
    }
}
