use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Share;

use super::PositionSettings;
use crate::{Error, heads::Heads};

/// ALiBi: subtract a per-head multiple of the distance, `score −= slope(head) · |distance|`.
/// Press et al. 2022, <https://arxiv.org/abs/2108.12409>. No parameters unless slopes learn; made for longer inputs than trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Alibi {
    /// Whether the slopes learn, starting from the paper's; default false.
    pub learned: bool,
    /// Share of the heads that have a slope: the first ones, or `[from, to]`; default 1.
    pub heads: Share,
}

impl PositionSettings for Alibi {
    fn check(&self, heads: &Heads) -> Result<(), Error> {
        Ok(self.heads.check_of("position.heads", heads.heads)?)
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn adds_to_scores(&self) -> bool {
        true
    }

    fn bias_term(&self) -> Option<(&'static str, &'static str)> {
        Some(("slope · distance", "ALiBi's penalty, a slope for each head"))
    }
}

#[cfg(feature = "burn")]
pub use layer::AlibiLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        tensor::{Device, Int, Tensor, TensorData},
    };
    use whatwhere_kernels::attention::alibi_slopes;

    use super::Alibi;
    use crate::{
        Error,
        call::{Bias, Call, flat},
        heads::Heads,
        position::PositionLayer,
    };

    /// Slopes at work.
    #[derive(Module, Debug)]
    pub struct AlibiLayer {
        /// Slopes of the heads that have one, `[heads]`.
        pub slopes: Param<Tensor<1>>,
        /// Heads before and after them, which have none.
        #[module(skip)]
        others: [usize; 2],
    }

    impl AlibiLayer {
        pub(crate) fn new(settings: &Alibi, heads: &Heads, device: &Device) -> Self {
            let own = settings.heads.of(heads.heads);
            let slopes = alibi_slopes(own.len());
            let count = slopes.len();
            let slopes = Tensor::from_data(TensorData::new(slopes, [count]), device);
            let slopes = Param::from_tensor(slopes).set_require_grad(settings.learned);
            Self { slopes, others: [own.start, heads.heads - own.end] }
        }
    }

    impl PositionLayer for AlibiLayer {
        fn add_terms(&self, call: &mut Call) -> Result<(), Error> {
            let slopes = self.slopes.val();
            let slopes = match self.others {
                [0, 0] => slopes,
                others => {
                    let [before, after] = others.map(|n| Tensor::zeros([n], &slopes.device()));
                    let parts = [before, slopes, after].into_iter();
                    Tensor::cat(parts.filter(|part| part.dims()[0] > 0).collect(), 0)
                }
            };
            let (left, right) = call.reach();
            let far = -(left as i64)..right as i64 + 1;
            let far = Tensor::<1, Int>::arange(far, &slopes.device()).float().abs().neg();
            let table = slopes.unsqueeze_dim::<2>(1) * far.unsqueeze_dim::<2>(0); // [heads, distances]
            call.biases.push(Bias::ByDistance { table: flat(table), left, right });
            Ok(())
        }
    }
}
