//! ALiBi: subtract a per-head multiple of the distance, `score −= slope(head) · |distance|`.
//! Press et al. 2022, <https://arxiv.org/abs/2108.12409>. No parameters unless slopes learn; made for longer inputs than trained on.

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor, TensorData},
};
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::alibi_slopes;

use super::{Encode, Encoding, PositionLayer};
use crate::{
    Error,
    call::{Bias, Call},
    heads::{Heads, Sizes, check_share, share_of},
};

/// A penalty that grows with distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alibi {
    /// Whether the slopes learn, starting from the paper's; default false.
    pub learned: bool,
    /// Share of the heads that have a slope, the first ones; default 1.
    pub heads: f64,
}

impl Default for Alibi {
    fn default() -> Self {
        Self { learned: false, heads: 1.0 }
    }
}

/// Slopes at work.
#[derive(Module, Debug)]
pub struct AlibiLayer {
    /// Slopes of the heads that have one, `[heads]`.
    pub slopes: Param<Tensor<1>>,
    #[module(skip)]
    heads: usize,
}

impl Encoding for Alibi {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        check_share("position.heads", self.heads)
    }

    fn build(&self, heads: &Heads, device: &Device) -> PositionLayer {
        let slopes = alibi_slopes(share_of(self.heads, heads.heads).len());
        let count = slopes.len();
        let slopes = Tensor::from_data(TensorData::new(slopes, [count]), device);
        let slopes = Param::from_tensor(slopes).set_require_grad(self.learned);
        PositionLayer::Alibi(AlibiLayer { slopes, heads: heads.heads })
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }
}

impl Encode for AlibiLayer {
    fn shape(&self, call: &mut Call, _sizes: &Sizes) -> Result<(), Error> {
        let slopes = self.slopes.val();
        let others = self.heads - slopes.dims()[0];
        let slopes = match others {
            0 => slopes,
            _ => Tensor::cat(vec![slopes.clone(), Tensor::zeros([others], &slopes.device())], 0),
        };
        call.biases.push(Bias::Slopes(slopes));
        Ok(())
    }
}
