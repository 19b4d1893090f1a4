//! The gradient of the reference, step by step from the output back to the inputs.

use crate::attention::{
    Gradients,
    reference::{Formed, Reference, Row, Values, dot, feature::Side},
};

impl Reference<'_, '_> {
    pub(super) fn backward(&self, d_out: &[f64]) -> Values {
        let mut d = Values::from(&Gradients::zeros(self.attention));
        let (weights, _) = self.weights();
        for (batch, head) in self.heads() {
            let formed = self.form_head(batch, head);
            let mut d_formed =
                Formed { queries: zeros(&formed.queries), keys: zeros(&formed.keys) };
            for (query, q) in formed.queries.iter().enumerate() {
                let row = Row { batch, head, query };
                let d_weights = self.mix_backward(row, &weights, d_out, &mut d);
                let d_scores = softmax_backward(&weights[self.row_range(row)], &d_weights);
                for (key, (k, d_score)) in formed.keys.iter().zip(d_scores).enumerate() {
                    self.biases_backward(row, key, d_score, &mut d);
                    let d_compared = self.cap_backward(self.compare(head, q, k), d_score);
                    let d_score = &mut d.learned.score;
                    let (d_q, d_k) = self.compare_backward(head, (q, k), d_compared, d_score);
                    add(&mut d_formed.queries[query], d_q);
                    add(&mut d_formed.keys[key], d_k);
                }
            }
            self.form_head_backward(batch, head, &d_formed, &mut d);
        }
        d
    }

    /// Adds the gradients of values, relative values and centers; returns that of the row's weights.
    fn mix_backward(&self, row: Row, weights: &[f64], d_out: &[f64], d: &mut Values) -> Vec<f64> {
        let d_out = &d_out[self.out_range(row)];
        let mut d_weights = Vec::new();
        for (key, weight) in weights[self.row_range(row)].iter().enumerate() {
            let factor = self.weight_factor(row, key);
            let d_kept = dot(d_out, &self.value(row, key));
            d_weights.push(d_kept * factor);

            let d_value = scaled(d_out, weight * factor);
            if let Some(vectors) = &mut d.learned.relative_values {
                let vector = self.vector_range(vectors, row, key, d_value.len());
                add(&mut vectors.table[vector], d_value.iter().copied());
            }
            add(&mut d.v[self.v_range(row, key)], d_value);
            if let (Some(focus), Some(d)) = (&self.values.learned.focus, &mut d.learned.focus) {
                let center = self.row_index(row);
                let off = self.pair(row, key).key as f64 - focus.centers[center];
                let d_factor = d_kept * weight;
                d.centers[center] += d_factor * factor * off / f64::from(focus.deviation).powi(2);
            }
        }
        d_weights
    }

    /// Adds the gradients of every bias, and of the queries that relative biases read.
    fn biases_backward(&self, row: Row, key: usize, d_score: f64, d: &mut Values) {
        for (bias, d_bias) in self.values.learned.biases.iter().zip(&mut d.learned.biases) {
            self.bias_backward(bias, (row, key), d_score, d_bias, &mut d.q);
        }
    }

    fn cap_backward(&self, compared: f64, d_score: f64) -> f64 {
        match self.attention.soft_cap.map(f64::from) {
            Some(cap) => d_score * (1.0 - (compared / cap).tanh().powi(2)),
            None => d_score,
        }
    }

    /// Adds the gradients of queries, query bias, keys and δ from those of one head's formed vectors.
    fn form_head_backward(&self, batch: usize, head: usize, d_formed: &Formed, d: &mut Values) {
        for (query, d_formed) in d_formed.queries.iter().enumerate() {
            let row = Row { batch, head, query };
            let at = (head, Side::Query, self.attention.first_query + query);
            let d_q =
                self.form_backward(at, &self.biased_query(row), d_formed, &mut d.learned.features);
            if let Some(d) = &mut d.learned.query_bias {
                add(&mut d[self.head_range(head)], d_q.iter().copied());
            }
            add(&mut d.q[self.q_range(row)], d_q);
        }
        for (key, d_formed) in d_formed.keys.iter().enumerate() {
            let range = self.k_range(batch, head, key);
            let at = (head, Side::Key, self.attention.first_key + key);
            let k = &self.values.k[range.clone()];
            let d_k = self.form_backward(at, k, d_formed, &mut d.learned.features);
            add(&mut d.k[range], d_k);
        }
    }
}

fn softmax_backward(weights: &[f64], d_weights: &[f64]) -> Vec<f64> {
    let mean = dot(weights, d_weights);
    weights.iter().zip(d_weights).map(|(weight, d)| weight * (d - mean)).collect()
}

pub(super) fn add(sum: &mut [f64], terms: impl IntoIterator<Item = f64>) {
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += term;
    }
}

pub(super) fn scaled(x: &[f64], factor: f64) -> Vec<f64> {
    x.iter().map(|x| factor * x).collect()
}

fn zeros(vectors: &[Vec<f64>]) -> Vec<Vec<f64>> {
    vectors.iter().map(|vector| vec![0.0; vector.len()]).collect()
}

#[cfg(test)]
mod tests {
    use std::{ops::Range, sync::Arc};

    use whatwhere_random::Random;

    use super::*;
    use crate::attention::{
        Angles, Attention, Bias, Buckets, DELTA_RANGE, Dropout, Feature, FeatureKind, Focus,
        Inputs, Layout, Magnitude, Relative, Score, Shape, alibi_slopes, alibi_table,
        pattern::{Causal, Full},
        reference::values::widen,
    };

    // A central difference errs by STEP²/6 times a third derivative (here ≲ 10) and by f64's rounding
    // over STEP: 2e-10 and 1e-11.
    const STEP: f64 = 1e-5;
    const TOLERANCE: f64 = 1e-8;
    // Far above what rounding leaves of a gradient that is 0.
    const LEARNS: f64 = 1e-6;

    #[test]
    fn every_gradient_is_the_slope_of_the_loss() {
        for (name, attention) in cases() {
            let call = call(&attention);
            let d_out = widen(data(9, attention.shape.out_len()));
            let gradients = call.backward(&d_out);
            for (i, (slice, found)) in gradients.slices().into_iter().enumerate() {
                let learned = found.iter().any(|gradient| gradient.abs() > LEARNS);
                assert!(found.is_empty() || learned, "{name}: nothing reaches {slice}");
                for (j, found) in found.iter().enumerate() {
                    let loss = |by| dot(&nudged(&call, i, j, by).forward().out, &d_out);
                    let slope = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
                    assert!(
                        (found - slope).abs() <= TOLERANCE * slope.abs().max(1.0),
                        "{name}: {slice}[{j}] is {found}, the slope is {slope}",
                    );
                }
            }
        }
    }

    #[test]
    fn delta_learns_on_its_bounds_and_not_beyond() {
        let (low, high) = DELTA_RANGE;
        for (delta, learns) in [(low, true), (high, true), (low - 0.1, false), (high + 0.1, false)]
        {
            let deltas = vec![delta; 2 * 4].leak();
            let features = vec![polar(Magnitude::Softplus, Some(deltas), 0..4, 0..2)];
            let attention = Attention { features, ..base() };
            let d_out = widen(data(9, attention.shape.out_len()));
            let gradients = call(&attention).backward(&d_out);
            for d_delta in gradients.learned.features[0].delta().unwrap() {
                assert_eq!(d_delta.abs() > LEARNS, learns, "{delta}: {d_delta}");
            }
        }
    }

    #[test]
    fn a_zero_vector_has_no_cosine_gradient() {
        let attention = Attention { score: Score::Cosine { scale: 2.0 }, ..base() };
        let mut call = call(&attention);
        call.values.q[..4].fill(0.0);
        let gradients = call.backward(&vec![1.0; attention.shape.out_len()]);
        assert_eq!(gradients.q[..4], [0.0; 4]);
        assert!(gradients.slices().iter().all(|(_, values)| values.iter().all(|d| d.is_finite())));
    }

    /// A table of calls that together make every choice, tiny enough to try every coordinate.
    fn cases() -> Vec<(&'static str, Attention<'static>)> {
        let base = base();
        let grouped = Shape { kv_heads: 1, ..base.shape };
        // The third is above the clamp's range, the seventh below.
        let delta: &[f32] = &[-1.0, -6.0, 0.5, -3.0, -0.2, -4.0, -7.0, -2.0];
        let half_delta: &[f32] = &[-0.7, -2.5, -5.0, -0.1];
        let features = |features| Attention { features, ..base.clone() };
        let bias = |bias| Attention { biases: vec![bias], pattern: &Full, ..base.clone() };
        let cosine = Score::Cosine { scale: 3.0 };
        let additive = Score::Additive { weight: data(4, 8) };
        let unequal = Relative { table: data(5, 4 * 4), per_head: false, left: 1, right: 2 };
        let per_head = Relative { table: data(5, 2 * 4 * 4), per_head: true, ..unequal };
        let values = Relative { table: data(6, 3 * 3), per_head: false, left: 1, right: 1 };
        let head_values = Relative { table: data(6, 2 * 3 * 3), per_head: true, ..values };
        let by_distance = |table, left, right| Bias::ByDistance { table, left, right };
        let table = by_distance(data(5, 8), 1, 2);
        let alibi = by_distance(alibi_table(&alibi_slopes(2), 3, 2).leak(), 3, 2);
        let buckets = Buckets { count: 8, max_distance: 6, bidirectional: true };
        let t5 = by_distance(buckets.table(data(5, 16), 3, 2).leak(), 3, 2);
        let dense = |values, shape, learned| Bias::Dense { values, shape, learned };
        let mut hiding = data(7, 12).to_vec();
        hiding[4..7].fill(f32::NEG_INFINITY);
        let focus = Focus { centers: data(8, 12), deviation: 1.5 };
        let dropout = Dropout { rate: 0.4, seed: 3 };
        vec![
            ("dot", base.clone()),
            ("full", Attention { pattern: &Full, ..base.clone() }),
            ("blind row", Attention { first_query: 0, ..base.clone() }),
            ("grouped", Attention { shape: grouped, ..base.clone() }),
            ("cosine", Attention { score: cosine, ..base.clone() }),
            ("additive", Attention { score: additive, ..base.clone() }),
            ("soft cap", Attention { soft_cap: Some(0.8), ..base.clone() }),
            ("query bias", Attention { query_bias: Some(data(10, 8)), ..base.clone() }),
            (
                "additive, capped and biased",
                Attention {
                    score: additive,
                    soft_cap: Some(0.8),
                    query_bias: Some(data(10, 8)),
                    ..base.clone()
                },
            ),
            ("interleaved", features(vec![rotary(Layout::Interleaved, 0..4, 0..2)])),
            ("half-split", features(vec![rotary(Layout::HalfSplit, 0..4, 0..2)])),
            ("partial rotary", features(vec![rotary(Layout::HalfSplit, 1..3, 1..2)])),
            ("softplus", features(vec![polar(Magnitude::Softplus, None, 0..4, 0..2)])),
            ("delta", features(vec![polar(Magnitude::Softplus, Some(delta), 0..4, 0..2)])),
            ("relu", features(vec![polar(Magnitude::Relu, Some(delta), 0..4, 0..2)])),
            ("identity", features(vec![polar(Magnitude::Identity, Some(delta), 0..4, 0..2)])),
            (
                "partial polar beside rotary",
                features(vec![
                    polar(Magnitude::Softplus, Some(half_delta), 2..4, 0..2),
                    rotary(Layout::Interleaved, 0..2, 0..2),
                ]),
            ),
            (
                "another feature in each head",
                features(vec![
                    rotary(Layout::HalfSplit, 0..4, 0..1),
                    polar(Magnitude::Identity, Some(delta), 0..4, 1..2),
                ]),
            ),
            (
                "cosine of grouped polar",
                Attention {
                    shape: grouped,
                    score: cosine,
                    query_bias: Some(data(10, 8)),
                    features: vec![
                        polar(Magnitude::Relu, None, 0..1, 0..2),
                        polar(Magnitude::Softplus, Some(half_delta), 1..3, 0..2),
                    ],
                    ..base.clone()
                },
            ),
            ("slopes", bias(alibi)),
            ("buckets", bias(t5)),
            ("causal table", Attention { biases: vec![t5], ..base.clone() }),
            ("table", bias(table)),
            ("shaw", bias(Bias::Relative { vectors: unequal, query_bias: None, scale: 0.5 })),
            (
                "transformer-xl",
                Attention {
                    query_bias: Some(data(10, 8)),
                    ..bias(Bias::Relative {
                        vectors: per_head,
                        query_bias: Some(data(11, 8)),
                        scale: 0.5,
                    })
                },
            ),
            ("dense", bias(dense(data(7, 48), [2, 2, 3, 4], true))),
            ("broadcast dense", bias(dense(data(7, 8), [2, 1, 1, 4], true))),
            ("hiding dense", bias(dense(hiding.clone().leak(), [1, 1, 3, 4], true))),
            ("fixed dense", bias(dense(hiding.leak(), [1, 1, 3, 4], false))),
            ("relative values", Attention { relative_values: Some(values), ..base.clone() }),
            ("per head", Attention { relative_values: Some(head_values), ..base.clone() }),
            ("focus", Attention { focus: Some(focus), ..base.clone() }),
            ("dropout", Attention { dropout: Some(dropout), ..base.clone() }),
            (
                "everything",
                Attention {
                    shape: grouped,
                    query_bias: Some(data(10, 8)),
                    features: vec![
                        rotary(Layout::HalfSplit, 0..2, 0..2),
                        polar(Magnitude::Softplus, Some(half_delta), 2..4, 0..2),
                    ],
                    soft_cap: Some(0.8),
                    biases: vec![
                        alibi,
                        table,
                        Bias::Relative {
                            vectors: per_head,
                            query_bias: Some(data(11, 8)),
                            scale: 0.5,
                        },
                        dense(data(7, 12), [1, 1, 3, 4], true),
                        dense(data(7, 8), [1, 2, 1, 4], true),
                    ],
                    focus: Some(focus),
                    dropout: Some(dropout),
                    relative_values: Some(head_values),
                    ..base
                },
            ),
        ]
    }

    /// Queries at positions 2 to 4 and keys at positions 1 to 4, under a causal pattern.
    fn base() -> Attention<'static> {
        let shape = Shape {
            batch: 2,
            heads: 2,
            kv_heads: 2,
            queries: 3,
            keys: 4,
            head_dim: 4,
            value_dim: 3,
        };
        Attention { first_query: 2, first_key: 1, ..Attention::new(shape, &Causal { offset: 0 }) }
    }

    fn rotary(
        layout: Layout,
        channels: Range<usize>,
        heads: Range<usize>,
    ) -> Feature<&'static [f32]> {
        let frequencies = Angles::rotary_frequencies(channels.len(), 100.0);
        let angles = Arc::new(Angles::new(&frequencies, 0..8, 1.2));
        Feature { kind: FeatureKind::Rotary { layout }, channels, heads, angles }
    }

    fn polar(
        magnitude: Magnitude,
        delta: Option<&'static [f32]>,
        channels: Range<usize>,
        heads: Range<usize>,
    ) -> Feature<&'static [f32]> {
        let frequencies = Angles::polar_frequencies(channels.len(), 100.0);
        let angles = Arc::new(Angles::new(&frequencies, 0..8, 0.9));
        Feature { kind: FeatureKind::Polar { magnitude, delta }, channels, heads, angles }
    }

    fn call<'c>(attention: &'c Attention<'static>) -> Reference<'c, 'static> {
        let shape = &attention.shape;
        let (q, k, v) = (data(1, shape.q_len()), data(2, shape.k_len()), data(3, shape.v_len()));
        Reference::new(attention, &Inputs { q, k, v }).unwrap()
    }

    /// Numbers in (−1.5, 1.5); they live as long as the tests.
    fn data(seed: u64, len: usize) -> &'static [f32] {
        Random::new(&[seed]).signed(len).into_iter().map(|x| 1.5 * x).collect::<Vec<_>>().leak()
    }

    /// The same with value `j` of slice `i`, in the order of [`Values::slices`], moved.
    fn nudged<'c>(
        call: &Reference<'c, 'static>,
        i: usize,
        j: usize,
        by: f64,
    ) -> Reference<'c, 'static> {
        let mut slices = 0..;
        let mut nudge = |values: &Vec<f64>| {
            let mut values = values.clone();
            if slices.next() == Some(i) {
                values[j] += by;
            }
            values
        };
        let Values { q, k, v, learned } = &call.values;
        let [q, k, v] = [q, k, v].map(&mut nudge);
        let values = Values { q, k, v, learned: learned.map((), nudge) };
        Reference { attention: call.attention, values }
    }
}
