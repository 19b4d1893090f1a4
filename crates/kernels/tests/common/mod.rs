//! What the tests of the fast path share: every choice of a call by name, data for it, and comparisons.
//! A new score, pattern or position joins all of them by one line in its table here.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the tables")]

mod patterns;
mod positions;

use whatwhere_kernels::attention::{
    Attention, Dropout, Focus, Gradients, Inputs, Output, Score, Shape,
    pattern::Pair,
    reference::{self, Values},
};

pub(crate) use patterns::{PatternChoice, every_pattern};
pub(crate) use positions::{Position, Supply, every_position};

/// Rounding of f32 (6e-8) in sums of up to a few hundred terms near 1, and the 3e-7 of the vector functions, relative
/// to the largest number of a slice or to 1: some gradients are small differences of such sums. The largest error
/// of `combinations.rs` is 5e-6 where a cosine divides by a short vector, and 2e-6 elsewhere.
pub(crate) const ROUNDING: f64 = 1e-5;

/// The sizes of a call and the positions of its first query and key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) shape: Shape,
    pub(crate) first_query: usize,
    pub(crate) first_key: usize,
}

impl Sizes {
    /// Two sequences of two heads, lengths that are no multiple of anything, and values narrower than keys.
    pub(crate) fn small() -> Self {
        Self::of(13, 37).at(20, 3)
    }

    /// Some queries and keys from position 0 on.
    pub(crate) fn of(queries: usize, keys: usize) -> Self {
        let shape =
            Shape { batch: 2, heads: 2, kv_heads: 2, queries, keys, head_dim: 6, value_dim: 5 };
        Self { shape, first_query: 0, first_key: 0 }
    }

    pub(crate) fn at(self, first_query: usize, first_key: usize) -> Self {
        Self { first_query, first_key, ..self }
    }

    pub(crate) fn heads(self, heads: usize, kv_heads: usize) -> Self {
        Self { shape: Shape { heads, kv_heads, ..self.shape }, ..self }
    }

    pub(crate) fn dims(self, head_dim: usize, value_dim: usize) -> Self {
        Self { shape: Shape { head_dim, value_dim, ..self.shape }, ..self }
    }

    pub(crate) fn batch(self, batch: usize) -> Self {
        Self { shape: Shape { batch, ..self.shape }, ..self }
    }

    /// One more than the last position of a query or key.
    pub(crate) fn end(&self) -> usize {
        (self.first_query + self.shape.queries).max(self.first_key + self.shape.keys)
    }

    /// More than the largest distance between a query and a key.
    pub(crate) fn reach(&self) -> usize {
        self.end() - self.first_query.min(self.first_key)
    }
}

/// A score with or without a soft cap.
#[derive(Clone, Copy)]
pub(crate) struct ScoreChoice {
    pub(crate) name: &'static str,
    kind: ScoreKind,
    soft_cap: Option<f32>,
}

#[derive(Clone, Copy, PartialEq)]
enum ScoreKind {
    ScaledDot,
    Dot,
    Cosine,
    Additive,
}

impl ScoreChoice {
    pub(crate) const SCALED_DOT: Self =
        Self { name: "scaled dot", kind: ScoreKind::ScaledDot, soft_cap: None };

    pub(crate) fn is_additive(&self) -> bool {
        self.kind == ScoreKind::Additive
    }
}

pub(crate) fn every_score() -> Vec<ScoreChoice> {
    let score = |name, kind, soft_cap| ScoreChoice { name, kind, soft_cap };
    // Below the largest scores, so that the cap bends them.
    let cap = Some(0.8);
    vec![
        ScoreChoice::SCALED_DOT,
        score("scaled dot, capped", ScoreKind::ScaledDot, cap),
        score("dot", ScoreKind::Dot, None),
        score("dot, capped", ScoreKind::Dot, cap),
        score("cosine", ScoreKind::Cosine, None),
        score("cosine, capped", ScoreKind::Cosine, cap),
        score("additive", ScoreKind::Additive, None),
        score("additive, capped", ScoreKind::Additive, cap),
    ]
}

/// What acts on the weights.
#[derive(Clone, Copy)]
pub(crate) struct Extra {
    pub(crate) name: &'static str,
    dropout: bool,
    focus: bool,
}

impl Extra {
    pub(crate) const NOTHING: Self = Self { name: "no extra", dropout: false, focus: false };
}

pub(crate) fn every_extra() -> [Extra; 4] {
    [
        Extra::NOTHING,
        Extra { name: "dropout", dropout: true, focus: false },
        Extra { name: "focus", dropout: false, focus: true },
        Extra { name: "dropout and focus", dropout: true, focus: true },
    ]
}

/// One call, by the names of its choices.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) sizes: Sizes,
    pub(crate) score: ScoreChoice,
    pub(crate) pattern: PatternChoice,
    pub(crate) position: Position,
    pub(crate) extra: Extra,
}

impl Case {
    /// Scaled dot attention under the full pattern, without positions.
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            score: ScoreChoice::SCALED_DOT,
            pattern: PatternChoice::FULL,
            position: Position::NOTHING,
            extra: Extra::NOTHING,
        }
    }

    pub(crate) fn name(&self) -> String {
        let Self { sizes, score, pattern, position, extra } = self;
        let Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim } = sizes.shape;
        format!(
            "{} | {} | {} | {} | batch {batch}, heads {heads}/{kv_heads}, {queries}×{keys} at \
             {}/{}, dims {head_dim}/{value_dim}",
            score.name, pattern.name, position.name, extra.name, sizes.first_query, sizes.first_key
        )
    }

    /// Whether the kernels refuse the combination.
    pub(crate) fn is_refused(&self) -> bool {
        self.score.is_additive() && self.position.has_features
    }

    /// Builds the call and its data, the same every time, and hands them to `work`.
    pub(crate) fn run<R>(&self, work: impl FnOnce(&Attention, &Inputs, &[f32]) -> R) -> R {
        let Sizes { shape, first_query, first_key } = self.sizes;
        let supply = Supply::new(self.sizes);
        let pattern = self.pattern.make(&self.sizes);
        let mut attention =
            Attention { first_query, first_key, ..Attention::new(shape, &*pattern) };
        self.score.set(&mut attention, &supply);
        self.position.set(&mut attention, &supply);
        self.extra.set(&mut attention, &supply);
        let (q, k, v) =
            (numbers(1, shape.q_len()), numbers(2, shape.k_len()), numbers(3, shape.v_len()));
        let d_out = numbers(4, shape.out_len());
        work(&attention, &Inputs { q: &q, k: &k, v: &v }, &d_out)
    }
}

impl ScoreChoice {
    pub(crate) fn set<'a>(&self, attention: &mut Attention<'a>, supply: &'a Supply) {
        let Shape { heads, head_dim, .. } = attention.shape;
        attention.soft_cap = self.soft_cap;
        attention.score = match self.kind {
            ScoreKind::ScaledDot => Score::scaled_dot(head_dim),
            ScoreKind::Dot => Score::Dot { scale: 1.0 },
            ScoreKind::Cosine => Score::Cosine { scale: 3.0 },
            ScoreKind::Additive => Score::Additive { weight: supply.take(heads * head_dim) },
        };
    }
}

impl Extra {
    fn set<'a>(&self, attention: &mut Attention<'a>, supply: &'a Supply) {
        if self.dropout {
            attention.dropout = Some(Dropout { rate: 0.4, seed: 5 });
        }
        if self.focus {
            attention.focus = Some(Focus { centers: supply.centers(), deviation: 4.0 });
        }
    }
}

/// Numbers in (−1, 1), the same for the same seed.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f32> {
    // None of these lies where rounding decides on which side of ReLU's corner it falls.
    const KEY: u64 = 1;
    whatwhere_random::Random::new(&[KEY, seed]).signed(len)
}

pub(crate) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Both passes of the fast path, for a call that is allowed.
pub(crate) fn passes(attention: &Attention, inputs: &Inputs, d_out: &[f32]) -> (Output, Gradients) {
    let made = attention.forward(inputs).expect("the case is allowed");
    let gradients = attention.backward(inputs, &made, d_out).expect("the case is allowed");
    (made, gradients)
}

/// One thing that passes make, in f64.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// Everything the fast path's passes made.
pub(crate) fn found_slices(made: &Output, gradients: &Gradients) -> Vec<Slice> {
    let outputs = [("out", widen(&made.out)), ("lse", widen(&made.lse))];
    slices(outputs, &Values::from(gradients))
}

/// Everything the reference makes.
pub(crate) fn reference_slices(
    attention: &Attention,
    inputs: &Inputs,
    d_out: &[f32],
) -> Vec<Slice> {
    let made = reference::forward(attention, inputs).expect("the case is allowed");
    let gradients = reference::backward(attention, inputs, d_out).expect("the case is allowed");
    slices([("out", made.out), ("lse", made.lse)], &gradients)
}

fn slices(outputs: [(&str, Vec<f64>); 2], gradients: &Values) -> Vec<Slice> {
    let outputs = outputs.map(|(name, values)| Slice { name: name.to_owned(), values });
    let gradients = gradients
        .slices()
        .into_iter()
        .map(|(name, values)| Slice { name: format!("d_{name}"), values: values.to_vec() });
    outputs.into_iter().chain(gradients).collect()
}

/// What is wrong with the slices found, each complaint with the slice's name.
pub(crate) fn differences(found: &[Slice], expected: &[Slice], tolerance: f64) -> Vec<String> {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let different = pairs.filter_map(|(found, expected)| {
        let difference = difference(&found.values, &expected.values, tolerance)?;
        Some(format!("{}: {difference}", found.name))
    });
    different.collect()
}

/// What is wrong with `found`, if anything: numbers that differ by more than `tolerance` times the largest
/// expected one (or 1), infinities that are not met, and zeros throughout where some number was expected.
pub(crate) fn difference(found: &[f64], expected: &[f64], tolerance: f64) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("{} values, expected {}", found.len(), expected.len()));
    }
    let finite = |x: &&f64| x.is_finite();
    let largest = expected.iter().filter(finite).fold(0f64, |max, x| max.max(x.abs()));
    if tolerance < largest && found.iter().all(|&x| x == 0.0) {
        return Some(format!("all 0, expected up to {largest}"));
    }
    let bound = tolerance * largest.max(1.0);
    let differ = |(f, e): (&f64, &f64)| !(f == e || (f - e).abs() <= bound);
    let first = found.iter().zip(expected).position(differ)?;
    let count = found.iter().zip(expected).filter(|&pair| differ(pair)).count();
    let off = found.iter().zip(expected).map(|(f, e)| (f - e).abs()).fold(0f64, f64::max);
    Some(format!(
        "{count} of {} differ by up to {off:e}; number {first} is {}, expected {}; the largest is {largest}",
        found.len(),
        found[first],
        expected[first]
    ))
}

#[track_caller]
pub(crate) fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, name: &str) {
    if let Some(difference) = difference(found, expected, tolerance) {
        panic!("{name}: {difference}");
    }
}

/// Fails with every complaint, or the first few of many.
#[track_caller]
pub(crate) fn assert_none(complaints: &[String], checked: usize) {
    const SHOWN: usize = 40;
    let shown = complaints.iter().take(SHOWN).map(|c| format!("\n  {c}")).collect::<String>();
    assert!(complaints.is_empty(), "{} complaints in {checked} cases:{shown}", complaints.len());
}

pub(crate) fn rows(shape: &Shape) -> impl Iterator<Item = Pair> + use<> {
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
pub(crate) fn sees(attention: &Attention, at: Pair, key: usize) -> bool {
    let (query, key) = (attention.first_query + at.query, attention.first_key + key);
    attention.pattern.sees(Pair { query, key, ..at })
}
