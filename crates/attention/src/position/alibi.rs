use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::attention::{Bias, Columns, alibi_slopes};
use whatwhere_settings::Share;

use super::PositionSettings;
use crate::{
    Error,
    heads::Heads,
    slot::{Slot, Terms, reach},
};

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

    fn add_terms(&self, call: &mut Terms) -> Result<(), Error> {
        let heads = self.heads.of(call.shape.heads);
        let slopes = alibi_slopes(heads.len());
        let (left, right) = reach(call)?;
        let table = Slot {
            columns: Some(Columns { first: heads.start, ..Columns::alibi(left, right) }),
            default: Some(slopes.clone()),
            note: "the paper's if left out",
            ..Slot::new("slopes", &[slopes.len()], "[heads that have one]")
        };
        call.biases.push(Bias::ByDistance { table, left, right });
        Ok(())
    }

    fn only_of_layers(&self) -> &'static [&'static str] {
        &["learned"]
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
        tensor::{Device, Tensor, TensorData},
    };
    use whatwhere_kernels::attention::alibi_slopes;

    use super::Alibi;
    use crate::{heads::Heads, position::PositionLayer, slot::Terms};

    /// Slopes at work.
    #[derive(Module, Debug)]
    pub struct AlibiLayer {
        /// Slopes of the heads that have one, `[heads]`.
        pub slopes: Param<Tensor<1>>,
    }

    impl AlibiLayer {
        pub(crate) fn new(settings: &Alibi, heads: &Heads, device: &Device) -> Self {
            let slopes = alibi_slopes(settings.heads.of(heads.heads).len());
            let count = slopes.len();
            let slopes = Tensor::from_data(TensorData::new(slopes, [count]), device);
            Self { slopes: Param::from_tensor(slopes).set_require_grad(settings.learned) }
        }
    }

    impl PositionLayer for AlibiLayer {
        fn array(&self, _name: &str, _call: &Terms) -> Option<Tensor<1>> {
            Some(self.slopes.val())
        }
    }
}
