//! The feed-forward: each token by itself, through a wider layer and back.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor, activation},
};
use whatwhere_attention::{
    Path, Way,
    bridge::Operand,
    projected::{Project, operands},
};
use whatwhere_kernels::{Precision, layer};

use crate::{ModelSettings, fused, sublayer};

/// `down(activation(up(x)))`, or `down(activation(gate(x)) · up(x))`.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `[width, inner]`.
    pub up: Linear,
    /// `[width, inner]`, if there is a gate.
    pub gate: Option<Linear>,
    /// `[inner, width]`.
    pub down: Linear,
    #[module(skip)]
    activation: layer::Activation,
}

/// The linear layers of a feed-forward.
pub(crate) struct FeedForwardLinears<'a, P> {
    pub(crate) up: &'a P,
    pub(crate) gate: Option<&'a P>,
    pub(crate) down: &'a P,
}

impl FeedForward {
    /// Fresh weights.
    pub fn new(settings: &ModelSettings, device: &Device) -> Self {
        let (width, inner) = (settings.width, settings.feed_forward_width());
        let linear = |from, to| LinearConfig::new(from, to).with_bias(settings.bias).init(device);
        Self {
            up: linear(width, inner),
            gate: settings.is_gated().then(|| linear(width, inner)),
            down: linear(inner, width),
            activation: settings.activation.pointwise(),
        }
    }

    /// `[batch, length, width]`.
    pub fn forward(&self, x: Tensor<3>, way: impl Into<Way>) -> Tensor<3> {
        let Self { up, gate, down, .. } = self;
        self.forward_by(FeedForwardLinears { up, gate: gate.as_ref(), down }, x, way.into())
    }

    /// The same with other linear layers, such as int8 copies of its own.
    pub(crate) fn forward_by<P: Project>(
        &self,
        linears: FeedForwardLinears<P>,
        x: Tensor<3>,
        way: Way,
    ) -> Tensor<3> {
        let (up, gate) = match linears.gate {
            None => (linears.up.project(x, way), None),
            Some(gate) => {
                let [up, gate] = P::project_all([linears.up, gate], x, way);
                (up, Some(gate))
            }
        }; // [batch, length, inner]
        linears.down.project(self.activate(up, gate, way.path), way)
    }

    /// The same on slices, and its weights; nothing on another backend.
    pub(crate) fn projected(
        &self,
        precision: Precision,
    ) -> Option<(sublayer::FeedForward, Vec<Operand>)> {
        let [width, inner] = self.up.weight.val().dims();
        let mut weights: Vec<Option<Operand>> = operands(&self.up).into();
        match &self.gate {
            Some(gate) => weights.extend(operands(gate)),
            None => {
                let device = self.up.weight.val().device();
                weights.extend([Operand::nothing(&device), Operand::nothing(&device)]);
            }
        }
        weights.extend(operands(&self.down));
        let weights = weights.into_iter().collect::<Option<Vec<_>>>()?;
        let activation = self.activation;
        Some((sublayer::FeedForward { width, inner, activation, precision }, weights))
    }

    fn activate(&self, up: Tensor<3>, gate: Option<Tensor<3>>, path: Path) -> Tensor<3> {
        activate(self.activation, up, gate, path)
    }
}

/// The activation of `up`, or that of the gate times `up`.
pub(crate) fn activate(
    activation: layer::Activation,
    up: Tensor<3>,
    gate: Option<Tensor<3>>,
    path: Path,
) -> Tensor<3> {
    if path != Path::Composed
        && let Some(out) = fused::activate(activation, up.clone(), gate.clone())
    {
        return out;
    }
    let curve = |x: Tensor<3>| match activation {
        layer::Activation::Relu => activation::relu(x),
        layer::Activation::Gelu => activation::gelu(x),
        layer::Activation::GeluTanh => activation::gelu_approximate(x),
        layer::Activation::Silu => activation::silu(x),
    };
    match gate {
        None => curve(up),
        Some(gate) => curve(gate) * up,
    }
}
