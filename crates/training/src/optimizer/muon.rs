//! Muon: momentum whose update is made orthogonal by Newton–Schulz steps. Jordan et al. 2024,
//! <https://kellerjordan.github.io/posts/muon/>. For the matrices of projections; everything else takes AdamW.

use burn::tensor::{Tensor, TensorData};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;
use whatwhere_transformer::Role;

use super::{AdamW, Rule, Update};
use crate::{Error, device};

/// Momentum made orthogonal for matrices, AdamW for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Muon {
    /// How much of the momentum stays; default 0.95.
    pub momentum: f64,
    /// Share of a projection's weights lost per update and rate; default 0.1.
    pub weight_decay: f64,
    /// Newton–Schulz steps; default 5.
    pub iterations: usize,
    /// The rate of everything that is no such matrix, as a share of the run's; default 0.15.
    pub others: f64,
}

impl Default for Muon {
    fn default() -> Self {
        Self { momentum: 0.95, weight_decay: 0.1, iterations: 5, others: 0.15 }
    }
}

/// The paper's coefficients of `a X + b (X Xᵀ) X + c (X Xᵀ)² X`.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.7750, 2.0315);

impl Muon {
    fn adamw(&self) -> AdamW {
        AdamW { weight_decay: self.weight_decay, ..AdamW::default() }
    }

    /// Nearly the orthogonal matrix closest to `[rows, columns]` values.
    fn orthogonal(&self, values: Vec<f32>, rows: usize, columns: usize) -> Vec<f32> {
        let data = TensorData::new(values, [rows, columns]);
        let x = Tensor::<2>::from_data(data, &device::cpu());
        let wide = rows <= columns;
        let mut x = if wide { x } else { x.transpose() };
        let length = x.clone().powi_scalar(2).sum().sqrt().into_scalar::<f32>();
        x = x / (f64::from(length) + 1e-7);
        let (a, b, c) = COEFFICIENTS;
        for _ in 0..self.iterations {
            let square = x.clone().matmul(x.clone().transpose());
            let powers = square.clone() * b + square.clone().matmul(square) * c;
            x = x.clone() * a + powers.matmul(x);
        }
        let x = if wide { x } else { x.transpose() };
        x.into_data().try_into_vec().expect("f32")
    }
}

impl Rule for Muon {
    fn check(&self) -> Result<(), Error> {
        if !(0.0..1.0).contains(&self.momentum) {
            let reason = "expected at least 0 and below 1";
            return Err(Error::setting("optimizer.momentum", self.momentum, reason));
        }
        if self.iterations == 0 {
            return Err(Error::setting("optimizer.iterations", 0, "expected at least 1"));
        }
        if !(self.others >= 0.0 && self.others.is_finite()) {
            return Err(Error::setting("optimizer.others", self.others, "expected 0 or more"));
        }
        self.adamw().check_range()
    }

    fn slots(&self) -> usize {
        2
    }

    fn needs_whole(&self, shape: &[usize], role: Role) -> bool {
        shape.len() == 2 && role.is_hidden_matrix()
    }

    fn update(&self, mut update: Update) {
        let (&[rows, columns], true) = (update.shape, update.role.is_hidden_matrix()) else {
            update.lr *= self.others;
            return self.adamw().apply(update);
        };
        let Update { values, gradient, factor, slots, lr, role, .. } = update;
        let momentum = self.momentum as f32;
        for (kept, g) in slots[0].iter_mut().zip(gradient) {
            *kept = momentum * *kept + g * factor;
        }
        let ahead =
            slots[0].iter().zip(gradient).map(|(kept, g)| momentum * kept + g * factor).collect();
        let direction = self.orthogonal(ahead, rows, columns);
        // Projections are stored [from, to].
        let rate = (lr * (columns as f64 / rows as f64).max(1.0).sqrt()) as f32;
        let keep = if role.decays() { (1.0 - lr * self.weight_decay) as f32 } else { 1.0 };
        for (value, direction) in values.iter_mut().zip(direction) {
            *value = *value * keep - rate * direction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_nearly_orthogonal() {
        for (rows, columns) in [(5, 8), (8, 5)] {
            let values: Vec<f32> =
                (0..rows * columns).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0).collect();
            let x = Muon::default().orthogonal(values, rows, columns);
            let side = rows.min(columns);
            let at = |i: usize, j: usize| {
                if rows <= columns { x[i * columns + j] } else { x[j * columns + i] }
            };
            for i in 0..side {
                let length: f32 = (0..rows.max(columns)).map(|j| at(i, j).powi(2)).sum();
                // Five steps bring singular values between 0.7 and 1.2, by design of the coefficients.
                assert!((0.3..1.6).contains(&length), "{length}");
            }
        }
    }
}
