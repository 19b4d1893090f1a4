//! The reference: attention by its definition, in f64, with every score stored.
//!
//! ```text
//! score  = cap(compare(features(q + query_bias), features(k))) + Σ biases, or −∞ where the pattern hides
//! weight = softmax over keys of score, or 0 in a row that sees nothing
//! out    = Σ_key weight · dropout · focus · (v + relative_values[distance])
//! ```
//!
//! Every fast path is tested against this module, so it shares only the description of a call with them:
//! nothing is tiled, fused or stored in fewer bits, and every sum is written as the formula has it.
//! Memory grows with `queries · keys`. Read [`forward`] first, then `backward.rs` in the same order reversed.

mod backward;
mod bias;
mod feature;
mod layout;
mod score;
mod values;

pub use values::Values;

use crate::{
    Error,
    attention::{Attention, Inputs, pattern::Pair, reference::feature::Side},
    error::expect_len,
};

/// What the forward pass makes, in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// `[batch, heads, queries, value_dim]`.
    pub out: Vec<f64>,
    /// Natural logarithm of each row's sum of `exp(score)`, `[batch, heads, queries]`; −∞ where a row sees nothing.
    pub lse: Vec<f64>,
}

/// The scores after biases, −∞ where hidden, `[batch, heads, queries, keys]`.
///
/// # Errors
/// When a choice or a length of the call is wrong.
pub fn scores(attention: &Attention, inputs: &Inputs) -> Result<Vec<f64>, Error> {
    Ok(Reference::new(attention, inputs)?.scores())
}

/// The weights after the softmax, before dropout and focus, `[batch, heads, queries, keys]`.
///
/// # Errors
/// When a choice or a length of the call is wrong.
pub fn weights(attention: &Attention, inputs: &Inputs) -> Result<Vec<f64>, Error> {
    Ok(Reference::new(attention, inputs)?.weights().0)
}

/// The output and the rows' log-sums.
///
/// # Errors
/// When a choice or a length of the call is wrong.
pub fn forward(attention: &Attention, inputs: &Inputs) -> Result<Forward, Error> {
    Ok(Reference::new(attention, inputs)?.forward())
}

/// The gradient of `Σ d_out · out` for everything that can learn; empty where a call has no such thing.
///
/// # Errors
/// When a choice or a length of the call is wrong.
pub fn backward(attention: &Attention, inputs: &Inputs, d_out: &[f32]) -> Result<Values, Error> {
    let call = Reference::new(attention, inputs)?;
    expect_len("d_out", d_out.len(), attention.shape.out_len())?;
    Ok(call.backward(&values::widen(d_out)))
}

/// A call whose learnable values are f64, so that a test can nudge one by less than f32 can tell.
struct Reference<'c, 'a> {
    attention: &'c Attention<'a>,
    values: Values,
}

/// One query of one head of one sequence, by index.
#[derive(Clone, Copy)]
struct Row {
    batch: usize,
    head: usize,
    query: usize,
}

/// The queries and keys of one head after their features, one vector each.
struct Formed {
    queries: Vec<Vec<f64>>,
    keys: Vec<Vec<f64>>,
}

impl<'c, 'a> Reference<'c, 'a> {
    fn new(attention: &'c Attention<'a>, inputs: &Inputs) -> Result<Self, Error> {
        attention.check_inputs(inputs)?;
        Ok(Self { attention, values: Values::new(attention, inputs) })
    }

    fn forward(&self) -> Forward {
        let (weights, lse) = self.weights();
        let mut out = vec![0.0; self.attention.shape.out_len()];
        for row in self.rows() {
            let row_out = &mut out[self.out_range(row)];
            for (key, weight) in weights[self.row_range(row)].iter().enumerate() {
                let kept = weight * self.weight_factor(row, key);
                for (o, value) in row_out.iter_mut().zip(self.value(row, key)) {
                    *o += kept * value;
                }
            }
        }
        Forward { out, lse }
    }

    /// The weights and the rows' log-sums.
    fn weights(&self) -> (Vec<f64>, Vec<f64>) {
        let mut weights = self.scores();
        let lse =
            self.rows().map(|row| softmax(&mut weights[self.row_range(row)])).collect::<Vec<_>>();
        (weights, lse)
    }

    fn scores(&self) -> Vec<f64> {
        let mut scores = Vec::new();
        for (batch, head) in self.heads() {
            let formed = self.form_head(batch, head);
            for (query, q) in formed.queries.iter().enumerate() {
                let row = Row { batch, head, query };
                scores.extend(formed.keys.iter().enumerate().map(|(key, k)| {
                    let visible = self.attention.pattern.sees(self.pair(row, key));
                    if visible { self.score(row, key, q, k) } else { f64::NEG_INFINITY }
                }));
            }
        }
        scores
    }

    /// The score of a visible pair, from its formed query and key.
    fn score(&self, row: Row, key: usize, q: &[f64], k: &[f64]) -> f64 {
        let compared = self.compare(row.head, q, k);
        let capped = match self.attention.soft_cap.map(f64::from) {
            Some(cap) => cap * (compared / cap).tanh(),
            None => compared,
        };
        let biases = self.values.learned.biases.iter();
        biases.fold(capped, |score, bias| score + self.bias(bias, row, key))
    }

    /// Features of every query, with the query bias, and of every key, as `head` sees it.
    fn form_head(&self, batch: usize, head: usize) -> Formed {
        let shape = &self.attention.shape;
        let queries = (0..shape.queries).map(|query| {
            let position = self.attention.first_query + query;
            self.form(head, Side::Query, position, &self.biased_query(Row { batch, head, query }))
        });
        let keys = (0..shape.keys).map(|key| {
            let k = &self.values.k[self.k_range(batch, head, key)];
            self.form(head, Side::Key, self.attention.first_key + key, k)
        });
        Formed { queries: queries.collect(), keys: keys.collect() }
    }

    fn biased_query(&self, row: Row) -> Vec<f64> {
        self.query_with(row, self.values.learned.query_bias.as_deref())
    }

    /// A query plus its head's part of a bias, `[heads, head_dim]`.
    fn query_with(&self, row: Row, bias: Option<&[f64]>) -> Vec<f64> {
        let q = &self.values.q[self.q_range(row)];
        match bias {
            Some(bias) => {
                let bias = &bias[self.head_range(row.head)];
                q.iter().zip(bias).map(|(q, u)| q + u).collect()
            }
            None => q.to_vec(),
        }
    }

    /// The value a weight mixes: `v`, and the relative value of the distance.
    fn value(&self, row: Row, key: usize) -> Vec<f64> {
        let v = &self.values.v[self.v_range(row, key)];
        match &self.values.learned.relative_values {
            Some(vectors) => {
                let vector = self.vector_range(vectors, row, key, v.len());
                v.iter().zip(&vectors.table[vector]).map(|(v, r)| v + r).collect()
            }
            None => v.to_vec(),
        }
    }

    /// What dropout and focus multiply a weight by.
    fn weight_factor(&self, row: Row, key: usize) -> f64 {
        let Pair { batch, head, query, key: position } = self.pair(row, key);
        let dropout = self.attention.dropout.map_or(1.0, |dropout| {
            f64::from(dropout.row(batch, head, query).factor(position as u32))
        });
        let focus = self.values.learned.focus.as_ref().map_or(1.0, |focus| {
            let off = position as f64 - focus.centers[self.row_index(row)];
            (-off * off / (2.0 * f64::from(focus.deviation).powi(2))).exp()
        });
        dropout * focus
    }
}

/// Turns a row of scores into weights and returns the log of its sum.
fn softmax(row: &mut [f64]) -> f64 {
    if row.iter().all(|&score| score == f64::NEG_INFINITY) {
        row.fill(0.0);
        return f64::NEG_INFINITY;
    }
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|score| (score - max).exp()).sum();
    let lse = max + sum.ln();
    for score in row {
        *score = (*score - lse).exp();
    }
    lse
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
