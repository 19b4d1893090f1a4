//! A score taken apart: what (content), where (position), and what only the two together say (interaction).
//!
//! With `S(…)` the score by the reference, in the order of the formula; hidden pairs have no terms.
//!
//! [`TERMS`] says what each term is. Those of positions added to embeddings come from `q = q_c + q_p` and `k = k_c + k_p`, which
//! holds in the first layer only: the norm before it is linear once its statistics are those of the sum.
//!
//! PoPE's own words are magnitudes (what) and phases (where), whose product is the score: no sum of the two is. So polar,
//! as rotary, has a term for each alone and one for both.

use std::{ops::Range, sync::Arc};

use whatwhere_attention::{CallView, Position};
use whatwhere_kernels::{
    Error,
    attention::{Angles, Attention, Bias, Feature, FeatureKind, Inputs, Score, Shape, reference},
};

/// What a term speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the tokens are.
    Content,
    /// Where they stand.
    Position,
    /// Both together.
    Interaction,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Content, Self::Position, Self::Interaction];

    /// The kind in a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Position => "position",
            Self::Interaction => "interaction",
        }
    }
}

/// Every term but those of biases, which their encodings name: its name, what it speaks of, and what it is.
pub const TERMS: [(&str, Kind, &str); 12] = [
    ("content", Kind::Content, "query and key compared as if both stood at the same position"),
    ("content · content", Kind::Content, "the query's content compared with the key's"),
    (
        "content · position",
        Kind::Interaction,
        "the query's content compared with the key's position",
    ),
    (
        "position · content",
        Kind::Interaction,
        "the query's position compared with the key's content",
    ),
    ("position · position", Kind::Position, "the query's position compared with the key's"),
    ("u·k", Kind::Content, "what every query asks of a key's content: Transformer-XL's (c)"),
    ("distance", Kind::Position, "what the angles do to the text's mean query and mean key"),
    (
        "content × distance",
        Kind::Interaction,
        "what the angles do to this query and key beyond what they do to the mean ones",
    ),
    ("soft cap", Kind::Interaction, "what the cap takes away"),
    (
        "q·a",
        Kind::Interaction,
        "what this query asks of the distance: Shaw's, Transformer-XL's (b)",
    ),
    (
        "a·k",
        Kind::Interaction,
        "what the distance asks of this key: Shaw's with vectors on queries, DeBERTa's position to content",
    ),
    ("v·a", Kind::Position, "what every query asks of the distance: Transformer-XL's (d)"),
];

/// One summand of the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What it is called.
    pub name: &'static str,
    /// What it speaks of.
    pub kind: Kind,
    /// What it is.
    pub meaning: &'static str,
    /// `[heads, queries, keys]`, not a number where a pair is hidden.
    pub values: Vec<f64>,
}

impl Term {
    fn new(name: &str, values: Vec<f64>) -> Self {
        let found = TERMS.iter().find(|term| term.0 == name);
        let &(name, kind, meaning) = found.expect("every term is in the list");
        Self { name, kind, meaning, values }
    }

    fn bias((name, meaning): (&'static str, &'static str), values: Vec<f64>) -> Self {
        Self { name, kind: Kind::Position, meaning, values }
    }
}

/// Scores and what they are the sum of.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// `[heads, queries, keys]`, −∞ where a pair is hidden.
    pub scores: Vec<f64>,
    /// In the order of the formula.
    pub terms: Vec<Term>,
}

/// What positions that were added to embeddings contribute to q and k, laid out as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys.
    pub k: Vec<f32>,
}

impl Terms {
    /// Takes the scores of a call with one sequence and these encodings apart; `parts` splits content further where a
    /// position was added to it.
    pub fn of(
        look: &CallView,
        positions: &[Position],
        parts: Option<&Parts>,
    ) -> Result<Self, Error> {
        Self::of_queries(look, positions, parts, 0..look.call().shape.queries)
    }

    /// [`Self::of`] for some of the queries; what is said of the text's mean query and key is still said of the whole text.
    ///
    /// # Panics
    /// If the call has fewer queries.
    pub fn of_queries(
        look: &CallView,
        positions: &[Position],
        parts: Option<&Parts>,
        queries: Range<usize>,
    ) -> Result<Self, Error> {
        let all = Attention { dropout: None, focus: None, ..look.call() };
        let rows = Rows::new(&all, look.inputs(), queries);
        let (whole, inputs) = (rows.call(&all), rows.inputs(look.inputs()));
        let parts =
            parts.map(|parts| Parts { q: rows.of(&all.shape, &parts.q), k: parts.k.clone() });
        let scores = reference::scores(&whole, &inputs)?;
        let means = means(&all, look.inputs(), whole.shape.queries);
        let mut terms = Compared::new(&whole, inputs, means).terms(parts.as_ref())?;
        let mut names = positions.iter().filter_map(Position::bias_term);
        for bias in &whole.biases {
            terms.extend(bias_terms(&whole, inputs, *bias, &mut names)?);
        }
        for value in terms.iter_mut().flat_map(|term| &mut term.values) {
            if value.is_infinite() {
                *value = f64::NAN;
            }
        }
        Ok(Self { scores, terms })
    }
}

/// Some of the queries of a call, and what of it has a value for each query.
struct Rows {
    queries: Range<usize>,
    q: Vec<f32>,
    /// Of each bias, if it is dense and differs by query.
    dense: Vec<Option<Vec<f32>>>,
}

impl Rows {
    fn new(all: &Attention, inputs: Inputs, queries: Range<usize>) -> Self {
        let dense = all.biases.iter().map(|bias| match bias {
            Bias::Dense { values, shape: [_, _, rows, keys], .. } if *rows > 1 => {
                let maps = values.chunks_exact(rows * keys);
                let chosen = queries.start * keys..queries.end * keys;
                Some(maps.flat_map(|map| &map[chosen.clone()]).copied().collect())
            }
            _ => None,
        });
        let dense = dense.collect();
        let mut rows = Self { queries, q: Vec::new(), dense };
        rows.q = rows.of(&all.shape, inputs.q);
        rows
    }

    /// Of a value for each query, `[heads, queries, head_dim]`, those of the chosen queries.
    fn of(&self, shape: &Shape, values: &[f32]) -> Vec<f32> {
        let dim = shape.head_dim;
        let heads = values.chunks_exact(shape.queries * dim);
        let chosen = self.queries.start * dim..self.queries.end * dim;
        heads.flat_map(|head| &head[chosen.clone()]).copied().collect()
    }

    fn inputs<'a>(&'a self, inputs: Inputs<'a>) -> Inputs<'a> {
        Inputs { q: &self.q, ..inputs }
    }

    fn call<'a>(&'a self, all: &Attention<'a>) -> Attention<'a> {
        let mut call = all.clone();
        call.shape.queries = self.queries.len();
        call.first_query += self.queries.start;
        for (bias, chosen) in call.biases.iter_mut().zip(&self.dense) {
            if let (Bias::Dense { values, shape, .. }, Some(chosen)) = (bias, chosen) {
                *values = chosen;
                shape[2] = self.queries.len();
            }
        }
        call
    }
}

/// The mean query and the mean key of each head of a text, the query so many times.
fn means(all: &Attention, inputs: Inputs, queries: usize) -> (Vec<f32>, Vec<f32>) {
    let shape = all.shape;
    let mean = |values: &[f32], length: usize, times: usize| {
        let mut out = Vec::with_capacity(values.len() / length.max(1) * times);
        for head in values.chunks_exact(length * shape.head_dim) {
            let mut mean = vec![0.0; shape.head_dim];
            for row in head.chunks_exact(shape.head_dim) {
                mean.iter_mut().zip(row).for_each(|(mean, v)| *mean += v / length as f32);
            }
            out.extend(mean.iter().cycle().take(times * shape.head_dim));
        }
        out
    };
    (mean(inputs.q, shape.queries, queries), mean(inputs.k, shape.keys, shape.keys))
}

/// The part of a score that comes from comparing query and key.
struct Compared<'a> {
    /// Without biases and cap.
    call: Attention<'a>,
    cap: Option<f32>,
    inputs: Inputs<'a>,
    /// Angles of 0 for every feature.
    zero: Vec<Arc<Angles>>,
    /// The mean query and the mean key of each head, at every position.
    means: (Vec<f32>, Vec<f32>),
}

impl<'a> Compared<'a> {
    fn new(whole: &Attention<'a>, inputs: Inputs<'a>, means: (Vec<f32>, Vec<f32>)) -> Self {
        let call = Attention { biases: Vec::new(), soft_cap: None, ..whole.clone() };
        let positions = call.positions();
        let zero = call.features.iter().map(|feature| {
            let count = match feature.kind {
                FeatureKind::Rotary { .. } => feature.channels.len() / 2,
                FeatureKind::Polar { .. } => feature.channels.len(),
            };
            // The amplitude is a factor on scores, not a matter of position.
            Arc::new(Angles::new(&vec![0.0; count], positions.clone(), feature.angles.amplitude()))
        });
        Self { zero: zero.collect(), cap: whole.soft_cap, call, inputs, means }
    }

    /// The same call with all angles 0.
    fn still(&self) -> Attention<'_> {
        let features = self.call.features.iter().zip(&self.zero).map(|(feature, angles)| {
            let kind = match feature.kind {
                FeatureKind::Polar { magnitude, .. } => {
                    FeatureKind::Polar { magnitude, delta: None }
                }
                rotary => rotary,
            };
            Feature { kind, angles: angles.clone(), ..feature.clone() }
        });
        Attention { features: features.collect(), ..self.call.clone() }
    }

    fn terms(&self, parts: Option<&Parts>) -> Result<Vec<Term>, Error> {
        let still = self.still();
        let bare = Attention { query_bias: None, ..still.clone() };
        let content = reference::scores(&bare, &self.inputs)?;
        let mut terms = match parts {
            Some(parts) => self.four(&bare, parts)?,
            None => vec![Term::new("content", content.clone())],
        };
        let mut last = content;
        if still.query_bias.is_some() {
            let biased = reference::scores(&still, &self.inputs)?;
            let values = minus(&biased, &last);
            terms.push(Term::new("u·k", values));
            last = biased;
        }
        if !self.call.features.is_empty() {
            let moved = reference::scores(&self.call, &self.inputs)?;
            let (q, k) = &self.means;
            let mean = Inputs { q, k, ..self.inputs };
            let position =
                minus(&reference::scores(&self.call, &mean)?, &reference::scores(&still, &mean)?);
            let values = minus(&minus(&moved, &last), &position);
            terms.push(Term::new("distance", position));
            terms.push(Term::new("content × distance", values));
            last = moved;
        }
        if self.cap.is_some() {
            let capped = Attention { soft_cap: self.cap, ..self.call.clone() };
            let values = minus(&reference::scores(&capped, &self.inputs)?, &last);
            terms.push(Term::new("soft cap", values));
        }
        Ok(terms)
    }

    /// Content and position that were added to each other before the projections.
    fn four(&self, bare: &Attention, parts: &Parts) -> Result<Vec<Term>, Error> {
        let (mut call, mut inverse) = (bare.clone(), (Vec::new(), Vec::new()));
        if let Score::Cosine { scale } = call.score {
            // Lengths are those of the whole; turning by 0 does not change them.
            call.score = Score::Dot { scale };
            call.features.clear();
            inverse = (self.inverse_lengths(self.inputs.q), self.inverse_lengths(self.inputs.k));
        }
        let dim = self.call.shape.head_dim;
        let scaled = |values: Vec<f32>, inverse: &[f32]| match inverse {
            [] => values,
            inverse => values.iter().enumerate().map(|(i, v)| v * inverse[i / dim]).collect(),
        };
        let rest =
            |whole: &[f32], part: &[f32]| whole.iter().zip(part).map(|(w, p)| w - p).collect();
        let q = [
            scaled(rest(self.inputs.q, &parts.q), &inverse.0),
            scaled(parts.q.clone(), &inverse.0),
        ];
        let k = [
            scaled(rest(self.inputs.k, &parts.k), &inverse.1),
            scaled(parts.k.clone(), &inverse.1),
        ];
        let named = [
            ("content · content", 0, 0),
            ("content · position", 0, 1),
            ("position · content", 1, 0),
            ("position · position", 1, 1),
        ];
        let terms = named.map(|(name, query, key)| {
            let inputs = Inputs { q: &q[query], k: &k[key], ..self.inputs };
            Ok(Term::new(name, reference::scores(&call, &inputs)?))
        });
        terms.into_iter().collect()
    }

    fn inverse_lengths(&self, vectors: &[f32]) -> Vec<f32> {
        let rows = vectors.chunks_exact(self.call.shape.head_dim);
        rows.map(|row| {
            let length = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            if length > 0.0 { length.recip() } else { 0.0 }
        })
        .collect()
    }
}

/// The terms of a bias; `names` has those of biases that do not ask the query, in their order.
fn bias_terms(
    whole: &Attention,
    inputs: Inputs,
    bias: Bias<&[f32]>,
    names: &mut dyn Iterator<Item = (&'static str, &'static str)>,
) -> Result<Vec<Term>, Error> {
    let alone = |bias: Bias<&[f32]>, q: &[f32]| {
        let call = Attention {
            query_bias: None,
            features: Vec::new(),
            score: Score::Dot { scale: 0.0 },
            soft_cap: None,
            biases: vec![bias],
            ..whole.clone()
        };
        reference::scores(&call, &Inputs { q, ..inputs })
    };
    // Of what encodings add, only what asks keys is as large as the scores.
    if let Bias::Dense { .. } = bias {
        return Ok(vec![Term::new("a·k", alone(bias, inputs.q)?)]);
    }
    let Bias::Relative { vectors, query_bias, scale } = bias else {
        let name = names.next().unwrap_or(("bias", "what is added to the score"));
        return Ok(vec![Term::bias(name, alone(bias, inputs.q)?)]);
    };
    let asked = alone(Bias::Relative { vectors, query_bias: None, scale }, inputs.q)?;
    let mut terms = vec![Term::new("q·a", asked)];
    if query_bias.is_some() {
        let values = alone(bias, &vec![0.0; inputs.q.len()])?;
        terms.push(Term::new("v·a", values));
    }
    Ok(terms)
}

/// Differences; hidden pairs, −∞ in both, become not a number.
fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
