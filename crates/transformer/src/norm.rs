//! Norms: what keeps the residual stream's scale.

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};
use whatwhere_attention::{Path, bridge::Operand};
use whatwhere_kernels::layer;

use crate::{ModelSettings, NormKind, fused};

/// `gain · x / √(mean x² + ε)`, or the same around the mean.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[width]`.
    pub gain: Param<Tensor<1>>,
    /// `[width]`.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    formula: NormFormula,
}

/// What a norm computes, its parameters aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormFormula {
    /// Whether the mean is subtracted.
    is_centered: bool,
    /// Added under the root.
    epsilon: f64,
}

impl NormFormula {
    pub(crate) fn new(settings: &ModelSettings) -> Self {
        Self { is_centered: settings.norm == NormKind::Layer, epsilon: settings.epsilon }
    }

    /// The norm on slices; `bias` is empty where there is none.
    pub(crate) fn of<'a>(&self, gain: &'a [f32], bias: &'a [f32]) -> layer::Norm<'a> {
        let bias = (!bias.is_empty()).then_some(bias);
        layer::Norm { is_centered: self.is_centered, epsilon: self.epsilon as f32, gain, bias }
    }
}

impl Norm {
    /// A norm of the residual stream that changes nothing but the scale.
    pub fn new(settings: &ModelSettings, device: &Device) -> Self {
        Self::of_width(settings, settings.width, device)
    }

    /// The same of so many channels.
    pub fn of_width(settings: &ModelSettings, width: usize, device: &Device) -> Self {
        let formula = NormFormula::new(settings);
        let has_bias = formula.is_centered && settings.norm_bias.unwrap_or(settings.bias);
        Self {
            gain: Param::from_tensor(Tensor::ones([width], device)),
            bias: has_bias.then(|| Param::from_tensor(Tensor::zeros([width], device))),
            formula,
        }
    }

    /// Gain and bias; nothing on another backend.
    pub(crate) fn operands(&self) -> Option<[Operand; 2]> {
        let gain = self.gain.val();
        let bias = match self.bias.as_ref().map(Param::val) {
            Some(bias) => Operand::new(bias)?,
            None => Operand::nothing(&gain.device())?,
        };
        Some([Operand::new(gain)?, bias])
    }

    /// `[batch, length, width]`.
    pub fn forward(&self, x: Tensor<3>, path: Path) -> Tensor<3> {
        if path != Path::Composed {
            let bias = self.bias.as_ref().map(Param::val);
            if let Some(out) = fused::norm(x.clone(), self.gain.val(), bias, self.formula) {
                return out;
            }
        }
        let x = self.share(x.clone(), x);
        match &self.bias {
            None => x,
            Some(bias) => x + bias.val().unsqueeze(),
        }
    }

    /// What a part of `x` contributes to the norm of `x`, given the statistics of the whole: the parts of `x` add up to
    /// [`Self::forward`] of it, but for the bias.
    pub fn share(&self, part: Tensor<3>, whole: Tensor<3>) -> Tensor<3> {
        let NormFormula { is_centered, epsilon } = self.formula;
        let center = |x: Tensor<3>| if is_centered { x.clone() - x.mean_dim(2) } else { x };
        let scale = (center(whole).powi_scalar(2).mean_dim(2) + epsilon).sqrt().recip();
        center(part) * scale * self.gain.val().unsqueeze()
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

    #[test]
    fn epsilon_is_the_settings_on_both_paths() {
        let device = Device::flex();
        let settings = ModelSettings { width: 4, epsilon: 3.0, ..Default::default() };
        let norm = Norm::new(&settings, &device);
        for path in [Path::Fused, Path::Composed] {
            let x = Tensor::<3>::from_data([[[1.0, -1.0, 1.0, -1.0]]], &device);
            let out: Vec<f32> = norm.forward(x, path).into_data().try_to_vec().unwrap();
            // 1 / √(1 + 3)
            assert_eq!(out, [0.5, -0.5, 0.5, -0.5], "{path:?}");
        }
    }
}
