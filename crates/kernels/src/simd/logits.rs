//! One row of logits: its loss, and in its place the gradient.

use std::f32::consts::LOG2_E;

use pulp::{Simd, WithSimd};

use super::math;

/// The loss of a row and, if asked, its gradient in place of the logits.
pub(crate) struct Row<'a> {
    pub(crate) logits: &'a mut [f32],
    pub(crate) target: usize,
    /// Probability spread evenly over all tokens.
    pub(crate) smoothing: f32,
    /// Factor on the gradient, or nothing if none is needed.
    pub(crate) weight: Option<f32>,
}

/// The loss of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowLoss {
    pub(crate) nats: f64,
    /// Whether no token is likelier than the target.
    pub(crate) correct: bool,
}

impl WithSimd for Row<'_> {
    type Output = RowLoss;

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) -> RowLoss {
        let Self { logits, target, smoothing, weight } = self;
        let count = logits.len() as f64;
        let aim = logits[target];
        let (body, tail) = S::as_simd_f32s(logits);
        let (mut top, mut sum) = (s.splat_f32s(f32::NEG_INFINITY), s.splat_f32s(0.0));
        for &logit in body {
            top = s.max_f32s(logit, top);
            sum = s.add_f32s(logit, sum);
        }
        let mut top = s.reduce_max_f32s(top);
        let mut mean = f64::from(s.reduce_sum_f32s(sum));
        for &logit in tail {
            top = top.max(logit);
            mean += f64::from(logit);
        }
        mean /= count;
        let (scale, offset) = (s.splat_f32s(LOG2_E), s.splat_f32s(-top * LOG2_E));
        let (body, tail) = S::as_mut_simd_f32s(logits);
        let mut total = s.splat_f32s(0.0);
        for logit in body {
            let power = math::weight(s, s.mul_add_e_f32s(*logit, scale, offset));
            *logit = power;
            total = s.add_f32s(power, total);
        }
        let mut total = f64::from(s.reduce_sum_f32s(total));
        for logit in tail {
            *logit = (*logit - top).exp();
            total += f64::from(*logit);
        }
        let lse = f64::from(top) + total.ln();
        let smoothing = f64::from(smoothing);
        let nats = (1.0 - smoothing) * (lse - f64::from(aim)) + smoothing * (lse - mean);
        if let Some(weight) = weight {
            let share = (f64::from(weight) / total) as f32;
            let even = (-f64::from(weight) * smoothing / count) as f32;
            let (body, tail) = S::as_mut_simd_f32s(logits);
            for power in body {
                *power = s.mul_add_e_f32s(*power, s.splat_f32s(share), s.splat_f32s(even));
            }
            for power in tail {
                *power = *power * share + even;
            }
            logits[target] -= (f64::from(weight) * (1.0 - smoothing)) as f32;
        }
        RowLoss { nats, correct: aim >= top }
    }
}
