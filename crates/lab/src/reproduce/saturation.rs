//! Why dot products are scaled: unscaled, their spread grows with the head dim, and softmax saturates.

use burn::tensor::{Device, Distribution, Tensor};

use super::{Finding, Judgement};
use crate::Error;

const KEYS: usize = 128;
const QUERIES: usize = 64;
const DIMS: [usize; 4] = [8, 32, 128, 512];

/// Largest weight and size of the softmax's gradient for queries and keys of normal components.
pub(super) fn measure() -> Result<Vec<Finding>, Error> {
    let rows: Vec<(usize, Weights, Weights)> = DIMS
        .iter()
        .map(|&dim| (dim, weights(dim, 1.0), weights(dim, 1.0 / (dim as f64).sqrt())))
        .collect();
    let say = |of: fn(&Weights) -> f64, which: fn(&(usize, Weights, Weights)) -> &Weights| {
        let parts: Vec<String> =
            rows.iter().map(|row| format!("{:.4} at {}", of(which(row)), row.0)).collect();
        parts.join(", ")
    };
    let (first, last) = (&rows[0], &rows[DIMS.len() - 1]);
    let judge = |holds: bool| if holds { Judgement::Agrees } else { Judgement::Disagrees };
    Ok(vec![
        Finding {
            expected: "unscaled, the largest of 128 weights nears 1 as the head dim grows".into(),
            measured: say(|w| w.largest, |row| &row.1),
            judgement: judge(last.1.largest > 0.9 && last.1.largest > first.1.largest),
        },
        Finding {
            expected: "unscaled, the gradient through softmax vanishes as the head dim grows"
                .into(),
            measured: say(|w| w.gradient, |row| &row.1),
            judgement: judge(last.1.gradient < 0.5 * first.1.gradient),
        },
        Finding {
            expected: "scaled by 1/√dim, neither changes".into(),
            measured: format!(
                "largest {}; gradient {}",
                say(|w| w.largest, |row| &row.2),
                say(|w| w.gradient, |row| &row.2)
            ),
            judgement: judge(
                (last.2.largest / first.2.largest - 1.0).abs() < 0.3
                    && (last.2.gradient / first.2.gradient - 1.0).abs() < 0.3,
            ),
        },
    ])
}

struct Weights {
    /// Mean over queries of the largest weight.
    largest: f64,
    /// Mean over queries of Σ w (1 − w), the sum of the softmax's own derivatives.
    gradient: f64,
}

fn weights(dim: usize, scale: f64) -> Weights {
    let device = Device::flex();
    device.seed(dim as u64);
    let draw = |rows| Tensor::<2>::random([rows, dim], Distribution::Normal(0.0, 1.0), &device);
    let scores = draw(QUERIES).matmul(draw(KEYS).transpose()).mul_scalar(scale);
    let weights: Vec<f32> =
        burn::tensor::activation::softmax(scores, 1).into_data().try_into_vec().expect("f32");
    let rows = weights.chunks(KEYS).map(|row| {
        let largest = row.iter().copied().fold(0.0_f32, f32::max);
        let gradient: f64 = row.iter().map(|w| f64::from(w * (1.0 - w))).sum();
        (f64::from(largest), gradient)
    });
    let (mut largest, mut gradient) = (0.0, 0.0);
    for (row_largest, row_gradient) in rows {
        largest += row_largest / QUERIES as f64;
        gradient += row_gradient / QUERIES as f64;
    }
    Weights { largest, gradient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unscaled_products_saturate_and_scaled_ones_do_not() {
        for finding in measure().unwrap() {
            assert_eq!(finding.judgement, Judgement::Agrees, "{finding:?}");
        }
    }
}
