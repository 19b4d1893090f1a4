use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::PositionSettings;
use crate::{Error, heads::Heads};

/// Learned: one vector per position, added to embeddings, `x + table[position]`.
/// Gehring et al. 2017, <https://arxiv.org/abs/1705.03122>. `length · width` parameters, which start with the embeddings'
/// deviation, as there and in GPT-2; nothing beyond `length`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Learned {
    /// Number of positions; default 1024. Longer inputs are refused.
    pub length: usize,
}

impl Default for Learned {
    fn default() -> Self {
        Self { length: 1024 }
    }
}

impl PositionSettings for Learned {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.length == 0 {
            return Err(Error::setting("position.length", 0, "a table has at least one position"));
        }
        Ok(())
    }

    fn is_relative(&self) -> bool {
        false
    }

    fn embeds(&self) -> bool {
        true
    }

    fn limit(&self) -> Option<usize> {
        Some(self.length)
    }

    fn entries(&self) -> usize {
        self.length
    }
}

#[cfg(feature = "burn")]
pub use layer::LearnedLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Tensor},
    };
    use whatwhere_kernels::{Pooled, layer::add_to};
    use whatwhere_settings::Refuses;

    use super::Learned;
    use crate::{
        Error,
        bridge::{Operand, operation},
        heads::Heads,
        position::PositionLayer,
    };

    /// Learned vectors at work.
    #[derive(Module, Debug)]
    pub struct LearnedLayer {
        /// `[length, width]`.
        pub table: Param<Tensor<2>>,
    }

    impl LearnedLayer {
        pub(crate) fn new(settings: &Learned, heads: &Heads, device: &Device) -> Self {
            let normal = Initializer::Normal { mean: 0.0, std: 0.02 };
            Self { table: normal.init([settings.length, heads.width], device) }
        }
    }

    impl PositionLayer for LearnedLayer {
        fn embed(&self, x: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
            let (length, positions) = (x.dims()[1], self.table.dims()[0]);
            if first + length > positions {
                let reason = format!(
                    "the input reaches position {}, longer than the table",
                    first + length - 1
                );
                return Err(Error::setting("position.length", positions, reason));
            }
            let table = self.table.val();
            Ok(fused(x.clone(), table.clone(), first).unwrap_or_else(|| composed(x, table, first)))
        }
    }

    pub(super) fn composed(x: Tensor<3>, table: Tensor<2>, first: usize) -> Tensor<3> {
        let length = x.dims()[1];
        x + table.narrow(0, first, length).unsqueeze::<3>()
    }

    /// The same as one operation on the CPU: the backward pass of a slice would make a table of zeros for each step anew.
    pub(super) fn fused(x: Tensor<3>, table: Tensor<2>, first: usize) -> Option<Tensor<3>> {
        const FITS: &str = "as many values as positions have";
        let shape @ [_, length, width] = x.dims();
        let (x, table) = (Operand::new(x)?, Operand::new(table)?);
        let rows = first * width..(first + length) * width;
        if rows.is_empty() {
            return None;
        }
        let mut out = Pooled::of(x.values());
        for sequence in out.chunks_exact_mut(rows.len()) {
            add_to(sequence, &table.values()[rows.clone()]).expect(FITS);
        }
        Some(operation([x, table], shape, out, move |seen| {
            let mut d_table = Pooled::zeros(seen.operands[1].len());
            for sequence in seen.d_out.chunks_exact(rows.len()) {
                add_to(&mut d_table[rows.clone()], sequence).expect(FITS);
            }
            [Pooled::of(seen.d_out), d_table]
        }))
    }
}

#[cfg(all(test, feature = "burn"))]
mod tests {
    use burn::tensor::{Device, Distribution, Tensor};

    use super::layer::{composed, fused};

    #[test]
    fn both_ways_give_the_same_values_and_gradients() {
        let device = Device::flex().autodiff();
        let random = Distribution::Normal(0.0, 1.0);
        for (batch, length, first) in [(1, 5, 0), (3, 2, 1), (2, 1, 4)] {
            let x = Tensor::<3>::random([batch, length, 4], random, &device).require_grad();
            let table = Tensor::<2>::random([5, 4], random, &device).require_grad();
            let of = |out: Tensor<3>| {
                let gradients = out.clone().powi_scalar(2).sum().backward();
                let (d_x, d_table) = (x.grad(&gradients), table.grad(&gradients));
                let data = [
                    out.inner().into_data(),
                    d_x.expect("x learns").into_data(),
                    d_table.expect("the table learns").into_data(),
                ];
                data.map(|data| data.try_to_vec::<f32>().expect("f32"))
            };
            let made = fused(x.clone(), table.clone(), first).expect("on the CPU");
            assert_eq!(of(made), of(composed(x.clone(), table.clone(), first)));
        }
    }
}
