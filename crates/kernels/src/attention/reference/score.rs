//! Scores by definition, and their gradients.

use crate::attention::{
    Score,
    reference::{
        Reference,
        backward::{add, scaled},
        dot,
    },
};

impl Reference<'_, '_> {
    /// How alike a formed query and a formed key are.
    pub(super) fn compare(&self, head: usize, q: &[f64], k: &[f64]) -> f64 {
        match &self.values.learned.score {
            Score::Dot { scale } => f64::from(*scale) * dot(q, k),
            Score::Cosine { scale } => f64::from(*scale) * cosine(q, k),
            Score::Additive { weight } => {
                let weight = &weight[self.head_range(head)];
                q.iter().zip(k).zip(weight).map(|((q, k), w)| w * (q + k).tanh()).sum()
            }
        }
    }

    /// The gradients of a formed query and key; that of what the score learns is added to `d`.
    pub(super) fn compare_backward(
        &self,
        head: usize,
        (q, k): (&[f64], &[f64]),
        d_compared: f64,
        d: &mut Score<Vec<f64>>,
    ) -> (Vec<f64>, Vec<f64>) {
        match (&self.values.learned.score, d) {
            (Score::Dot { scale }, _) => {
                let d_dot = f64::from(*scale) * d_compared;
                (scaled(k, d_dot), scaled(q, d_dot))
            }
            (Score::Cosine { scale }, _) => {
                let d_cosine = f64::from(*scale) * d_compared;
                (scaled(&cosine_slope(q, k), d_cosine), scaled(&cosine_slope(k, q), d_cosine))
            }
            (Score::Additive { weight }, d) => {
                let head = self.head_range(head);
                let tanh: Vec<f64> = q.iter().zip(k).map(|(q, k)| (q + k).tanh()).collect();
                if let Score::Additive { weight: d } = d {
                    add(&mut d[head.clone()], scaled(&tanh, d_compared));
                }
                let d_sum: Vec<f64> = (tanh.iter().zip(&weight[head]))
                    .map(|(tanh, weight)| d_compared * weight * (1.0 - tanh * tanh))
                    .collect();
                (d_sum.clone(), d_sum)
            }
        }
    }
}

/// 0 when either vector is 0.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let norms = dot(a, a).sqrt() * dot(b, b).sqrt();
    if norms == 0.0 { 0.0 } else { dot(a, b) / norms }
}

/// The gradient of `cosine(a, b)` for `a`; 0 when either vector is 0.
fn cosine_slope(a: &[f64], b: &[f64]) -> Vec<f64> {
    let (square, norms) = (dot(a, a), dot(a, a).sqrt() * dot(b, b).sqrt());
    if norms == 0.0 {
        return vec![0.0; a.len()];
    }
    let cosine = cosine(a, b);
    a.iter().zip(b).map(|(a, b)| b / norms - cosine * a / square).collect()
}
