//! A model's parameters by name, to be saved, loaded and updated.

use std::collections::HashMap;

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Tensor, TensorData},
};

use crate::{Error, Model};

/// One parameter's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Modules and field, joined by dots: `decoder.blocks.0.attention.query.weight`.
    pub name: String,
    /// Sizes; a projection is `[from, to]`.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<f32>,
}

impl Model {
    /// Every parameter, in a fixed order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut reading = Reading::default();
        self.visit(&mut reading);
        reading.found
    }

    /// The number of learned values.
    pub fn size(&self) -> usize {
        self.num_params()
    }

    /// The model with these parameters. Refuses any that is missing, unknown or of another shape.
    pub fn with_parameters(self, parameters: Vec<Parameter>) -> Result<Self, Error> {
        let given = parameters.into_iter().map(|p| (p.name.clone(), p)).collect();
        let mut writing = Writing { path: Path::default(), given, wrong: None };
        let model = self.map(&mut writing);
        if let Some(error) = writing.wrong {
            return Err(error);
        }
        if let Some(name) = writing.given.into_keys().min() {
            let reason = "the model has none of this name; were its settings others?".into();
            return Err(Error::Parameter { name, reason });
        }
        Ok(model)
    }
}

/// The name of the parameter at hand: the fields and indices that lead to it.
#[derive(Default)]
pub(crate) struct Path(Vec<String>);

impl Path {
    pub(crate) fn enter(&mut self, name: &str) {
        self.0.push(name.into());
    }

    pub(crate) fn exit(&mut self) {
        self.0.pop();
    }

    pub(crate) fn name(&self) -> String {
        self.0.join(".")
    }
}

#[derive(Default)]
struct Reading {
    path: Path,
    found: Vec<Parameter>,
}

impl ModuleVisitor for Reading {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let shape = tensor.dims().to_vec();
        let values = tensor.into_data().try_to_vec().expect("parameters are f32");
        self.found.push(Parameter { name: self.path.name(), shape, values });
    }
}

struct Writing {
    path: Path,
    given: HashMap<String, Parameter>,
    wrong: Option<Error>,
}

impl ModuleMapper for Writing {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let expected = param.lazy_shape().to_vec();
        match self.given.remove(&name) {
            Some(given) if given.shape == expected => param.map(|tensor| {
                let data = TensorData::new(given.values, tensor.shape());
                Tensor::from_data(data, &tensor.device()).set_require_grad(tensor.is_require_grad())
            }),
            found => {
                let reason = match found {
                    None => format!("missing; expected shape {expected:?}"),
                    Some(found) => {
                        format!("has shape {:?}, the settings ask for {expected:?}", found.shape)
                    }
                };
                self.wrong.get_or_insert(Error::Parameter { name, reason });
                param
            }
        }
    }
}
