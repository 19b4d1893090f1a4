//! The way back to tokens: from hidden states to logits, and to the loss.

use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor},
};
use rayon::prelude::*;
use whatwhere_attention::{Path, Way, projected::Project};
use whatwhere_kernels::layer::{self, LossSum};

use crate::{
    Model, ModelSettings, Norm,
    feed_forward::activate,
    fused::{self, Targets},
};

/// What logits have of their own.
#[derive(Module, Debug)]
pub struct Output {
    /// `[channels, vocabulary]`, unless logits share the embeddings.
    pub weight: Option<Param<Tensor<2>>>,
    /// `[vocabulary]`, if any.
    pub bias: Option<Param<Tensor<1>>>,
}

/// A linear layer, the activation and a norm before the logits.
#[derive(Module, Debug)]
pub struct OutputTransform {
    /// `[width, channels]`, with a bias.
    pub linear: Linear,
    /// `[channels]`.
    pub norm: Norm,
    #[module(skip)]
    activation: layer::Activation,
}

impl Output {
    pub(crate) fn new(settings: &ModelSettings, device: &Device) -> Self {
        let (from, to) = (settings.output_channels(), settings.vocabulary);
        let is_used = settings.classes == 0;
        let weight = (!settings.tied && is_used)
            .then(|| LinearConfig::new(from, to).with_bias(false).init(device).weight);
        let bias = (settings.output_bias && is_used)
            .then(|| Param::from_tensor(Tensor::zeros([to], device)));
        Self { weight, bias }
    }

    /// Its weight as a linear layer, unless logits share the embeddings.
    pub(crate) fn linear(&self) -> Option<Linear> {
        self.weight.clone().map(|weight| Linear { weight, bias: None })
    }
}

impl OutputTransform {
    pub(crate) fn new(settings: &ModelSettings, device: &Device) -> Self {
        let channels = settings.output_channels();
        Self {
            linear: LinearConfig::new(settings.width, channels).init(device),
            norm: Norm::of_width(settings, channels, device),
            activation: settings.activation.pointwise(),
        }
    }

    fn forward(&self, x: Tensor<3>, way: Way) -> Tensor<3> {
        let x = self.linear.project(x, way);
        let path = way.path;
        self.norm.forward(activate(self.activation, x, None, path), path)
    }
}

impl Model {
    /// `[batch, length, vocabulary]` from hidden states.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.logits_by(hidden, Path::Auto)
    }

    pub(crate) fn logits_by(&self, hidden: Tensor<3>, path: Path) -> Tensor<3> {
        let states = self.before_logits(hidden, path.into());
        self.finish_logits(self.products(states, path))
    }

    /// What logits are made of: hidden states, transformed or projected where there is something between them.
    pub(crate) fn before_logits(&self, hidden: Tensor<3>, way: Way) -> Tensor<3> {
        match (&self.output_transform, &self.output_projection) {
            (Some(transform), _) => transform.forward(hidden, way),
            (None, Some(projection)) => projection.project(hidden, way),
            (None, None) => hidden,
        }
    }

    /// Products with every token's vector.
    fn products(&self, states: Tensor<3>, path: Path) -> Tensor<3> {
        if let Some(int8) = self.int8().filter(|_| path != Path::Composed) {
            return int8.output.project(states, path);
        }
        if let Some(output) = self.output.linear() {
            return output.project(states, path);
        }
        let table = self.embedding.weight.val();
        if path != Path::Composed
            && let Some(logits) = fused::logits(states.clone(), table.clone())
        {
            return logits;
        }
        burn::tensor::module::linear(states, table.transpose(), None)
    }

    /// The bias and the soft cap of logits, where there are any.
    pub(crate) fn finish_logits(&self, mut logits: Tensor<3>) -> Tensor<3> {
        if let Some(bias) = &self.output.bias {
            logits = logits + bias.val().unsqueeze();
        }
        match self.settings().output_soft_cap {
            None => logits,
            Some(cap) => (logits / cap).tanh() * cap,
        }
    }

    /// The loss of `[rows, width]` hidden states, or of pooled ones where classes are told, as a tensor of one value, without ever
    /// holding all logits, and the figures behind it. Nothing on another backend than the CPU's.
    pub fn cross_entropy(
        &self,
        hidden: Tensor<2>,
        targets: Targets,
    ) -> Option<(Tensor<1>, LossSum)> {
        if let Some(classifier) = &self.classifier {
            let output = fused::Output::of_linear(classifier);
            return fused::cross_entropy(hidden, output, targets, self.precision());
        }
        let states = self.before_logits(hidden.unsqueeze_dim(0), self.way(Path::Auto));
        if self.is_int8() {
            return Some(self.int8_cross_entropy(states, targets));
        }
        let states = states.squeeze_dim(0);
        let weight = self.output.weight.as_ref();
        let output = fused::Output {
            is_embedding: weight.is_none(),
            weight: weight.unwrap_or(&self.embedding.weight).val(),
            bias: self.output.bias.as_ref().map(Param::val),
            soft_cap: self.settings().output_soft_cap,
        };
        fused::cross_entropy(states, output, targets, self.precision())
    }

    /// The same of `[1, rows, channels]` states with int8 weights, whose logits are held for some rows at a time; it has no
    /// gradient.
    fn int8_cross_entropy(&self, states: Tensor<3>, targets: Targets) -> (Tensor<1>, LossSum) {
        /// Rows whose logits are held.
        const ROWS: usize = 128;
        let [_, rows, _] = states.dims();
        let device = states.device();
        let mut sum = LossSum { nats: 0.0, correct: 0 };
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            let logits = self.products(states.clone().narrow(1, first, count), Path::Auto);
            let logits = self.finish_logits(logits);
            let vocabulary = logits.dims()[2];
            let logits: Vec<f32> = logits.into_data().try_into_vec().expect("logits are f32");
            let losses: Vec<(f64, bool)> = logits
                .par_chunks(vocabulary)
                .zip(&targets.tokens[first..first + count])
                .map(|(logits, target)| row_loss(logits, *target, targets.smoothing))
                .collect();
            for (row, (loss, is_correct)) in losses.into_iter().enumerate() {
                let weight = targets.weights.map_or(1.0, |weights| f64::from(weights[first + row]));
                sum.nats += weight * loss;
                sum.correct += u64::from(is_correct);
            }
        }
        (Tensor::from_data([sum.nats as f32], &device), sum)
    }
}

/// The loss of one row's logits, in nats, and whether the target is the likeliest token.
fn row_loss(logits: &[f32], target: u32, smoothing: f32) -> (f64, bool) {
    let target = logits[target as usize];
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - peak).exp()).sum();
    let log_sum = f64::from(peak) + sum.ln();
    let mut loss = log_sum - f64::from(target);
    if smoothing > 0.0 {
        let mean = logits.iter().map(|logit| f64::from(*logit)).sum::<f64>() / logits.len() as f64;
        loss += f64::from(smoothing) * (log_sum - mean - loss);
    }
    (loss, target == peak)
}
