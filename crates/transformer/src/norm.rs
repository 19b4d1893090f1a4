//! Norms: what keeps the stream's scale.

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};
use whatwhere_attention::{Path, bridge::Operand};

use crate::{ModelSettings, NormKind, fused};

/// Added under the root.
pub(crate) const EPSILON: f64 = 1e-5;

/// `gain · x / √(mean x² + ε)`, or the same around the mean.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[width]`.
    pub gain: Param<Tensor<1>>,
    /// `[width]`.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    centred: bool,
}

impl Norm {
    /// A norm that changes nothing but the scale.
    pub fn new(settings: &ModelSettings, device: &Device) -> Self {
        let centred = settings.norm == NormKind::Layer;
        let width = [settings.width];
        Self {
            gain: Param::from_tensor(Tensor::ones(width, device)),
            bias: (centred && settings.bias)
                .then(|| Param::from_tensor(Tensor::zeros(width, device))),
            centred,
        }
    }

    /// Gain and bias, and whether the mean is taken away; nothing on another backend.
    pub(crate) fn operands(&self) -> Option<([Operand; 2], bool)> {
        let gain = self.gain.val();
        let bias = match self.bias.as_ref().map(Param::val) {
            Some(bias) => Operand::new(bias)?,
            None => Operand::nothing(&gain.device())?,
        };
        Some(([Operand::new(gain)?, bias], self.centred))
    }

    /// `[batch, length, width]`.
    pub fn forward(&self, x: Tensor<3>, path: Path) -> Tensor<3> {
        if path != Path::Composed {
            let bias = self.bias.as_ref().map(Param::val);
            if let Some(out) = fused::norm(x.clone(), self.gain.val(), bias, self.centred) {
                return out;
            }
        }
        let x = if self.centred { x.clone() - x.mean_dim(2) } else { x };
        let scale = (x.clone().powi_scalar(2).mean_dim(2) + EPSILON).sqrt().recip();
        let x = x * scale * self.gain.val().unsqueeze();
        match &self.bias {
            None => x,
            Some(bias) => x + bias.val().unsqueeze(),
        }
    }

    /// What a part of `x` contributes to the norm of `x`, given the statistics of the whole: the parts of `x` add up to
    /// [`Self::forward`] of it, but for the bias.
    pub fn share(&self, part: Tensor<3>, whole: Tensor<3>) -> Tensor<3> {
        let centre = |x: Tensor<3>| if self.centred { x.clone() - x.mean_dim(2) } else { x };
        let scale = (centre(whole).powi_scalar(2).mean_dim(2) + EPSILON).sqrt().recip();
        centre(part) * scale * self.gain.val().unsqueeze()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;

    #[test]
    fn shares_of_parts_add_up_to_the_norm() {
        let device = Device::flex();
        for kind in [NormKind::Rms, NormKind::Layer] {
            let norm =
                Norm::new(&ModelSettings { width: 8, norm: kind, ..Default::default() }, &device);
            let part = || Tensor::random([2, 3, 8], Distribution::Normal(0.5, 2.0), &device);
            let (a, b) = (part(), part());
            let whole = a.clone() + b.clone();
            let sum = norm.share(a, whole.clone()) + norm.share(b, whole.clone());
            let off = (sum - norm.forward(whole, Path::Composed)).abs().max();
            assert!(off.into_scalar::<f32>() < 1e-5, "{kind:?}");
        }
    }
}
