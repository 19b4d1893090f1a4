//! One case: settings, tensors, and what comes of them.

use std::collections::BTreeMap;

use serde_json::Value;
use whatwhere_random::{Fingerprint, Random};

use crate::tensors::Array;

/// A case of the kit.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name, which no other has.
    pub name: String,
    /// `attention`, or `embedding` for what is added to embeddings.
    pub kind: &'static str,
    /// Settings in words, `"@name"` for a tensor.
    pub settings: Value,
    /// Tensors by name.
    pub(crate) tensors: BTreeMap<String, Array>,
}

impl Case {
    pub(super) fn new(name: &str, kind: &'static str, settings: Value) -> Self {
        Self { name: name.into(), kind, settings, tensors: BTreeMap::new() }
    }

    /// Draws a tensor: the same numbers for the same case and name.
    pub(super) fn draw(&mut self, name: &str, shape: &[usize]) -> Vec<f32> {
        let key = Fingerprint::of(format!("{}/{name}", self.name).as_bytes());
        let values = Random::new(&[key]).signed(shape.iter().product());
        self.put(name, shape, values.clone());
        values
    }

    pub(super) fn put(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        self.tensors.insert(name.into(), Array { shape: shape.to_vec(), values });
    }

    /// The values of a tensor and its sizes; nothing if there is none of that name.
    pub fn tensor(&self, name: &str) -> Option<(&[f32], &[usize])> {
        self.tensors.get(name).map(|array| (&array.values[..], &array.shape[..]))
    }

    /// Names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}

/// Numbers of the reference as the files hold them.
pub(super) fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}
