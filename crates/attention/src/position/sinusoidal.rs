use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::PositionSettings;
use crate::{Error, heads::Heads};

/// Sinusoidal: waves of geometric length added to embeddings, `sin(position/base^{2i/width})` and the cosine beside it.
/// Vaswani et al. 2017, <https://arxiv.org/abs/1706.03762>, with embeddings times √width. No parameters, any length, but poor
/// beyond the trained one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sinusoidal {
    /// Ratio of the longest to the shortest wave; default 10000.
    pub base: f64,
    /// Order of the channels; default `interleaved`.
    pub layout: SinusoidalLayout,
    /// Position of the first token, 2 in M2M-100; default 0.
    pub first: usize,
}

/// Where sines and cosines stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SinusoidalLayout {
    /// Sine and cosine of one wave side by side, as in the paper.
    #[default]
    Interleaved,
    /// All sines, then all cosines (Transformer-XL, Marian).
    Concatenated,
    /// The same, with waves up to the base itself: `base^{i/(width/2 − 1)}` (tensor2tensor, fairseq, M2M-100, Whisper).
    Tensor2tensor,
}

impl Default for Sinusoidal {
    fn default() -> Self {
        Self { base: 10_000.0, layout: SinusoidalLayout::default(), first: 0 }
    }
}

impl Sinusoidal {
    /// The value of one channel at one position, which may be negative.
    pub fn value(&self, position: f64, channel: usize, width: usize) -> f64 {
        let half = width / 2;
        let (wave, is_sine) = match self.layout {
            SinusoidalLayout::Interleaved => (channel / 2, channel.is_multiple_of(2)),
            SinusoidalLayout::Concatenated | SinusoidalLayout::Tensor2tensor => {
                (channel % half, channel < half)
            }
        };
        let power = match self.layout {
            SinusoidalLayout::Tensor2tensor => wave as f64 / (half - 1).max(1) as f64,
            SinusoidalLayout::Interleaved | SinusoidalLayout::Concatenated => {
                2.0 * wave as f64 / width as f64
            }
        };
        let angle = position * self.base.powf(-power);
        if is_sine { angle.sin() } else { angle.cos() }
    }
}

impl PositionSettings for Sinusoidal {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        if !heads.width.is_multiple_of(2) {
            let reason = "sinusoidal needs an even width, a sine and a cosine for each wave";
            return Err(Error::setting("width", heads.width, reason));
        }
        if self.base > 1.0 {
            Ok(())
        } else {
            Err(Error::setting("position.base", self.base, "the base is above 1"))
        }
    }

    fn is_relative(&self) -> bool {
        false
    }

    fn embeds(&self) -> bool {
        true
    }

    // §3.4 of the paper: waves have a deviation of 0.7, in which embeddings that start small would drown.
    fn scales_embeddings(&self) -> bool {
        true
    }
}

#[cfg(feature = "burn")]
pub use layer::SinusoidalLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        tensor::{Device, Tensor, TensorData},
    };

    use super::Sinusoidal;
    use crate::{Error, heads::Heads, position::PositionLayer};

    /// Sines and cosines at work.
    #[derive(Module, Debug)]
    pub struct SinusoidalLayer {
        #[module(skip)]
        settings: Sinusoidal,
    }

    impl SinusoidalLayer {
        pub(crate) fn new(settings: &Sinusoidal, _heads: &Heads, _device: &Device) -> Self {
            Self { settings: *settings }
        }
    }

    impl PositionLayer for SinusoidalLayer {
        fn embed(&self, x: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
            let [_, length, width] = x.dims();
            let first = first + self.settings.first;
            let table = self.settings.table(first as isize, length, width, &x.device());
            Ok(x + table.unsqueeze::<3>())
        }
    }

    impl Sinusoidal {
        /// Rows for consecutive positions, `[count, width]`.
        pub fn table(
            &self,
            first: isize,
            count: usize,
            width: usize,
            device: &Device,
        ) -> Tensor<2> {
            let values: Vec<f32> = (0..count * width)
                .map(|i| self.value((first + (i / width) as isize) as f64, i % width, width) as f32)
                .collect();
            Tensor::from_data(TensorData::new(values, [count, width]), device)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_paper() {
        let paper = Sinusoidal::default();
        let want = [0.141120008, -0.989992497, 0.245085415, -0.969501490];
        for (channel, want) in want.into_iter().enumerate() {
            assert!((paper.value(3.0, channel, 512) - want).abs() < 1e-8);
        }
        let other = Sinusoidal { layout: SinusoidalLayout::Concatenated, ..paper };
        assert_eq!(other.value(3.0, 1, 512), paper.value(3.0, 2, 512));
        assert_eq!(other.value(3.0, 257, 512), paper.value(3.0, 3, 512));
    }

    /// `M2M100SinusoidalPositionalEmbedding.get_embedding(10, 8)[3]` of transformers.
    #[test]
    fn values_are_those_of_tensor2tensor() {
        let settings = Sinusoidal { layout: SinusoidalLayout::Tensor2tensor, ..Default::default() };
        let want = [
            0.141_120_01,
            0.138_798_1,
            0.006_463_259,
            0.000_3,
            -0.989_992_5,
            0.990_320_7,
            0.999_979_1,
            1.0,
        ];
        for (channel, want) in want.into_iter().enumerate() {
            let found = settings.value(3.0, channel, 8);
            assert!((found - want).abs() < 1e-6, "{channel}: {found} {want}");
        }
    }
}
