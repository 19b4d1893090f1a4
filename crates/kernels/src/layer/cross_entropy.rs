//! Cross-entropy of the tokens a projection predicts, without ever holding all logits.
//!
//! For row `i` with hidden state `h`, `z = W h + b` (or `c · tanh((W h + b) / c)` under a soft cap `c`) and target `t`:
//! `loss = (1 − ε)(log Σ exp z − z_t) + ε (log Σ exp z − mean z)`, weighed and summed over the rows. The gradient of the
//! logits needs nothing but the logits, so both passes are done in one: a few rows at a time, their logits become their
//! gradient, which becomes the rows' share of `d_hidden` and `d_weight`.

use rayon::prelude::*;

use crate::{
    Error, Pooled, Precision, Simd,
    error::{expect_lens, expect_nonzero},
    simd::{
        gemm::Matrix,
        logits::{Row, RowLoss},
    },
};

/// Logits held at once: 2²⁵ · 4 B = 128 MiB at most. Of 50 257 tokens that is 667 rows; products of 41 rows (8 MiB) ran at
/// half the speed, because the projection and its gradient are read and written once for each piece.
const HELD: usize = 1 << 25;

/// Columns whose sum one task forms.
const COLUMNS: usize = 1 << 10;

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
    /// Bound on the logits, none if absent.
    pub soft_cap: Option<f32>,
    /// What its products are computed in, forward and backward.
    pub precision: Precision,
}

/// What hidden states are projected by.
#[derive(Clone, Copy, Debug)]
pub struct OutputWeights<'a> {
    /// Of [`CrossEntropy::is_embedding`]'s shape.
    pub weight: &'a [f32],
    /// `[vocabulary]`, empty if there is none.
    pub bias: &'a [f32],
}

/// Where gradients go, each as long as what it belongs to; what was there is replaced.
#[derive(Debug)]
pub struct OutputGradients<'a> {
    /// Of the hidden states.
    pub hidden: &'a mut [f32],
    /// Of the weight.
    pub weight: &'a mut [f32],
    /// Of the bias.
    pub bias: &'a mut [f32],
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
    pub fn forward(&self, hidden: &[f32], output: OutputWeights) -> Result<LossSum, Error> {
        self.run(hidden, output, None)
    }

    /// The loss and its gradients.
    pub fn forward_backward(
        &self,
        hidden: &[f32],
        output: OutputWeights,
        gradients: OutputGradients,
    ) -> Result<LossSum, Error> {
        self.run(hidden, output, Some(gradients))
    }

    fn run(
        &self,
        hidden: &[f32],
        output: OutputWeights,
        mut gradients: Option<OutputGradients>,
    ) -> Result<LossSum, Error> {
        self.check(hidden, output, gradients.as_ref())?;
        let Self { width, vocabulary, .. } = *self;
        let height = (HELD / vocabulary).clamp(16, 1024);
        let mut logits = Pooled::uncleared(height.min(self.targets.len()) * vocabulary);
        let across = match self.is_embedding {
            true => Matrix::new(output.weight, vocabulary, width).transposed(),
            false => Matrix::new(output.weight, width, vocabulary),
        };
        let mut sum = LossSum::default();
        for (first, states) in (0..).step_by(height).zip(hidden.chunks(height * width)) {
            let rows = states.len() / width;
            let logits = &mut logits[..rows * vocabulary];
            let states = Matrix::new(states, rows, width);
            self.precision.product(logits, false, states, across);
            let losses = self.losses(first, logits, output.bias, gradients.is_some());
            for (row, loss) in losses.into_iter().enumerate() {
                let weight = self.weights.map_or(1.0, |weights| weights[first + row]);
                sum.nats += f64::from(weight) * loss.nats;
                sum.correct += u64::from(loss.correct);
            }
            if let Some(made) = &mut gradients {
                let d_states = &mut made.hidden[first * width..(first + rows) * width];
                let d_logits = Matrix::new(logits, rows, vocabulary);
                self.precision.product(d_states, false, d_logits, across.transposed());
                let (a, b) = match self.is_embedding {
                    true => (d_logits.transposed(), states),
                    false => (states.transposed(), d_logits),
                };
                self.precision.product(made.weight, first > 0, a, b);
                if !made.bias.is_empty() {
                    sum_columns(logits, made.bias, first > 0);
                }
            }
        }
        Ok(sum)
    }

    /// The losses of some rows, the first of which is row `first`, from their products with the projection, which become
    /// the gradients of these products where they are asked for.
    fn losses(&self, first: usize, logits: &mut [f32], bias: &[f32], learns: bool) -> Vec<RowLoss> {
        let simd = Simd::detect();
        let rows = logits.par_chunks_mut(self.vocabulary).enumerate();
        rows.map(|(row, logits)| {
            let row = first + row;
            let weight = self.weights.map_or(1.0, |weights| weights[row]);
            let target = self.targets[row] as usize;
            let weight = learns.then_some(weight);
            for (logit, bias) in logits.iter_mut().zip(bias) {
                *logit += bias;
            }
            let capped = self.soft_cap.map(|cap| {
                logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
                (cap, Pooled::of(if learns { logits } else { &[] }))
            });
            let loss = simd.run(Row { logits, target, smoothing: self.smoothing, weight });
            if let Some((cap, capped)) = capped {
                for (d, capped) in logits.iter_mut().zip(&*capped) {
                    *d *= 1.0 - (capped / cap) * (capped / cap);
                }
            }
            loss
        })
        .collect()
    }

    fn check(
        &self,
        hidden: &[f32],
        output: OutputWeights,
        gradients: Option<&OutputGradients>,
    ) -> Result<(), Error> {
        let Self { width, vocabulary, targets, .. } = *self;
        let (states, weights) = (targets.len() * width, vocabulary * width);
        let biases = if output.bias.is_empty() { 0 } else { vocabulary };
        let mut lengths = vec![
            ("hidden", hidden.len(), states),
            ("projection", output.weight.len(), weights),
            ("bias", output.bias.len(), biases),
        ];
        lengths.extend(self.weights.map(|weights| ("weights", weights.len(), targets.len())));
        if let Some(made) = gradients {
            lengths.push(("d_hidden", made.hidden.len(), states));
            lengths.push(("d_projection", made.weight.len(), weights));
            lengths.push(("d_bias", made.bias.len(), biases));
        }
        expect_lens(lengths)?;
        expect_nonzero([("rows", targets.len()), ("width", width), ("vocabulary", vocabulary)])?;
        if let Some(cap) = self.soft_cap
            && !(cap > 0.0 && cap.is_finite())
        {
            let found = cap.to_string();
            return Err(Error::Range { what: "soft_cap", found, allowed: "caps above 0" });
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

/// Adds up the rows, which replace what `sums` held or, if `adds`, are added to it; in order for every column.
fn sum_columns(rows: &[f32], sums: &mut [f32], adds: bool) {
    let width = sums.len();
    sums.par_chunks_mut(COLUMNS).enumerate().for_each(|(part, sums)| {
        if !adds {
            sums.fill(0.0);
        }
        for row in rows.chunks_exact(width) {
            for (sum, value) in sums.iter_mut().zip(&row[part * COLUMNS..]) {
                *sum += value;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    /// The definition in f64.
    fn loss(call: &CrossEntropy, hidden: &[f64], projection: &[f64], bias: &[f64]) -> f64 {
        let rows = hidden.chunks(call.width).enumerate();
        let each = rows.map(|(row, state)| {
            let logits: Vec<f64> = (0..call.vocabulary)
                .map(|token| {
                    let at = |c: usize| match call.is_embedding {
                        true => projection[token * call.width + c],
                        false => projection[c * call.vocabulary + token],
                    };
                    let product: f64 = (0..call.width).map(|c| state[c] * at(c)).sum();
                    let logit = product + bias.get(token).unwrap_or(&0.0);
                    call.soft_cap.map(f64::from).map_or(logit, |cap| cap * (logit / cap).tanh())
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
            let bias = numbers(vocabulary, 3);
            let targets: Vec<u32> = (0..rows).map(|i| (i * 31 % vocabulary) as u32).collect();
            let weights: Vec<f32> = (0..rows).map(|i| (i % 3) as f32).collect();
            for is_embedding in [false, true] {
                for weights in [None, Some(weights.as_slice())] {
                    for smoothing in [0.0, 0.1] {
                        let mut call = CrossEntropy {
                            width,
                            vocabulary,
                            is_embedding,
                            targets: &targets,
                            weights,
                            smoothing,
                            soft_cap: None,
                            precision: Precision::F32,
                        };
                        against_the_definition(&call, &hidden, &projection, &[]);
                        against_the_definition(&call, &hidden, &projection, &bias);
                        call.soft_cap = Some(1.5);
                        against_the_definition(&call, &hidden, &projection, &bias);
                    }
                }
            }
        }
    }

    fn against_the_definition(
        call: &CrossEntropy,
        hidden: &[f32],
        projection: &[f32],
        bias: &[f32],
    ) {
        let slots =
            [hidden, projection, bias].map(|s| s.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
        let value = |[h, p, b]: &[Vec<f64>; 3]| loss(call, h, p, b);
        let expected = value(&slots);
        let mut made = [hidden, projection, bias].map(|values| vec![f32::NAN; values.len()]);
        let [d_hidden, d_weight, d_bias] = &mut made;
        let gradients = OutputGradients { hidden: d_hidden, weight: d_weight, bias: d_bias };
        let output = OutputWeights { weight: projection, bias };
        let found = call.forward_backward(hidden, output, gradients).unwrap();
        assert_eq!(call.forward(hidden, output).unwrap(), found);
        assert!((found.nats - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{call:?}");
        // Central differences in a few coordinates of each.
        let step = 1e-4;
        for (slot, made) in made.iter().enumerate() {
            for at in (0..made.len()).step_by(made.len() / 7 + 1) {
                let moved = |by: f64| {
                    let mut slots = slots.clone();
                    slots[slot][at] += by;
                    value(&slots)
                };
                let slope = (moved(step) - moved(-step)) / (2.0 * step);
                assert!((slope - f64::from(made[at])).abs() < 5e-4, "{slot}: {slope} {}", made[at]);
            }
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
            soft_cap: None,
            precision: Precision::F32,
        };
        let weights =
            |count, biases| OutputWeights { weight: &[0.0; 9][..count], bias: &[0.0; 9][..biases] };
        let message = call.forward(&[0.0; 4], weights(6, 0)).unwrap_err().to_string();
        assert!(message.contains("target = 3 is outside the vocabulary"), "{message}");
        let call = CrossEntropy { targets: &[0, 2], ..call };
        assert!(call.forward(&[0.0; 4], weights(6, 3)).is_ok());
        assert!(call.forward(&[0.0; 3], weights(6, 0)).is_err());
        assert!(call.forward(&[0.0; 4], weights(5, 0)).is_err());
        assert!(call.forward(&[0.0; 4], weights(6, 2)).is_err());
        let call = CrossEntropy { soft_cap: Some(0.0), ..call };
        assert!(call.forward(&[0.0; 4], weights(6, 0)).is_err());
    }
}
