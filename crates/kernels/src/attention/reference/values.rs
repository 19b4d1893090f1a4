//! Everything a call can learn, as f64.

use crate::attention::{Attention, Call, Gradients, Inputs};

/// The learnable values of a call, or their gradients: the fields of [`Gradients`], in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// The queries.
    pub q: Vec<f64>,
    /// The keys.
    pub k: Vec<f64>,
    /// The values.
    pub v: Vec<f64>,
    /// The call over them.
    pub learned: Call<Vec<f64>, ()>,
}

impl Values {
    /// The values of a call; a dense bias is among them whether it is learned or not.
    pub(super) fn new(attention: &Attention, inputs: &Inputs) -> Self {
        let [q, k, v] = [inputs.q, inputs.k, inputs.v].map(widen);
        Self { q, k, v, learned: attention.map((), |values| widen(values)) }
    }

    /// Every slice with its name, in a fixed order, for tests that compare two sets of gradients.
    pub fn slices(&self) -> Vec<(String, &[f64])> {
        let inputs = [("q", &self.q), ("k", &self.k), ("v", &self.v)];
        let mut slices: Vec<(String, &[f64])> =
            inputs.into_iter().map(|(name, values)| (name.to_owned(), &values[..])).collect();
        self.learned.map_named((), |name, values| slices.push((name.to_string(), values)));
        slices
    }
}

impl From<&Gradients> for Values {
    fn from(gradients: &Gradients) -> Self {
        let [q, k, v] = [&gradients.q, &gradients.k, &gradients.v].map(|values| widen(values));
        Self { q, k, v, learned: gradients.learned.map((), |values| widen(values)) }
    }
}

pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}
