//! Stochastic gradient descent with momentum.

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::{CHUNK, Rule, Update};
use crate::Error;

/// `velocity = momentum · velocity + gradient; value −= rate · velocity`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// How much of the velocity stays; default 0.9.
    pub momentum: f64,
    /// Share of a projection's weights lost per update and rate; default 0.
    pub weight_decay: f64,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { momentum: 0.9, weight_decay: 0.0 }
    }
}

impl Rule for Sgd {
    fn check(&self) -> Result<(), Error> {
        if !(0.0..1.0).contains(&self.momentum) {
            let reason = "expected at least 0 and below 1";
            return Err(Error::setting("optimizer.momentum", self.momentum, reason));
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            let reason = "expected 0 or more";
            return Err(Error::setting("optimizer.weight_decay", self.weight_decay, reason));
        }
        Ok(())
    }

    fn slots(&self) -> usize {
        1
    }

    fn update(&self, update: Update) {
        let Update { values, gradient, factor, slots, role, lr, .. } = update;
        let [velocity] = slots else { unreachable!("one slot") };
        let (momentum, rate) = (self.momentum as f32, lr as f32);
        let keep = if role.decays() { (1.0 - lr * self.weight_decay) as f32 } else { 1.0 };
        values
            .par_chunks_mut(CHUNK)
            .zip(gradient.par_chunks(CHUNK))
            .zip(velocity.par_chunks_mut(CHUNK))
            .for_each(|((values, gradient), velocity)| {
                for ((value, g), velocity) in values.iter_mut().zip(gradient).zip(velocity) {
                    *velocity = momentum * *velocity + g * factor;
                    *value = *value * keep - rate * *velocity;
                }
            });
    }
}
