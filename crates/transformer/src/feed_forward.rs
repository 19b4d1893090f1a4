//! The feed-forward: each token by itself, through a wider layer and back.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor, activation},
};
use whatwhere_attention::{
    Path,
    bridge::Operand,
    projected::{Project, operands},
};
use whatwhere_kernels::layer;

use crate::{Activation, ModelSettings, fused, sublayer};

/// `down(activation(up(x)))`, or `down(silu(gate(x)) · up(x))`.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `[width, inner]`.
    pub up: Linear,
    /// `[width, inner]`, for `swiglu` only.
    pub gate: Option<Linear>,
    /// `[inner, width]`.
    pub down: Linear,
    #[module(skip)]
    activation: Activation,
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
        let gated = settings.activation == Activation::Swiglu;
        Self {
            up: linear(width, inner),
            gate: gated.then(|| linear(width, inner)),
            down: linear(inner, width),
            activation: settings.activation,
        }
    }

    /// `[batch, length, width]`.
    pub fn forward(&self, x: Tensor<3>, path: Path) -> Tensor<3> {
        let Self { up, gate, down, .. } = self;
        self.forward_by(FeedForwardLinears { up, gate: gate.as_ref(), down }, x, path)
    }

    /// The same with other linear layers, such as int8 copies of its own.
    pub(crate) fn forward_by<P: Project>(
        &self,
        linears: FeedForwardLinears<P>,
        x: Tensor<3>,
        path: Path,
    ) -> Tensor<3> {
        let (up, gate) = match linears.gate {
            None => (linears.up.project(x, path), None),
            Some(gate) => {
                let [up, gate] = P::project_all([linears.up, gate], x, path);
                (up, Some(gate))
            }
        }; // [batch, length, inner]
        linears.down.project(self.activate(up, gate, path), path)
    }

    /// The same on slices, and its weights; nothing on another backend.
    pub(crate) fn projected(&self) -> Option<(sublayer::FeedForward, Vec<Operand>)> {
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
        let activation = self.kernel();
        let weights = weights.into_iter().collect::<Option<Vec<_>>>()?;
        Some((sublayer::FeedForward { width, inner, activation }, weights))
    }

    /// The kernels' part of its activation.
    pub(crate) fn kernel(&self) -> layer::Activation {
        self.activation.pointwise()
    }

    fn activate(&self, up: Tensor<3>, gate: Option<Tensor<3>>, path: Path) -> Tensor<3> {
        if path != Path::Composed
            && let Some(out) = fused::activate(self.activation, up.clone(), gate.clone())
        {
            return out;
        }
        match (gate, self.activation) {
            (Some(gate), _) => activation::silu(gate) * up,
            (None, Activation::Relu) => activation::relu(up),
            (None, Activation::GeluTanh) => activation::gelu_approximate(up),
            (None, _) => activation::gelu(up),
        }
    }
}
