//! What every pattern must satisfy. A new one joins by the list of settings, with its defaults; [`by_hand`] has sharper sizes.

use proptest::prelude::*;

use super::{count::pairs, *};

struct Case {
    name: &'static str,
    pattern: Box<dyn Pattern>,
    /// Whether every tile that is empty or full is reported so.
    exact: bool,
}

fn every_pattern() -> Vec<Case> {
    let mut patterns = by_hand();
    patterns.extend(chosen());
    patterns
}

/// The patterns that can be chosen, with their defaults.
#[cfg(feature = "settings")]
fn chosen() -> Vec<Case> {
    let documents = [vec![0, 10, 11, 40, 77]];
    let centers: Vec<f32> = (0..2 * 2 * 50).map(|row| (row * 7 % 60) as f32).collect();
    let context = settings::PatternContext {
        heads: 2,
        documents: Some(&documents),
        tokens: None,
        first_query: 3,
        centers: Some((&centers, [2, 2, 50])),
    };
    let case = |choice: settings::Pattern| {
        let pattern = choice.build(&context).unwrap();
        Case { name: choice.name(), pattern, exact: false }
    };
    settings::Pattern::all().into_iter().map(case).collect()
}

#[cfg(not(feature = "settings"))]
fn chosen() -> Vec<Case> {
    Vec::new()
}

fn by_hand() -> Vec<Case> {
    let exact = |name, pattern| Case { name, pattern, exact: true };
    let loose = |name, pattern| Case { name, pattern, exact: false };
    let window = Window { left: 5, right: 2 };
    let unlimited = Window::UNLIMITED;
    let draw = Draw { heads: 2, queries: 100, keys: 90, block: 8, count: 3, seed: 1 };
    let random = |draw| Box::new(Random::new(draw).unwrap());
    let dilated = |left, right, step| Box::new(Dilated::new(left, right, step).unwrap());
    let strided = |stride| Box::new(Strided::new(stride).unwrap());
    let fixed = |stride, summary| Box::new(Fixed::new(stride, summary).unwrap());
    let documents = |starts| Box::new(Documents::new(starts).unwrap());
    let wander = |row: usize| row * 7 % 60..row * 7 % 60 + row % 23;
    let spans = |spans| Box::new(Spans::new([2, 2, 50], 3, spans).unwrap());
    vec![
        exact("full", Box::new(Full)),
        exact("causal", Box::new(Causal::upper_left())),
        exact("causal, ahead", Box::new(Causal { offset: 7 })),
        exact("causal, behind", Box::new(Causal { offset: -20 })),
        exact("window", Box::new(window)),
        exact("window of one", Box::new(Window { left: 0, right: 0 })),
        exact("window, all behind", Box::new(Window { left: unlimited, right: 3 })),
        exact("window, all ahead", Box::new(Window { left: 9, right: unlimited })),
        exact("dilated", dilated(4, 2, 5)),
        exact("dilated, step 1", dilated(4, 2, 1)),
        exact("dilated, unlimited", dilated(unlimited, unlimited, 3)),
        exact("dilated, step beyond all positions", dilated(1, 1, usize::MAX)),
        exact("strided", strided(9)),
        exact("strided by 1", strided(1)),
        exact("strided beyond all positions", strided(usize::MAX)),
        exact("fixed", fixed(10, 3)),
        exact("fixed, no summary", fixed(7, 0)),
        exact("fixed, all summary", fixed(7, 7)),
        exact("fixed, blocks of 1", fixed(1, 1)),
        exact("random", random(draw)),
        exact("random, single positions", random(Draw { block: 1, count: 30, ..draw })),
        exact("random, all blocks", random(Draw { block: 40, count: 3, ..draw })),
        exact("random, none", random(Draw { count: 0, ..draw })),
        exact("global, first", Box::new(Global::first(6))),
        exact(
            "global, each sequence",
            Box::new(Global::each(2, vec![vec![30, 1, 4], vec![61, 62, 63]]).unwrap()),
        ),
        exact("global, list", Box::new(Global::at(vec![41, 0, 17, 18, 19, 20, 70]))),
        exact("prefix", Box::new(Prefix::new(vec![23]).unwrap())),
        exact("prefix per sequence", Box::new(Prefix::new(vec![0, 50]).unwrap())),
        exact("documents", documents(vec![vec![0, 10, 11, 11, 40, 77]])),
        exact("documents per sequence", documents(vec![vec![30], vec![]])),
        exact("key lengths", Box::new(KeyLengths::new(vec![33]).unwrap())),
        exact("key lengths per sequence", Box::new(KeyLengths::new(vec![64, 0]).unwrap())),
        exact("spans", spans((0..200).map(wander).collect())),
        exact("spans, all alike", spans(vec![20..90; 200])),
        loose("function", Box::new(from_fn(|p| (p.query ^ p.key ^ p.head) % 3 == p.batch % 3))),
        loose("and", Box::new(And(Causal::upper_left(), window))),
        loose("or", Box::new(Or(window, Global::first(6)))),
        loose("or of or", Box::new(Or(Or(window, random(draw)), Global::at(vec![60])))),
        loose("and of or", Box::new(And(Causal::upper_left(), Or(window, random(draw))))),
        loose("and, borrowed", Box::new(And(&Full, &Causal { offset: 0 } as &dyn Pattern))),
    ]
}

/// The keys below `end` that a query sees in head 0 of sequence 0.
pub(super) fn visible_keys(pattern: &dyn Pattern, query: usize, end: usize) -> Vec<usize> {
    (0..end).filter(|&key| pattern.sees(Pair { batch: 0, head: 0, query, key })).collect()
}

/// Coverage by asking every pair.
fn asked(pattern: &dyn Pattern, tile: &Tile) -> Coverage {
    let visible = pairs(tile).filter(|&pair| pattern.sees(pair)).count();
    Coverage::of(visible, tile.queries.len() * tile.keys.len())
}

/// Positions near the start, near each other far away, and far from each other.
fn position() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..130usize, 1 => u32::MAX as usize - 130..u32::MAX as usize - 40]
}

proptest! {
    #[test]
    fn coverage_never_contradicts_sees(
        (batch, head) in (0..3usize, 0..3usize),
        (query, key) in (position(), position()),
        (queries, keys) in (1..40usize, 1..40usize),
    ) {
        let tile = Tile { batch, head, queries: query..query + queries, keys: key..key + keys };
        for Case { name, pattern, .. } in every_pattern() {
            let coverage = pattern.coverage(&tile);
            let allowed = [Coverage::Partial, asked(&*pattern, &tile)];
            prop_assert!(allowed.contains(&coverage), "{}: {:?} on {:?}", name, coverage, tile);
        }
    }

    #[test]
    fn parts_share_no_pair_and_together_are_the_pattern(
        (batch, head) in (0..3usize, 0..3usize),
        (query, key) in (position(), position()),
    ) {
        for Case { name, pattern, .. } in every_pattern() {
            let parts = pattern.parts();
            for (query, key) in (query..query + 12).flat_map(|q| (key..key + 12).map(move |k| (q, k))) {
                let pair = Pair { batch, head, query, key };
                let showing = parts.iter().filter(|part| part.pattern.sees(pair)).count();
                let expected = if parts.is_empty() { 0 } else { usize::from(pattern.sees(pair)) };
                prop_assert_eq!(showing, expected, "{}: {:?}", name, pair);
            }
        }
    }

    #[test]
    fn shown_are_all_keys_that_are_seen_and_for_one_query_no_others(
        (batch, head) in (0..3usize, 0..3usize),
        (query, key) in (position(), position()),
        (queries, keys) in (1..30usize, 1..60usize),
    ) {
        let tile = Tile { batch, head, queries: query..query + queries, keys: key..key + keys };
        for Case { name, pattern, .. } in every_pattern() {
            let parts = pattern.parts();
            let all = parts.iter().map(|part| &*part.pattern).chain([&*pattern]);
            for pattern in all {
                let mut found = vec![Coverage::Empty; keys];
                pattern.shown(&tile, &mut |range, coverage| {
                    assert!(range.start >= key && range.end <= key + keys, "{name}: {range:?}");
                    for at in range {
                        let one = &mut found[at - key];
                        *one = if *one == Coverage::Full { Coverage::Full } else { coverage };
                    }
                });
                for (at, found) in (key..).zip(found) {
                    let column = Tile { keys: at..at + 1, ..tile.clone() };
                    let coverage = asked(pattern, &column);
                    let fits = match found {
                        Coverage::Partial => queries > 1,
                        exact => exact == coverage,
                    };
                    prop_assert!(fits, "{}: {:?}, found {:?}, is {:?}", name, column, found, coverage);
                }
            }
        }
    }

    #[test]
    fn parts_hide_and_cover_what_they_see(
        (batch, head) in (0..3usize, 0..3usize),
        (query, key) in (position(), position()),
        (queries, keys) in (1..20usize, 1..90usize),
    ) {
        let tile = Tile { batch, head, queries: query..query + queries, keys: key..key + keys };
        let first = Pair { batch, head, query, key };
        for Case { name, pattern, .. } in every_pattern() {
            for part in pattern.parts() {
                let coverage = part.pattern.coverage(&tile);
                let allowed = [Coverage::Partial, asked(&*part.pattern, &tile)];
                prop_assert!(allowed.contains(&coverage), "{}: {:?} on {:?}", name, coverage, tile);
                let mut scores = vec![0.0; keys];
                part.pattern.hide(first, &mut scores);
                for (key, score) in (key..).zip(scores) {
                    let seen = part.pattern.sees(Pair { key, ..first });
                    prop_assert_eq!(seen, score == 0.0, "{}: {:?} at {}", name, first, key);
                }
            }
        }
    }

    #[test]
    fn hide_hides_exactly_what_is_not_seen(
        (batch, head) in (0..3usize, 0..3usize),
        (query, key) in (position(), position()),
        mut scores in prop::collection::vec(any::<f32>(), 0..200),
    ) {
        // Visible scores stay as they are, whatever they are.
        scores.extend([f32::NAN, f32::NEG_INFINITY, f32::INFINITY]);
        let first = Pair { batch, head, query, key };
        for Case { name, pattern, .. } in every_pattern() {
            let expected = (key..).zip(&scores).map(|(key, &score)| {
                if pattern.sees(Pair { key, ..first }) { score } else { f32::NEG_INFINITY }
            });
            let mut hidden = scores.clone();
            pattern.hide(first, &mut hidden);
            let same = expected.map(f32::to_bits).eq(hidden.iter().map(|score| score.to_bits()));
            prop_assert!(same, "{}: {:?} with {} scores", name, first, scores.len());
        }
    }
}

#[test]
fn coverage_of_a_single_pattern_is_exact() {
    for Case { name, pattern, .. } in every_pattern().iter().filter(|case| case.exact) {
        for (batch, head) in [(0, 0), (1, 1), (2, 2)] {
            for (queries, keys) in [(1, 1), (12, 32), (7, 3), (3, 16)] {
                for (query, key) in (0..100 * 100).step_by(17).map(|i| (i / 100, i % 100)) {
                    let (queries, keys) = (query..query + queries, key..key + keys);
                    let tile = Tile { batch, head, queries, keys };
                    assert_eq!(pattern.coverage(&tile), asked(pattern, &tile), "{name}: {tile:?}");
                }
            }
        }
    }
}

#[test]
fn and_is_empty_where_either_is_and_full_where_both_are() {
    let (causal, window) = (Causal::upper_left(), Window { left: 50, right: 5 });
    let both: [&dyn Pattern; 2] = [&And(causal, window), &And(window, causal)];
    for pattern in both {
        let coverage = |queries, keys| pattern.coverage(&Tile { batch: 0, head: 0, queries, keys });
        assert_eq!(coverage(10..20, 20..30), Coverage::Empty); // causal empty, window partial
        assert_eq!(coverage(90..95, 20..40), Coverage::Empty); // causal full, window empty
        assert_eq!(coverage(40..50, 10..20), Coverage::Full);
        assert_eq!(coverage(10..20, 10..16), Coverage::Partial); // causal partial, window full
    }
}

#[test]
fn or_is_full_where_either_is_and_empty_where_both_are() {
    let (global, window) = (Global::first(10), Window { left: 20, right: 20 });
    let both: [&dyn Pattern; 2] = [&Or(global.clone(), window), &Or(window, global)];
    for pattern in both {
        let coverage = |queries, keys| pattern.coverage(&Tile { batch: 0, head: 0, queries, keys });
        assert_eq!(coverage(25..35, 0..10), Coverage::Full); // global full, window partial
        assert_eq!(coverage(80..90, 75..85), Coverage::Full); // global empty, window full
        assert_eq!(coverage(80..90, 20..60), Coverage::Empty);
        assert_eq!(coverage(80..90, 5..60), Coverage::Partial); // global partial, window empty
    }
}
