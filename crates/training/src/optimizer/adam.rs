//! Adam, Kingma & Ba 2015 <https://arxiv.org/abs/1412.6980>, and AdamW, Loshchilov & Hutter 2019
//! <https://arxiv.org/abs/1711.05101>, whose decay does not pass through the moments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::layer;
use whatwhere_settings::Refuses;

use super::{Rule, Update};
use crate::Error;

/// Adam with weight decay beside the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// How much of the mean gradient stays; default 0.9.
    pub beta1: f64,
    /// How much of the mean square stays; default 0.95.
    pub beta2: f64,
    /// Added to the root of the mean square; default 1e-8.
    pub epsilon: f64,
    /// Share of a projection's weights lost per update and rate; default 0.1.
    pub weight_decay: f64,
}

/// Adam without weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// How much of the mean gradient stays; default 0.9.
    pub beta1: f64,
    /// How much of the mean square stays; default 0.98, as in 2017.
    pub beta2: f64,
    /// Added to the root of the mean square; default 1e-9, as in 2017.
    pub epsilon: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 }
    }
}

impl Default for Adam {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.98, epsilon: 1e-9 }
    }
}

impl AdamW {
    pub(super) fn check_range(&self) -> Result<(), Error> {
        for (setting, found) in [("optimizer.beta1", self.beta1), ("optimizer.beta2", self.beta2)] {
            if !(0.0..1.0).contains(&found) {
                return Err(Error::setting(setting, found, "expected at least 0 and below 1"));
            }
        }
        for (setting, found) in
            [("optimizer.epsilon", self.epsilon), ("optimizer.weight_decay", self.weight_decay)]
        {
            if !(found >= 0.0 && found.is_finite()) {
                return Err(Error::setting(setting, found, "expected 0 or more"));
            }
        }
        Ok(())
    }

    pub(super) fn apply(&self, update: Update) {
        let Update { values, gradient, factor, slots, role, lr, step, .. } = update;
        let [means, squares] = slots else { unreachable!("two slots") };
        let power = |beta: f64| 1.0 - beta.powf(step as f64);
        let adam = layer::Adam {
            beta1: self.beta1 as f32,
            beta2: self.beta2 as f32,
            epsilon: self.epsilon as f32,
            rate: (lr / power(self.beta1)) as f32,
            root: (1.0 / power(self.beta2)).sqrt() as f32,
            keep: if role.decays() { (1.0 - lr * self.weight_decay) as f32 } else { 1.0 },
            factor,
        };
        adam.update(values, gradient, means, squares).expect("all are as long as the parameter");
    }
}

impl Rule for AdamW {
    fn check(&self) -> Result<(), Error> {
        self.check_range()
    }

    fn slots(&self) -> usize {
        2
    }

    fn update(&self, update: Update) {
        self.apply(update);
    }
}

impl Adam {
    fn as_adamw(&self) -> AdamW {
        let Self { beta1, beta2, epsilon } = *self;
        AdamW { beta1, beta2, epsilon, weight_decay: 0.0 }
    }
}

impl Rule for Adam {
    fn check(&self) -> Result<(), Error> {
        self.as_adamw().check_range()
    }

    fn slots(&self) -> usize {
        2
    }

    fn update(&self, update: Update) {
        self.as_adamw().apply(update);
    }
}

#[cfg(test)]
mod tests {
    use whatwhere_transformer::Role;

    use super::*;

    /// The first steps by hand: with a constant gradient both moments are unbiased at once, so a step is the rate.
    #[test]
    fn a_constant_gradient_moves_by_the_rate() {
        let mut values = vec![1.0f32; 3];
        let mut slots = vec![vec![0.0; 3]; 2];
        let rule = AdamW { weight_decay: 0.5, ..AdamW::default() };
        for step in 1..=3 {
            rule.update(Update {
                values: &mut values,
                gradient: &[2.0, -3.0, 0.5],
                factor: 1.0,
                slots: &mut slots,
                shape: &[3],
                role: Role::Gain,
                lr: 0.1,
                step,
            });
        }
        for (value, expected) in values.iter().zip([0.7, 1.3, 0.7]) {
            assert!((value - expected).abs() < 1e-5, "{values:?}");
        }
        rule.update(Update {
            values: &mut values,
            gradient: &[2.0, -3.0, 0.5],
            factor: 1.0,
            slots: &mut slots,
            shape: &[3],
            role: Role::Projection,
            lr: 0.1,
            step: 4,
        });
        assert!((values[0] - (0.7 * 0.95 - 0.1)).abs() < 1e-5, "{values:?}");
    }
}
