//! Gradients of a model, by parameter.

use std::{collections::BTreeMap, ops::Range};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Gradients, Tensor},
};
use rayon::prelude::*;
use whatwhere_attention::bridge::Operand;
use whatwhere_kernels::layer::square_sum;
use whatwhere_transformer::{Model, ParameterPath};

use super::CHUNK;
use crate::finetune::{
    Trainable,
    lora::{AdapterGradient, Adapters},
};

/// Gradients of a model by name, in the order of its parameters, all times one factor.
#[derive(Debug)]
pub(crate) struct GradientBuffers {
    pub(crate) names: Vec<String>,
    /// Of each parameter the part below.
    pub(crate) values: Vec<Operand>,
    /// Which of a parameter's values these are the gradients of: all, or what a rank owns.
    pub(crate) parts: Vec<Range<usize>>,
    /// Of adapters, by the names of the matrices they adapt.
    pub(crate) adapted: BTreeMap<String, AdapterGradient>,
    pub(crate) factor: f64,
}

impl Default for GradientBuffers {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            values: Vec::new(),
            parts: Vec::new(),
            adapted: BTreeMap::new(),
            factor: 1.0,
        }
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

    /// Adds the gradients of other batches.
    pub(crate) fn merge(&mut self, more: Self) {
        self.values.iter_mut().zip(&more.values).for_each(|(sum, more)| sum.add(more));
    }

    /// Gradients of adapters in place of those of the matrices they adapt, where these are there.
    pub(crate) fn adapt(&mut self, adapters: &Adapters) {
        for ((name, value), part) in self.names.iter().zip(&mut self.values).zip(&mut self.parts) {
            if value.values().is_empty() {
                continue;
            }
            if let Some(gradient) = adapters.gradient(name, value.values()) {
                self.adapted.insert(name.clone(), gradient);
                *value = Operand::zeros(0);
                *part = 0..0;
            }
        }
    }

    /// Sums of squares, one for each chunk of a parameter.
    pub(crate) fn squares(&self) -> Vec<f64> {
        let each = self.values.iter().flat_map(|value| {
            value.values().par_chunks(CHUNK).map(square_sum).collect::<Vec<f64>>()
        });
        each.collect()
    }

    /// Sums of squares of both matrices of each adapter, in the order of parameters.
    pub(crate) fn adapted_squares(&self) -> Vec<f64> {
        let adapted = self.names.iter().filter_map(|name| self.adapted.get(name));
        adapted.flat_map(|of| [square_sum(&of.down), square_sum(&of.up)]).collect()
    }

    /// Multiplies all gradients.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.factor *= factor;
    }
}

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
        let name = self.path.name();
        let is_learned = value.is_require_grad() && self.trainable.needs_gradient(&name);
        let gradient = match value.grad_remove(&mut self.gradients) {
            _ if !is_learned => Operand::zeros(0),
            Some(gradient) => Operand::copied(gradient),
            // A parameter that no target reaches has no gradient.
            None => Operand::zeros(value.shape().num_elements()),
        };
        if self.first {
            self.into.names.push(name);
            self.into.parts.push(0..gradient.values().len());
            self.into.values.push(gradient);
        } else {
            self.into.values[self.at].add(&gradient);
        }
        self.at += 1;
    }
}
