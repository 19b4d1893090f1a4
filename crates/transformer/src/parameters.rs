//! A model's parameters by name, to be saved, loaded and updated.

use std::{any::Any, collections::HashMap, ops::Range, sync::Arc};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Device, Tensor, TensorData},
};
use whatwhere_attention::bridge::{self, Mapped, Operand};
use whatwhere_kernels::layer::QuantizedLinear;

use crate::{Error, Model, ModelSettings};

/// What a parameter is: its first values, its weight decay and the rule that updates it follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The matrix of a linear layer, `[from, to]`.
    Projection,
    /// A projection whose result is added to the residual stream.
    ResidualProjection,
    /// From hidden states to the vocabulary, unless the embeddings do that.
    Output,
    /// From a pooled state to classes.
    Head,
    /// A vector for each token.
    Embedding,
    /// A norm's factor for each channel.
    Gain,
    /// Of a norm or a linear layer.
    Bias,
    /// What encodings, scores and patterns learn: tables by position or distance, slopes, temperatures.
    Table,
}

impl Role {
    /// Whether weight decay acts on it.
    pub fn decays(self) -> bool {
        matches!(self, Self::Projection | Self::ResidualProjection | Self::Output | Self::Head)
    }

    /// Whether it is a matrix between hidden states, as Muon is made for.
    pub fn is_hidden_matrix(self) -> bool {
        matches!(self, Self::Projection | Self::ResidualProjection)
    }
}

/// The role of a parameter by the field that holds its module, any if absent, and by its own field, each with the type
/// around it. The first row that fits counts; what fits none is a [`Role::Table`].
const ROLES: [(Option<&str>, &str, Role); 12] = [
    (None, "Output.weight", Role::Output),
    (None, "Output.bias", Role::Bias),
    (Some("Attention.output"), "Linear.weight", Role::ResidualProjection),
    (Some("FeedForward.down"), "Linear.weight", Role::ResidualProjection),
    (Some("Model.classifier"), "Linear.weight", Role::Head),
    (None, "Linear.weight", Role::Projection),
    (None, "Linear.bias", Role::Bias),
    (None, "Embedding.weight", Role::Embedding),
    (None, "Norm.gain", Role::Gain),
    (None, "Norm.bias", Role::Bias),
    (None, "QkNormLayer.gamma", Role::Gain),
    (None, "QkNormLayer.beta", Role::Bias),
];

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

/// One parameter's values in a file.
#[derive(Clone, Debug)]
pub struct MappedParameter {
    /// As [`Parameter::name`].
    pub name: String,
    /// As [`Parameter::shape`].
    pub shape: Vec<usize>,
    /// The file.
    pub file: Arc<Mapped>,
    /// Its bytes, little-endian f32.
    pub part: Range<usize>,
}

/// One parameter of a model, where it lies.
#[derive(Debug)]
pub struct ParameterView {
    /// As [`Parameter::name`].
    pub name: String,
    /// What it is.
    pub role: Role,
    /// As [`Parameter::shape`].
    pub shape: Vec<usize>,
    values: Operand,
}

impl ParameterView {
    /// Row-major.
    pub fn values(&self) -> &[f32] {
        self.values.values()
    }
}

/// `to` with the parameters of `from`, which both then hold.
pub(crate) fn share(from: &Model, to: Model) -> Result<Model, Error> {
    let mut taking = Taking::default();
    from.visit(&mut taking);
    let to = to.with_precision(from.precision());
    Ok(to.replace(taking.found)?.with_int8(from.int8().cloned()))
}

impl ModelSettings {
    /// The model with these parameters; no weights are drawn that they would replace. Refuses any that is missing, unknown
    /// or of another shape.
    pub fn build_with(&self, parameters: Vec<Parameter>, device: &Device) -> Result<Model, Error> {
        self.assemble(device)?.with_parameters(parameters)
    }

    /// [`Self::build_with`], where some parameters stay in the file they lie in.
    pub fn build_mapped(
        &self,
        mapped: Vec<MappedParameter>,
        parameters: Vec<Parameter>,
        device: &Device,
    ) -> Result<Model, Error> {
        let mapped = mapped.into_iter().map(|MappedParameter { name, shape, file, part }| {
            (name, Given { shape, values: Values::Mapped(file, part) })
        });
        let given = parameters.into_iter().map(Given::of).chain(mapped).collect();
        self.assemble(device)?.replace(given)
    }
}

impl Model {
    /// Every parameter where it lies, in a fixed order; no values are copied on the CPU.
    pub fn views(&self) -> Vec<ParameterView> {
        self.views_but(|_| false)
    }

    /// [`Self::views`], without some by name: those of int8 weights are made when they are asked for.
    pub fn views_but(&self, is_left_out: impl Fn(&str) -> bool) -> Vec<ParameterView> {
        let mut viewing =
            Viewing { path: ParameterPath::default(), found: Vec::new(), is_left_out };
        self.visit(&mut viewing);
        viewing.found
    }

    /// Copies of every parameter, in the same order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let copy = |view: ParameterView| Parameter {
            values: view.values().to_vec(),
            name: view.name,
            shape: view.shape,
        };
        self.views().into_iter().map(copy).collect()
    }

    /// The number of learned values.
    pub fn size(&self) -> usize {
        self.num_params()
    }

    /// The model with these parameters. Refuses any that is missing, unknown or of another shape.
    pub fn with_parameters(self, parameters: Vec<Parameter>) -> Result<Self, Error> {
        self.replace(parameters.into_iter().map(Given::of).collect())
    }

    /// The model with these parameters, some of which are made of int8 layers when they are asked for: name, layer, whether
    /// it is a table.
    pub(crate) fn with_int8_parameters(
        self,
        parameters: Vec<Parameter>,
        layers: Vec<(String, Arc<QuantizedLinear>, bool)>,
    ) -> Result<Self, Error> {
        let int8 = layers.into_iter().map(|(name, layer, is_table)| {
            let shape = match is_table {
                true => vec![layer.to(), layer.from()],
                false => vec![layer.from(), layer.to()],
            };
            (name, Given { shape, values: Values::Int8(layer, is_table) })
        });
        self.replace(parameters.into_iter().map(Given::of).chain(int8).collect())
    }

    fn replace(self, given: HashMap<String, Given>) -> Result<Self, Error> {
        let mut replacing = Replacing { path: ParameterPath::default(), given, wrong: None };
        let model = self.map(&mut replacing).with_int8(None);
        if let Some(error) = replacing.wrong {
            return Err(error);
        }
        if let Some(name) = replacing.given.into_keys().min() {
            let reason = "the model has none of this name; were its settings others?".into();
            return Err(Error::Parameter { name, reason });
        }
        Ok(model)
    }
}

/// The way to the parameter at hand, for visitors and mappers: the fields and indices that lead to it, each with the type
/// it belongs to.
#[derive(Clone, Debug, Default)]
pub struct ParameterPath(Vec<(String, String)>);

impl ParameterPath {
    /// What burn's `enter_module` is told.
    pub fn enter(&mut self, name: &str, container: &str) {
        let kind = container.split_once(':').map_or(container, |(_, kind)| kind);
        self.0.push((name.into(), kind.into()));
    }

    /// Back from the last [`Self::enter`].
    pub fn exit(&mut self) {
        self.0.pop();
    }

    /// Fields and indices, joined by dots.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.join(".")
    }

    /// What the parameter is.
    pub fn role(&self) -> Role {
        self.row().map_or(Role::Table, |row| ROLES[row].2)
    }

    /// Whether it lies in a field of a type.
    pub(crate) fn is_within(&self, kind: &str, field: &str) -> bool {
        self.0.iter().any(|(name, of)| name == field && of == kind)
    }

    /// The row of [`ROLES`] that fits.
    fn row(&self) -> Option<usize> {
        let [.., owner, field] = self.0.as_slice() else { return None };
        let [owner, field] = [owner, field].map(|(name, kind)| format!("{kind}.{name}"));
        ROLES.iter().position(|(by, of, _)| by.is_none_or(|by| by == owner) && *of == field)
    }
}

struct Viewing<F> {
    path: ParameterPath,
    found: Vec<ParameterView>,
    is_left_out: F,
}

impl<F: Fn(&str) -> bool> ModuleVisitor for Viewing<F> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if (self.is_left_out)(&self.path.name()) {
            return;
        }
        let tensor = param.val();
        let shape = tensor.dims().to_vec();
        let values = Operand::copied(tensor);
        let (name, role) = (self.path.name(), self.path.role());
        self.found.push(ParameterView { name, role, shape, values });
    }
}

/// What a parameter is to become.
struct Given {
    shape: Vec<usize>,
    values: Values,
}

impl Given {
    fn of(Parameter { name, shape, values }: Parameter) -> (String, Self) {
        let values = Values::Data(TensorData::new(values, shape.clone()));
        (name, Self { shape, values })
    }
}

enum Values {
    Data(TensorData),
    /// In a file.
    Mapped(Arc<Mapped>, Range<usize>),
    /// A parameter of the same number of dimensions, which may be still to be made.
    Shared(Box<dyn Any>),
    /// Made of a layer when it is asked for; whether it is a table.
    Int8(Arc<QuantizedLinear>, bool),
}

impl Values {
    /// What lies in a file as a tensor there, where the parameter is drawn on the CPU and nothing learns, or as a copy.
    fn mapped<const D: usize>(self, param: &Param<Tensor<D>>) -> Self {
        let Self::Mapped(file, part) = self else { return self };
        let shape: [usize; D] = param.lazy_shape().dims();
        let device = param.lazy_device();
        if device == Device::flex()
            && let Some(tensor) = bridge::mapped(&file, part.clone(), shape)
        {
            return Self::Shared(Box::new(Param::initialized(param.id, tensor)));
        }
        let value = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        let bytes = &file.bytes()[part];
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(value).collect();
        Self::Data(TensorData::new(values, shape))
    }
}

#[derive(Default)]
struct Taking {
    path: ParameterPath,
    found: HashMap<String, Given>,
}

impl ModuleVisitor for Taking {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let shape = param.lazy_shape().to_vec();
        let values = Values::Shared(Box::new(param.clone()));
        self.found.insert(self.path.name(), Given { shape, values });
    }
}

struct Replacing {
    path: ParameterPath,
    given: HashMap<String, Given>,
    wrong: Option<Error>,
}

impl ModuleMapper for Replacing {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let expected = param.lazy_shape().to_vec();
        match self.given.remove(&name) {
            Some(Given { shape, values }) if shape == expected => {
                match values.mapped::<D>(&param) {
                    // In place of a draw, which is not asked for. Tables say themselves whether they learn.
                    Values::Data(data)
                        if !param.is_initialized() && self.path.role() != Role::Table =>
                    {
                        let tensor = Tensor::from_data(data, &param.lazy_device());
                        let learns = tensor.is_autodiff();
                        Param::initialized(param.id, tensor.set_require_grad(learns))
                    }
                    Values::Data(data) => param.map(|tensor| {
                        Tensor::from_data(data, &tensor.device())
                            .set_require_grad(tensor.is_require_grad())
                    }),
                    Values::Shared(shared) => {
                        let shared = shared.downcast::<Param<Tensor<D>>>();
                        *shared.expect("as many dimensions as the shape")
                    }
                    Values::Mapped(..) => unreachable!("taken over above"),
                    Values::Int8(layer, is_table) => {
                        let (device, shape) = (param.lazy_device(), param.lazy_shape());
                        let made = move |device: &Device, _: bool| {
                            let values = layer.values(is_table).values();
                            Tensor::from_data(TensorData::new(values, shape), device)
                        };
                        Param::uninitialized(param.id, made, device, false, param.lazy_shape())
                    }
                }
            }
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

#[cfg(test)]
mod tests;
