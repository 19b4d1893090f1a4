//! A graph of ONNX operators under construction. The same operator on the same inputs is one node, so layers that hide, turn
//! or bias alike share the nodes that say so.

use std::collections::{BTreeSet, HashMap};

use whatwhere_transformer::ParameterView;

use super::proto::Message;
use crate::{Error, error::Result};

/// The version of the standard operators: Gelu came with it.
pub(super) const OPSET: i64 = 20;

/// Types of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Float = 1,
    Int = 7,
    Bool = 9,
    Double = 11,
}

/// An attribute of an operator.
#[derive(Clone, Debug)]
pub(super) enum Attribute {
    Int(i64),
    Float(f32),
    Text(&'static str),
    Ints(Vec<i64>),
}

/// The name of a value.
pub(super) type Value = String;

/// Where the numbers of an initializer are.
#[derive(Debug)]
pub(super) enum Data<'a> {
    /// A parameter.
    View(&'a [f32]),
    Own(Vec<u8>),
}

/// A constant of the graph.
#[derive(Debug)]
pub(super) struct Initializer<'a> {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) shape: Vec<usize>,
    pub(super) data: Data<'a>,
}

/// An input or output: name, type, and sizes by name or number.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) sizes: Vec<Size>,
}

/// A size of a port.
#[derive(Clone, Debug)]
pub(super) enum Size {
    Named(&'static str),
    Of(usize),
}

/// A graph under construction.
pub(super) struct Graph<'a> {
    parameters: HashMap<&'a str, &'a ParameterView>,
    pub(super) nodes: Vec<Message<'a>>,
    pub(super) initializers: Vec<Initializer<'a>>,
    known: HashMap<String, Value>,
    taken: BTreeSet<String>,
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(views: &'a [ParameterView]) -> Self {
        Self {
            parameters: views.iter().map(|view| (view.name.as_str(), view)).collect(),
            nodes: Vec::new(),
            initializers: Vec::new(),
            known: HashMap::new(),
            taken: BTreeSet::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    pub(super) fn input(&mut self, name: impl Into<String>, kind: Kind, sizes: &[Size]) -> Value {
        let name = name.into();
        self.inputs.push(Port { name: name.clone(), kind, sizes: sizes.to_vec() });
        name
    }

    /// Gives a value the name of an output.
    pub(super) fn output(&mut self, name: &str, value: &Value, kind: Kind, sizes: &[Size]) {
        let node = Message::default().bytes(1, value).bytes(2, name).bytes(4, "Identity");
        self.nodes.push(node);
        self.outputs.push(Port { name: name.into(), kind, sizes: sizes.to_vec() });
    }

    /// Whether there is a parameter of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    /// A parameter by its name.
    pub(super) fn parameter(&mut self, name: &str) -> Result<Value> {
        let view = self.parameters.get(name).copied().ok_or_else(|| {
            Error::Refused(format!(
                "{name}: the model has no such parameter, and its settings ask for it"
            ))
        })?;
        if self.taken.insert(name.into()) {
            self.initializers.push(Initializer {
                name: name.into(),
                kind: Kind::Float,
                shape: view.shape.clone(),
                data: Data::View(view.values()),
            });
        }
        Ok(name.into())
    }

    /// The values of a parameter, for what is computed from them here.
    pub(super) fn values(&self, name: &str) -> Result<(&'a [f32], &'a [usize])> {
        let view = self.parameters.get(name).copied();
        let view =
            view.ok_or_else(|| Error::Refused(format!("{name}: the model has no such parameter")))?;
        Ok((view.values(), &view.shape))
    }

    /// The one parameter whose name begins and ends so.
    pub(super) fn within(&mut self, beginning: &str, end: &str) -> Result<Value> {
        let name = self.name_within(beginning, end)?;
        self.parameter(&name)
    }

    /// The name of that parameter.
    pub(super) fn name_within(&self, beginning: &str, end: &str) -> Result<String> {
        let is = |name: &&&str| name.starts_with(beginning) && name.ends_with(end);
        let found = self.parameters.keys().find(is).map(|name| (*name).to_owned());
        found.ok_or_else(|| {
            Error::Refused(format!("{beginning}…{end}: the model has no such parameter"))
        })
    }

    fn constant(&mut self, kind: Kind, shape: &[usize], bytes: Vec<u8>) -> Value {
        let key = format!("constant {kind:?} {shape:?} {bytes:?}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = format!("constant_{}", self.initializers.len());
        let data = Data::Own(bytes);
        self.initializers.push(Initializer {
            name: name.clone(),
            kind,
            shape: shape.to_vec(),
            data,
        });
        self.known.insert(key, name.clone());
        name
    }

    /// Numbers of 32 bits.
    pub(super) fn floats(&mut self, values: &[f32], shape: &[usize]) -> Value {
        self.constant(Kind::Float, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// One number of 32 bits.
    pub(super) fn float(&mut self, value: f32) -> Value {
        self.floats(&[value], &[])
    }

    /// Numbers of 64 bits.
    pub(super) fn doubles(&mut self, values: &[f64], shape: &[usize]) -> Value {
        self.constant(Kind::Double, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Whole numbers in a row.
    pub(super) fn ints(&mut self, values: &[i64]) -> Value {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(Kind::Int, &[values.len()], bytes)
    }

    /// One whole number.
    pub(super) fn int(&mut self, value: i64) -> Value {
        self.constant(Kind::Int, &[], value.to_le_bytes().to_vec())
    }

    /// Yes and no.
    pub(super) fn flags(&mut self, values: &[bool], shape: &[usize]) -> Value {
        self.constant(Kind::Bool, shape, values.iter().map(|v| u8::from(*v)).collect())
    }

    /// An operator.
    pub(super) fn op(&mut self, kind: &str, inputs: &[&Value]) -> Value {
        self.op_with(kind, inputs, &[])
    }

    /// An operator with attributes.
    pub(super) fn op_with(
        &mut self,
        kind: &str,
        inputs: &[&Value],
        attributes: &[(&str, Attribute)],
    ) -> Value {
        let key = format!("{kind} {inputs:?} {attributes:?}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = format!("{kind}_{}", self.nodes.len());
        let mut node = inputs.iter().fold(Message::default(), |node, input| node.bytes(1, input));
        node = node.bytes(2, &name).bytes(3, &name).bytes(4, kind);
        for (name, value) in attributes {
            let attribute = Message::default().bytes(1, name);
            let attribute = match value {
                Attribute::Int(value) => attribute.int(3, *value).int(20, 2),
                Attribute::Float(value) => attribute.float(2, *value).int(20, 1),
                Attribute::Text(value) => attribute.bytes(4, value).int(20, 3),
                Attribute::Ints(values) => {
                    values.iter().fold(attribute, |a, value| a.int(8, *value)).int(20, 7)
                }
            };
            node = node.message(5, attribute);
        }
        self.nodes.push(node);
        self.known.insert(key, name.clone());
        name
    }

    pub(super) fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.ints(shape);
        self.op("Reshape", &[x, &shape])
    }

    pub(super) fn transpose(&mut self, x: &Value, order: &[i64]) -> Value {
        self.op_with("Transpose", &[x], &[("perm", Attribute::Ints(order.to_vec()))])
    }

    pub(super) fn unsqueeze(&mut self, x: &Value, axes: &[i64]) -> Value {
        let axes = self.ints(axes);
        self.op("Unsqueeze", &[x, &axes])
    }

    pub(super) fn concat(&mut self, parts: &[Value], axis: i64) -> Value {
        match parts {
            [one] => one.clone(),
            _ => {
                let inputs: Vec<&Value> = parts.iter().collect();
                self.op_with("Concat", &inputs, &[("axis", Attribute::Int(axis))])
            }
        }
    }

    /// `from..to` along an axis.
    pub(super) fn slice(&mut self, x: &Value, axis: i64, from: usize, to: usize) -> Value {
        let [from, to, axis] = [from as i64, to as i64, axis].map(|value| self.ints(&[value]));
        self.op("Slice", &[x, &from, &to, &axis])
    }

    pub(super) fn cast(&mut self, x: &Value, kind: Kind) -> Value {
        self.op_with("Cast", &[x], &[("to", Attribute::Int(kind as i64))])
    }

    pub(super) fn scaled(&mut self, x: &Value, factor: f32) -> Value {
        if factor == 1.0 {
            return x.clone();
        }
        let factor = self.float(factor);
        self.op("Mul", &[x, &factor])
    }

    /// A size of a value, as one number.
    pub(super) fn size(&mut self, x: &Value, axis: i64) -> Value {
        let at = [("start", Attribute::Int(axis)), ("end", Attribute::Int(axis + 1))];
        let size = self.op_with("Shape", &[x], &at);
        let first = self.ints(&[0]);
        self.op("Squeeze", &[&size, &first])
    }

    /// The sum over the last axis, or its mean, which stays as one.
    pub(super) fn reduce(&mut self, kind: &str, x: &Value) -> Value {
        let last = self.ints(&[-1]);
        self.op_with(kind, &[x, &last], &[("keepdims", Attribute::Int(1))])
    }

    /// A linear layer, with its bias if it has one.
    pub(super) fn linear(&mut self, x: &Value, name: &str) -> Result<Value> {
        let weight = self.parameter(&format!("{name}.weight"))?;
        let product = self.op("MatMul", &[x, &weight]);
        let bias = format!("{name}.bias");
        if !self.has(&bias) {
            return Ok(product);
        }
        let bias = self.parameter(&bias)?;
        Ok(self.op("Add", &[&product, &bias]))
    }
}
