//! Optimizers: from gradients to updates, over parameters by name.
//!
//! What a parameter is ([`Role`]) decides on weight decay and Muon: it acts on the matrices of projections only, not on norms,
//! biases, embeddings, or what encodings learn.

mod adam;
mod gradients;
mod muon;
mod sgd;

use std::collections::HashMap;

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Tensor, TensorData},
};
use whatwhere_settings::choice;
use whatwhere_transformer::{Model, ParameterPath, Role};

use crate::{
    Error,
    finetune::{
        Trainable,
        lora::{Adapters, DOWN, UP},
    },
};

pub use adam::{Adam, AdamW};
pub(crate) use gradients::GradientBuffers;
pub use muon::Muon;
pub use sgd::Sgd;

choice! {
    /// What turns gradients into updates; `kind` names the choice.
    Optimizer: Rule {
        AdamW => "adamw",
        Adam => "adam",
        Sgd => "sgd",
        Muon => "muon",
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::AdamW(AdamW::default())
    }
}

/// A parameter in an update.
pub(crate) struct Update<'a> {
    /// Its values.
    pub(crate) values: &'a mut [f32],
    /// Its gradient, but for the factor.
    pub(crate) gradient: &'a [f32],
    /// What the gradient is multiplied by: the share of a token, and what clipping leaves.
    pub(crate) factor: f32,
    /// What the optimizer remembers of it: as many slots as it asks for, each as long as the values.
    pub(crate) slots: &'a mut [Vec<f32>],
    /// Its sizes; those of the whole parameter where these are a part of it.
    pub(crate) shape: &'a [usize],
    /// What it is.
    pub(crate) role: Role,
    /// The learning rate of this update.
    pub(crate) lr: f64,
    /// Updates so far, this one included.
    pub(crate) step: u64,
}

/// What an optimizer does with one parameter.
pub(crate) trait Rule {
    fn check(&self) -> Result<(), Error>;

    /// Values to remember for each value of a parameter.
    fn slots(&self) -> usize;

    /// Whether it updates a parameter as a whole, not value by value.
    fn needs_whole(&self, _shape: &[usize], _role: Role) -> bool {
        false
    }

    fn update(&self, update: Update);
}

impl Optimizer {
    /// Refuses settings out of range.
    pub fn check(&self) -> Result<(), Error> {
        self.role().check()
    }

    /// Values it remembers for each value of a parameter.
    pub fn slots(&self) -> usize {
        self.role().slots()
    }

    /// Whether it updates a parameter as a whole, not value by value.
    pub(crate) fn needs_whole(&self, shape: &[usize], role: Role) -> bool {
        self.role().needs_whole(shape, role)
    }
}

/// Values handled by one task; sums of squares are formed of as many, and ranks own whole ones.
pub(crate) const CHUNK: usize = 1 << 15;

/// An optimizer at work: its rule, and what it remembers of each parameter.
#[derive(Clone, Debug)]
pub(crate) struct OptimizerState {
    optimizer: Optimizer,
    /// By the parameter's name; of the values that are updated here.
    pub(crate) slots: HashMap<String, Vec<Vec<f32>>>,
}

impl OptimizerState {
    pub(crate) fn new(optimizer: Optimizer) -> Self {
        Self { optimizer, slots: HashMap::new() }
    }

    /// The number of slots of each parameter.
    pub(crate) fn slots_each(&self) -> usize {
        self.optimizer.role().slots()
    }

    /// The model after one update. `step` counts from 1.
    pub(crate) fn update(
        &mut self,
        model: Model,
        gradients: &GradientBuffers,
        trainable: &mut Trainable,
        lr: f64,
        step: u64,
    ) -> Model {
        if let Some(adapters) = &mut trainable.adapters {
            self.update_adapters(adapters, gradients, lr, step);
        }
        let path = ParameterPath::default();
        let mut mapper = UpdateMapper { state: self, gradients, trainable, at: 0, lr, step, path };
        model.map(&mut mapper)
    }

    fn update_adapters(
        &mut self,
        adapters: &mut Adapters,
        gradients: &GradientBuffers,
        lr: f64,
        step: u64,
    ) {
        let rule = self.optimizer.role();
        for (name, adapter) in &mut adapters.by_name {
            let Some(gradient) = gradients.adapted.get(name) else { continue };
            let [down, up] = adapter.shapes;
            for (part, values, gradient, shape) in [
                (DOWN, &mut adapter.down, &gradient.down, down),
                (UP, &mut adapter.up, &gradient.up, up),
            ] {
                let slots = self.slots.entry(format!("{name}.{part}"));
                let zeros = || vec![vec![0.0; gradient.len()]; rule.slots()];
                rule.update(Update {
                    values,
                    gradient,
                    factor: gradients.factor as f32,
                    slots: slots.or_insert_with(zeros),
                    shape: &shape,
                    role: Role::Projection,
                    lr,
                    step,
                });
            }
        }
    }
}

struct UpdateMapper<'a> {
    state: &'a mut OptimizerState,
    gradients: &'a GradientBuffers,
    trainable: &'a Trainable,
    at: usize,
    lr: f64,
    step: u64,
    path: ParameterPath,
}

impl ModuleMapper for UpdateMapper<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let at = self.at;
        self.at += 1;
        let (name, gradient) = (&self.gradients.names[at], self.gradients.values[at].values());
        let part = self.gradients.parts[at].clone();
        if let Some(merged) = self.trainable.adapters.as_ref().and_then(|all| all.merged(name)) {
            return param.map(|tensor| {
                let (shape, device) = (tensor.shape(), tensor.device());
                Tensor::from_data(TensorData::new(merged, shape), &device).require_grad()
            });
        }
        if part.is_empty() || !self.trainable.is_updated(name) {
            return param;
        }
        let role = self.path.role();
        let OptimizerState { optimizer, slots } = &mut *self.state;
        let rule = optimizer.role();
        let slots = slots
            .entry(name.clone())
            .or_insert_with(|| vec![vec![0.0; gradient.len()]; rule.slots()]);
        let (lr, step) = (self.lr, self.step);
        let factor = self.gradients.factor as f32;
        param.map(|tensor| {
            let (shape, device) = (tensor.shape(), tensor.device());
            let mut values: Vec<f32> =
                tensor.into_data().try_into_vec().expect("parameters are f32");
            rule.update(Update {
                values: &mut values[part],
                gradient,
                factor,
                slots,
                shape: &shape,
                role,
                lr,
                step,
            });
            Tensor::from_data(TensorData::new(values, shape), &device).require_grad()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One parameter of a bowl `½ x²`, whose gradient is its value.
    pub(super) fn descend(rule: &dyn Rule, steps: u64, lr: f64, shape: &[usize]) -> Vec<f32> {
        let count = shape.iter().product();
        let mut values: Vec<f32> = (0..count).map(|i| 1.0 + (i % 7) as f32 / 3.0).collect();
        let mut slots = vec![vec![0.0; count]; rule.slots()];
        for step in 1..=steps {
            let gradient = values.clone();
            let role = if shape.len() == 2 { Role::Projection } else { Role::Gain };
            rule.update(Update {
                values: &mut values,
                gradient: &gradient,
                factor: 1.0,
                slots: &mut slots,
                shape,
                role,
                lr,
                step,
            });
        }
        values
    }

    #[test]
    fn every_optimizer_finds_the_bottom_of_a_bowl() {
        let optimizers = [
            (Optimizer::AdamW(AdamW::default()), 0.02, 400),
            (Optimizer::Adam(Adam::default()), 0.02, 400),
            (Optimizer::Sgd(Sgd::default()), 0.05, 400),
            (Optimizer::Muon(Muon::default()), 0.02, 800),
        ];
        for (optimizer, lr, steps) in optimizers {
            let values = descend(optimizer.role(), steps, lr, &[4, 6]);
            let far = values.iter().map(|v| v.abs()).fold(0.0, f32::max);
            assert!(far < 0.1, "{optimizer:?}: {far}");
        }
    }
}
