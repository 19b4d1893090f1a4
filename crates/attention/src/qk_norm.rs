//! QK-norm: queries and keys are normalized before they are compared, so that scores cannot grow without bound.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Over what queries and keys are normalized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QkNorm {
    /// They are not.
    #[default]
    None,
    /// Each head by itself, with one gain for all heads (Qwen 3, Phi).
    Head,
    /// Each head by itself, with a gain of its own (StableLM 2 12B, Cohere).
    EachHead,
    /// All heads together, with a gain for every channel (OLMo 2).
    All,
}

/// What a norm of queries and keys takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QkNormKind {
    /// `gamma · x / √(mean x² + ε)`.
    #[default]
    Rms,
    /// `gamma · (x − mean) / √(variance + ε)`, and a bias where projections have one.
    Layer,
}

impl From<bool> for QkNorm {
    fn from(is_normed: bool) -> Self {
        if is_normed { Self::Head } else { Self::None }
    }
}

#[cfg(feature = "burn")]
pub use layer::QkNormLayer;
#[cfg(feature = "burn")]
pub(crate) use layer::normed;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        tensor::{Device, Tensor},
    };

    use super::{QkNorm, QkNormKind};
    use crate::{AttentionBias, AttentionSettings};

    /// The norm of queries or of keys.
    #[derive(Module, Debug)]
    pub struct QkNormLayer {
        /// `[head_dim]`, or `[heads · head_dim]` where every head or channel has its own.
        pub gamma: Param<Tensor<1>>,
        /// As long, if any.
        pub beta: Option<Param<Tensor<1>>>,
        /// Channels normalized together.
        #[module(skip)]
        together: usize,
        #[module(skip)]
        is_centered: bool,
        #[module(skip)]
        epsilon: f64,
    }

    impl QkNormLayer {
        /// Of so many heads; nothing if there is none.
        pub(crate) fn new(
            settings: &AttentionSettings,
            heads: usize,
            head_dim: usize,
            device: &Device,
        ) -> Option<Self> {
            let (together, gains) = match settings.qk_norm {
                QkNorm::None => return None,
                QkNorm::Head => (head_dim, head_dim),
                QkNorm::EachHead => (head_dim, heads * head_dim),
                QkNorm::All => (heads * head_dim, heads * head_dim),
            };
            let is_centered = settings.qk_norm_kind == QkNormKind::Layer;
            let has_bias = is_centered && settings.bias != AttentionBias::None;
            Some(Self {
                gamma: Param::from_tensor(Tensor::ones([gains], device)),
                beta: has_bias.then(|| Param::from_tensor(Tensor::zeros([gains], device))),
                together,
                is_centered,
                epsilon: settings.epsilon,
            })
        }

        /// Of `[batch, length, heads · head_dim]`.
        pub(crate) fn forward(&self, x: Tensor<3>) -> Tensor<3> {
            let shape = x.dims();
            let x = self.parted(x);
            let normed = self.share(x.clone(), x);
            let normed = match &self.beta {
                None => normed,
                Some(beta) => normed + self.by_channel(beta.val()),
            };
            normed.reshape(shape)
        }

        /// What a part of `x` contributes to the norm of `x`, but for the bias.
        pub(crate) fn part(&self, part: Tensor<3>, whole: Tensor<3>) -> Tensor<3> {
            let shape = part.dims();
            self.share(self.parted(part), self.parted(whole)).reshape(shape)
        }

        fn share(&self, part: Tensor<4>, whole: Tensor<4>) -> Tensor<4> {
            let center =
                |x: Tensor<4>| if self.is_centered { x.clone() - x.mean_dim(3) } else { x };
            let scale = (center(whole).square().mean_dim(3) + self.epsilon).sqrt();
            center(part) / scale * self.by_channel(self.gamma.val())
        }

        /// `[batch, length, parts, together]`.
        fn parted(&self, x: Tensor<3>) -> Tensor<4> {
            let [batch, length, channels] = x.dims();
            x.reshape([batch, length, channels / self.together, self.together])
        }

        /// A value for each channel, or for each of one part.
        fn by_channel(&self, values: Tensor<1>) -> Tensor<4> {
            let parts = values.dims()[0] / self.together;
            values.reshape([1, 1, parts, self.together])
        }
    }

    /// `x` through a norm, if there is one.
    pub(crate) fn normed(x: Tensor<3>, norm: Option<&QkNormLayer>) -> Tensor<3> {
        match norm {
            None => x,
            Some(norm) => norm.forward(x),
        }
    }
}
