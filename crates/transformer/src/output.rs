//! The way back to tokens: from hidden states to logits, and to the loss.

use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor},
};
use whatwhere_attention::{Path, projected::Project};
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
        let weight = (!settings.tied)
            .then(|| LinearConfig::new(from, to).with_bias(false).init(device).weight);
        let bias = settings.output_bias.then(|| Param::from_tensor(Tensor::zeros([to], device)));
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

    fn forward(&self, x: Tensor<3>, path: Path) -> Tensor<3> {
        let x = self.linear.project(x, path);
        self.norm.forward(activate(self.activation, x, None, path), path)
    }
}

impl Model {
    /// `[batch, length, vocabulary]` from hidden states.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.logits_by(hidden, Path::Auto)
    }

    pub(crate) fn logits_by(&self, hidden: Tensor<3>, path: Path) -> Tensor<3> {
        let states = self.before_logits(hidden, path);
        self.finish_logits(self.products(states, path))
    }

    /// What logits are made of: hidden states, transformed or projected where there is something between them.
    pub(crate) fn before_logits(&self, hidden: Tensor<3>, path: Path) -> Tensor<3> {
        match (&self.output_transform, &self.output_projection) {
            (Some(transform), _) => transform.forward(hidden, path),
            (None, Some(projection)) => projection.project(hidden, path),
            (None, None) => hidden,
        }
    }

    /// Products with every token's vector.
    fn products(&self, states: Tensor<3>, path: Path) -> Tensor<3> {
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

    /// The loss of `[rows, width]` hidden states as a tensor of one value, without ever holding all logits, and the figures
    /// behind it. Nothing on another backend than the CPU's.
    pub fn cross_entropy(
        &self,
        hidden: Tensor<2>,
        targets: Targets,
    ) -> Option<(Tensor<1>, LossSum)> {
        let states = self.before_logits(hidden.unsqueeze_dim(0), Path::Auto).squeeze_dim(0);
        let weight = self.output.weight.as_ref();
        let output = fused::Output {
            is_embedding: weight.is_none(),
            weight: weight.unwrap_or(&self.embedding.weight).val(),
            bias: self.output.bias.as_ref().map(Param::val),
            soft_cap: self.settings().output_soft_cap,
        };
        fused::cross_entropy(states, output, targets)
    }
}
