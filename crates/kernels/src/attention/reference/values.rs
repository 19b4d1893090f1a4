//! Everything a call can learn, as f64.

use crate::attention::{Attention, Bias, BiasGradient, FeatureKind, Gradients, Inputs, Score};

/// The learnable values of a call, or their gradients: the fields of [`Gradients`], in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// The queries.
    pub q: Vec<f64>,
    /// The keys.
    pub k: Vec<f64>,
    /// The values.
    pub v: Vec<f64>,
    /// The additive score's weight.
    pub score: Vec<f64>,
    /// The query bias.
    pub query_bias: Vec<f64>,
    /// Each feature's δ.
    pub features: Vec<Vec<f64>>,
    /// Each bias.
    pub biases: Vec<BiasValues>,
    /// The relative values' table.
    pub relative_values: Vec<f64>,
    /// The focus centers.
    pub centers: Vec<f64>,
}

/// The learnable values of one bias, or their gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasValues {
    /// The slopes, the table or the dense values.
    pub table: Vec<f64>,
    /// A relative bias's query bias.
    pub query_bias: Vec<f64>,
}

impl Values {
    /// The values of a call; a dense bias is among them whether it is learned or not.
    pub(super) fn new(attention: &Attention, inputs: &Inputs) -> Self {
        Self {
            q: widen(inputs.q),
            k: widen(inputs.k),
            v: widen(inputs.v),
            score: match attention.score {
                Score::Additive { weight } => widen(weight),
                Score::Dot { .. } | Score::Cosine { .. } => Vec::new(),
            },
            query_bias: widen(attention.query_bias.unwrap_or_default()),
            features: attention
                .features
                .iter()
                .map(|feature| match feature.kind {
                    FeatureKind::Polar { delta, .. } => widen(delta.unwrap_or_default()),
                    FeatureKind::Rotary { .. } => Vec::new(),
                })
                .collect(),
            biases: attention.biases.iter().map(BiasValues::new).collect(),
            relative_values: widen(attention.relative_values.map_or(&[], |r| r.table)),
            centers: widen(attention.focus.map_or(&[], |focus| focus.centers)),
        }
    }

    /// Every slice with its name, in a fixed order, for tests that compare two sets of gradients.
    pub fn slices(&self) -> Vec<(String, &[f64])> {
        let single = [
            ("q", &self.q),
            ("k", &self.k),
            ("v", &self.v),
            ("score", &self.score),
            ("query_bias", &self.query_bias),
            ("relative_values", &self.relative_values),
            ("centers", &self.centers),
        ];
        let mut slices: Vec<(String, &[f64])> =
            single.into_iter().map(|(name, values)| (name.to_owned(), &values[..])).collect();
        for (i, delta) in self.features.iter().enumerate() {
            slices.push((format!("features[{i}]"), delta));
        }
        for (i, bias) in self.biases.iter().enumerate() {
            slices.push((format!("biases[{i}].table"), &bias.table));
            slices.push((format!("biases[{i}].query_bias"), &bias.query_bias));
        }
        slices
    }
}

impl BiasValues {
    fn new(bias: &Bias) -> Self {
        let (table, query_bias) = match *bias {
            Bias::Slopes { slopes } => (slopes, None),
            Bias::Buckets { table, .. } | Bias::Table { table, .. } => (table, None),
            Bias::Relative { vectors, query_bias, .. } => (vectors.table, query_bias),
            Bias::Dense { values, .. } => (values, None),
        };
        Self { table: widen(table), query_bias: widen(query_bias.unwrap_or_default()) }
    }
}

impl From<&Gradients> for Values {
    fn from(gradients: &Gradients) -> Self {
        let bias = |bias: &BiasGradient| BiasValues {
            table: widen(&bias.table),
            query_bias: widen(&bias.query_bias),
        };
        Self {
            q: widen(&gradients.q),
            k: widen(&gradients.k),
            v: widen(&gradients.v),
            score: widen(&gradients.score),
            query_bias: widen(&gradients.query_bias),
            features: gradients.features.iter().map(|delta| widen(delta)).collect(),
            biases: gradients.biases.iter().map(bias).collect(),
            relative_values: widen(&gradients.relative_values),
            centers: widen(&gradients.centers),
        }
    }
}

pub(super) fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}
