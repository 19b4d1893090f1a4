//! Scores as content + position + interaction: of a query's row, and of every head.

use serde_json::json;

use super::{Answer, Packed, Parameters, View};
use crate::{
    Error,
    show::{Kind, LONGEST_SPLIT, Terms, terms_of},
};

/// Queries of a long text whose scores are split to say how much each kind of term matters.
const SAMPLED: usize = 16;

/// The terms of one query's scores with every key, and the score; not a number where a key is hidden.
pub(super) fn split(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["site", "layer", "head", "at"])?;
    let seen = view.seen(parameters)?;
    let (look, sums) = view.look(seen)?;
    let (call, inputs) = (look.call(), look.inputs());
    let shape = call.shape;
    let head = parameters.index("head", 0..shape.heads)?;
    let at = parameters.index("at", 0..shape.queries)?;
    let (terms, note) = terms_of(view.reading(), seen, &look, at..at + 1)?;
    let of_head = |values: &[f64]| {
        let row = &values[head * shape.keys..(head + 1) * shape.keys];
        row.iter().map(|v| if v.is_finite() { *v as f32 } else { f32::NAN }).collect::<Vec<f32>>()
    };
    let about: Vec<_> = terms
        .terms
        .iter()
        .map(|term| json!({ "name": term.name, "kind": term.kind.name(), "meaning": term.meaning }))
        .collect();
    let mut packed =
        Packed::default().with("terms", about).with("note", note).with("first", call.first_key);
    for term in &terms.terms {
        packed.add_f32(term.name, of_head(&term.values));
    }
    packed.add_f32("score", of_head(&terms.scores));
    let weights = call.inspect(&inputs, &sums).and_then(|found| found.rows(0, head, &[at]));
    packed.add_f32("weight", weights.map_err(super::opened::kernels)?);
    Ok(packed.answer())
}

/// How much each kind of term tells the keys of a query apart, for every head of a layer: the standard deviation over the
/// visible keys, which is what the softmax sees, as the root of the mean square over the queries.
pub(super) fn heads(view: &View, parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["site", "layer"])?;
    let seen = view.seen(parameters)?;
    let (look, _) = view.look(seen)?;
    let shape = look.call().shape;
    let samples: Vec<_> = match shape.queries.max(shape.keys) <= LONGEST_SPLIT {
        true => std::iter::once(0..shape.queries).collect(),
        false => {
            let count = SAMPLED.min(shape.queries);
            // From the middle of each part, so that the first queries, which see little, are not over-counted.
            let at = |i: usize| (2 * i + 1) * shape.queries / (2 * count);
            (0..count).map(|i| at(i)..at(i) + 1).collect()
        }
    };
    let mut spreads = vec![Spread::default(); shape.heads];
    let (mut queries, mut last) = (0, None);
    for sample in samples {
        queries += sample.len();
        let (terms, note) = terms_of(view.reading(), seen, &look, sample.clone())?;
        for (head, spread) in spreads.iter_mut().enumerate() {
            spread.add(&terms, head, shape.keys, sample.len());
        }
        last = note;
    }
    let heads: Vec<_> = spreads.into_iter().map(Spread::figures).collect();
    Ok(Answer::json(&json!({ "heads": heads, "queries": queries, "note": last })))
}

/// Mean squares of what each kind adds to the scores, around its mean for each query.
#[derive(Clone, Default)]
struct Spread {
    squares: [f64; 4],
    count: usize,
}

impl Spread {
    fn add(&mut self, terms: &Terms, head: usize, keys: usize, queries: usize) {
        for query in 0..queries {
            let row = (head * queries + query) * keys..(head * queries + query + 1) * keys;
            let scores = &terms.scores[row.clone()];
            let mut sums = vec![[0.0; 4]; keys];
            for (sum, score) in sums.iter_mut().zip(scores) {
                sum[3] = *score;
            }
            for term in &terms.terms {
                let kind = Kind::ALL.iter().position(|kind| *kind == term.kind).unwrap_or(0);
                for (sum, value) in sums.iter_mut().zip(&term.values[row.clone()]) {
                    sum[kind] += value;
                }
            }
            let seen: Vec<[f64; 4]> = sums.into_iter().filter(|sum| sum[3].is_finite()).collect();
            for kind in 0..4 {
                let mean = seen.iter().map(|sum| sum[kind]).sum::<f64>() / seen.len().max(1) as f64;
                self.squares[kind] += seen.iter().map(|s| (s[kind] - mean).powi(2)).sum::<f64>();
            }
            self.count += seen.len();
        }
    }

    fn figures(self) -> serde_json::Value {
        let root = self.squares.map(|square| (square / self.count.max(1) as f64).sqrt());
        let [content, position, interaction, score] = root;
        json!({ "content": content, "position": position, "interaction": interaction, "score": score })
    }
}
