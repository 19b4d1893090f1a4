//! Cross-entropy of the tokens a projection predicts, without ever holding all logits.
//!
//! For row `i` with hidden state `h`, `z = W h` and target `t`:
//! `loss = (1 − ε)(log Σ exp z − z_t) + ε (log Σ exp z − mean z)`, weighed and summed over the rows. The gradient of the
//! logits needs nothing but the logits, so both passes are done in one: a few rows at a time, their logits become their
//! gradient, which becomes the rows' share of `d_hidden` and `d_weight`.

use rayon::prelude::*;

use crate::{
    Error, Pooled, Simd,
    simd::{
        gemm::{Matrix, product},
        logits::{Row, RowLoss},
    },
};

/// Logits held at once: 2²⁵ · 4 B = 128 MiB at most. Of 50 257 tokens that is 667 rows; products of 41 rows (8 MiB) ran at
/// half the speed, because the projection and its gradient are read and written once for each piece.
const HELD: usize = 1 << 25;

/// What is to be predicted from `[rows, width]` hidden states.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// Width of a hidden state.
    pub width: usize,
    /// Tokens that can be told apart.
    pub vocabulary: usize,
    /// Whether the projection is `[vocabulary, width]` as an embedding, instead of `[width, vocabulary]`.
    pub is_embedding: bool,
    /// One for each row.
    pub targets: &'a [u32],
    /// Factor on each row's loss; 1 if absent.
    pub weights: Option<&'a [f32]>,
    /// Probability spread evenly over all tokens.
    pub smoothing: f32,
}

/// The sum over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSum {
    /// The weighted loss.
    pub nats: f64,
    /// Rows whose target is the likeliest token.
    pub correct: u64,
}

impl CrossEntropy<'_> {
    /// The loss alone.
    pub fn forward(&self, hidden: &[f32], projection: &[f32]) -> Result<LossSum, Error> {
        self.run(hidden, projection, None)
    }

    /// The loss and its gradients, which replace what the slices held.
    pub fn forward_backward(
        &self,
        hidden: &[f32],
        projection: &[f32],
        d_hidden: &mut [f32],
        d_projection: &mut [f32],
    ) -> Result<LossSum, Error> {
        self.run(hidden, projection, Some((d_hidden, d_projection)))
    }

    fn run(
        &self,
        hidden: &[f32],
        projection: &[f32],
        mut gradients: Option<(&mut [f32], &mut [f32])>,
    ) -> Result<LossSum, Error> {
        self.check(hidden, projection, gradients.as_ref().map(|(h, p)| (h.len(), p.len())))?;
        let Self { width, vocabulary, .. } = *self;
        let simd = Simd::detect();
        let height = (HELD / vocabulary).clamp(16, 1024);
        let mut logits = Pooled::uncleared(height.min(self.targets.len()) * vocabulary);
        let across = match self.is_embedding {
            true => Matrix::new(projection, vocabulary, width).transposed(),
            false => Matrix::new(projection, width, vocabulary),
        };
        let mut sum = LossSum::default();
        for (first, states) in (0..).step_by(height).zip(hidden.chunks(height * width)) {
            let rows = states.len() / width;
            let logits = &mut logits[..rows * vocabulary];
            let states = Matrix::new(states, rows, width);
            product(logits, false, states, across);
            let losses: Vec<RowLoss> = logits
                .par_chunks_mut(vocabulary)
                .enumerate()
                .map(|(row, logits)| {
                    let row = first + row;
                    let weight = self.weights.map_or(1.0, |weights| weights[row]);
                    let target = self.targets[row] as usize;
                    let weight = gradients.is_some().then_some(weight);
                    simd.run(Row { logits, target, smoothing: self.smoothing, weight })
                })
                .collect();
            for (row, loss) in losses.into_iter().enumerate() {
                let weight = self.weights.map_or(1.0, |weights| weights[first + row]);
                sum.nats += f64::from(weight) * loss.nats;
                sum.correct += u64::from(loss.correct);
            }
            if let Some((d_hidden, d_projection)) = &mut gradients {
                let d_states = &mut d_hidden[first * width..(first + rows) * width];
                let d_logits = Matrix::new(logits, rows, vocabulary);
                product(d_states, false, d_logits, across.transposed());
                match self.is_embedding {
                    true => product(d_projection, first > 0, d_logits.transposed(), states),
                    false => product(d_projection, first > 0, states.transposed(), d_logits),
                }
            }
        }
        Ok(sum)
    }

    fn check(
        &self,
        hidden: &[f32],
        projection: &[f32],
        gradients: Option<(usize, usize)>,
    ) -> Result<(), Error> {
        let Self { width, vocabulary, targets, .. } = *self;
        let (states, weights) = (targets.len() * width, vocabulary * width);
        let mut lengths =
            vec![("hidden", hidden.len(), states), ("projection", projection.len(), weights)];
        lengths.extend(self.weights.map(|weights| ("weights", weights.len(), targets.len())));
        if let Some((d_hidden, d_projection)) = gradients {
            lengths.push(("d_hidden", d_hidden, states));
            lengths.push(("d_projection", d_projection, weights));
        }
        for (what, found, expected) in lengths {
            if found != expected {
                return Err(Error::Length { what, expected, found });
            }
        }
        for (what, size) in [("rows", targets.len()), ("width", width), ("vocabulary", vocabulary)]
        {
            if size == 0 {
                return Err(Error::Zero { what });
            }
        }
        match targets.iter().find(|target| **target as usize >= vocabulary) {
            Some(target) => Err(Error::Range {
                what: "target",
                found: target.to_string(),
                allowed: "the vocabulary",
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
    }

    /// The definition in f64.
    fn loss(call: &CrossEntropy, hidden: &[f64], projection: &[f64]) -> f64 {
        let rows = hidden.chunks(call.width).enumerate();
        let each = rows.map(|(row, state)| {
            let logits: Vec<f64> = (0..call.vocabulary)
                .map(|token| {
                    let at = |c: usize| match call.is_embedding {
                        true => projection[token * call.width + c],
                        false => projection[c * call.vocabulary + token],
                    };
                    (0..call.width).map(|c| state[c] * at(c)).sum()
                })
                .collect();
            let lse = logits.iter().map(|z: &f64| z.exp()).sum::<f64>().ln();
            let mean = logits.iter().sum::<f64>() / logits.len() as f64;
            let epsilon = f64::from(call.smoothing);
            let right = lse - logits[call.targets[row] as usize];
            let weight = call.weights.map_or(1.0, |weights| f64::from(weights[row]));
            weight * ((1.0 - epsilon) * right + epsilon * (lse - mean))
        });
        each.sum()
    }

    #[test]
    fn loss_and_gradients_agree_with_the_definition() {
        // More than 1024 rows make several pieces.
        for (rows, width, vocabulary) in
            [(1, 3, 1), (5, 4, 7), (37, 8, 33), (60, 2, 40_000), (1100, 2, 3)]
        {
            let (hidden, projection) = (numbers(rows * width, 1), numbers(vocabulary * width, 5));
            let targets: Vec<u32> = (0..rows).map(|i| (i * 31 % vocabulary) as u32).collect();
            let weights: Vec<f32> = (0..rows).map(|i| (i % 3) as f32).collect();
            for is_embedding in [false, true] {
                for weights in [None, Some(weights.as_slice())] {
                    for smoothing in [0.0, 0.1] {
                        let call = CrossEntropy {
                            width,
                            vocabulary,
                            is_embedding,
                            targets: &targets,
                            weights,
                            smoothing,
                        };
                        against_the_definition(&call, &hidden, &projection);
                    }
                }
            }
        }
    }

    fn against_the_definition(call: &CrossEntropy, hidden: &[f32], projection: &[f32]) {
        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let (h, p) = (wide(hidden), wide(projection));
        let expected = loss(call, &h, &p);
        let mut d_hidden = vec![f32::NAN; hidden.len()];
        let mut d_projection = vec![f32::NAN; projection.len()];
        let found =
            call.forward_backward(hidden, projection, &mut d_hidden, &mut d_projection).unwrap();
        assert_eq!(call.forward(hidden, projection).unwrap(), found);
        assert!((found.nats - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{call:?}");
        // Central differences in a few coordinates of both.
        let step = 1e-4;
        for at in (0..hidden.len()).step_by(hidden.len() / 7 + 1) {
            let moved = |by: f64| {
                let mut h = h.clone();
                h[at] += by;
                loss(call, &h, &p)
            };
            let slope = (moved(step) - moved(-step)) / (2.0 * step);
            assert!((slope - f64::from(d_hidden[at])).abs() < 2e-4, "{slope} {}", d_hidden[at]);
        }
        for at in (0..projection.len()).step_by(projection.len() / 7 + 1) {
            let moved = |by: f64| {
                let mut p = p.clone();
                p[at] += by;
                loss(call, &h, &p)
            };
            let slope = (moved(step) - moved(-step)) / (2.0 * step);
            assert!(
                (slope - f64::from(d_projection[at])).abs() < 5e-4,
                "{slope} {}",
                d_projection[at]
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let call = CrossEntropy {
            width: 2,
            vocabulary: 3,
            is_embedding: false,
            targets: &[0, 3],
            weights: None,
            smoothing: 0.0,
        };
        let message = call.forward(&[0.0; 4], &[0.0; 6]).unwrap_err().to_string();
        assert!(message.contains("target = 3 is outside the vocabulary"), "{message}");
        assert!(call.forward(&[0.0; 3], &[0.0; 6]).is_err());
        assert!(call.forward(&[0.0; 4], &[0.0; 5]).is_err());
    }
}
