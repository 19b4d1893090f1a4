//! Optimizers: from gradients to updates, over parameters by name.
//!
//! What a parameter is ([`Role`]) decides on weight decay and Muon: it acts on the matrices of projections only, not on norms,
//! biases, embeddings, or what encodings learn.

mod adam;
mod muon;
mod sgd;

use std::collections::{BTreeMap, HashMap};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Gradients, Tensor, TensorData},
};
use whatwhere_attention::bridge::Operand;
use whatwhere_kernels::layer::square_sum;
use whatwhere_settings::choice;
use whatwhere_transformer::{Model, ParameterPath, Role};

use crate::{
    Error,
    finetune::{
        Trainable,
        lora::{AdapterGradient, Adapters, DOWN, UP},
    },
};

pub use adam::{Adam, AdamW};
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
    /// Its sizes.
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
}

/// Gradients of a model by name, in the order of its parameters, all times one factor.
#[derive(Debug)]
pub(crate) struct GradientBuffers {
    names: Vec<String>,
    values: Vec<Operand>,
    /// Of adapters, by the names of the matrices they adapt.
    adapted: BTreeMap<String, AdapterGradient>,
    factor: f64,
}

impl Default for GradientBuffers {
    fn default() -> Self {
        Self { names: Vec::new(), values: Vec::new(), adapted: BTreeMap::new(), factor: 1.0 }
    }
}

impl GradientBuffers {
    /// Adds the gradients of one backward pass; those of what does not learn are not kept.
    pub(crate) fn add(&mut self, model: &Model, gradients: Gradients, trainable: &Trainable) {
        let first = self.names.is_empty();
        let path = ParameterPath::default();
        let mut visitor = GradientVisitor { gradients, path, at: 0, into: self, first, trainable };
        model.visit(&mut visitor);
    }

    /// Gradients of adapters in place of those of the matrices they adapt.
    pub(crate) fn adapt(&mut self, adapters: &Adapters) {
        for (name, value) in self.names.iter().zip(&mut self.values) {
            if let Some(gradient) = adapters.gradient(name, value.values()) {
                self.adapted.insert(name.clone(), gradient);
                *value = Operand::zeros(0);
            }
        }
    }

    /// The length of all gradients together.
    pub(crate) fn norm(&self) -> f64 {
        let adapted = self.adapted.values().flat_map(|gradient| [&gradient.down, &gradient.up]);
        let squares = self.values.iter().map(Operand::square_sum).sum::<f64>()
            + adapted.map(|values| square_sum(values)).sum::<f64>();
        squares.sqrt() * self.factor
    }

    /// Multiplies all gradients.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.factor *= factor;
    }
}

/// Values handled by one task.
const CHUNK: usize = 1 << 15;

struct GradientVisitor<'a> {
    gradients: Gradients,
    path: ParameterPath,
    at: usize,
    into: &'a mut GradientBuffers,
    first: bool,
    trainable: &'a Trainable,
}

impl ModuleVisitor for GradientVisitor<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        // A parameter that no target reaches has no gradient.
        let name = self.path.name();
        let gradient = match value.grad_remove(&mut self.gradients) {
            _ if !self.trainable.needs_gradient(&name) => Operand::zeros(0),
            Some(gradient) => Operand::copied(gradient),
            None => Operand::zeros(value.shape().num_elements()),
        };
        if self.first {
            self.into.names.push(name);
            self.into.values.push(gradient);
        } else {
            self.into.values[self.at].add(&gradient);
        }
        self.at += 1;
    }
}

/// An optimizer at work: its rule, and what it remembers of each parameter.
#[derive(Clone, Debug)]
pub(crate) struct OptimizerState {
    optimizer: Optimizer,
    /// By the parameter's name.
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
        let (name, gradient) =
            (&self.gradients.names[self.at], self.gradients.values[self.at].values());
        self.at += 1;
        if let Some(merged) = self.trainable.adapters.as_ref().and_then(|all| all.merged(name)) {
            return param.map(|tensor| {
                let (shape, device) = (tensor.shape(), tensor.device());
                Tensor::from_data(TensorData::new(merged, shape), &device).require_grad()
            });
        }
        if !self.trainable.is_updated(name) || !param.val().is_require_grad() {
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
                values: &mut values,
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
