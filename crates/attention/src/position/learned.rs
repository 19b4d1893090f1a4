use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::Refuses;

use super::PositionSettings;
use crate::{Error, grid, heads::Heads};

/// Learned: one vector per position, added to embeddings, `x + table[position]`.
/// Gehring et al. 2017, <https://arxiv.org/abs/1705.03122>. `length · width` parameters, which start with the embeddings'
/// deviation, as there and in GPT-2; nothing beyond `length`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Learned {
    /// Number of positions; default 1024. Longer inputs are refused.
    pub length: usize,
    /// Positions in a row, for sequences read off a grid row by row, such as pixels: a vector for the row plus one for the
    /// column, `x + table[row] + table[rows + column]` (axial, Ho et al. 2019, <https://arxiv.org/abs/1912.12180>), in
    /// `(length / grid + grid) · width` parameters; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<usize>,
}

impl Default for Learned {
    fn default() -> Self {
        Self { length: 1024, grid: None }
    }
}

impl Learned {
    /// Rows of the grid; without one, of the table.
    pub fn rows(&self) -> usize {
        self.length.div_ceil(self.grid.unwrap_or(1).max(1))
    }
}

impl PositionSettings for Learned {
    fn check(&self, _heads: &Heads) -> Result<(), Error> {
        if self.length == 0 {
            return Err(Error::setting("position.length", 0, "a table has at least one position"));
        }
        grid::check(self.grid, 0, 1)
    }

    fn is_relative(&self) -> bool {
        false
    }

    fn grid(&self) -> Option<usize> {
        self.grid
    }

    fn embeds(&self) -> bool {
        true
    }

    fn limit(&self) -> Option<usize> {
        Some(self.length)
    }

    fn entries(&self) -> usize {
        self.rows().saturating_add(self.grid.unwrap_or(0))
    }
}

#[cfg(feature = "burn")]
pub use layer::LearnedLayer;

#[cfg(feature = "burn")]
mod layer {
    use std::{borrow::Cow, ops::Range};

    use burn::{
        module::{Module, Param},
        nn::Initializer,
        tensor::{Device, Int, Tensor},
    };
    use whatwhere_kernels::{Pooled, layer::add_to};
    use whatwhere_settings::Refuses;

    use super::Learned;
    use crate::{
        Error,
        bridge::{Operand, operation},
        heads::Heads,
        position::{PositionLayer, PositionSettings},
    };

    /// Learned vectors at work.
    #[derive(Module, Debug)]
    pub struct LearnedLayer {
        /// `[length, width]`; on a grid, `[rows + columns, width]`.
        pub table: Param<Tensor<2>>,
        #[module(skip)]
        settings: Learned,
    }

    impl LearnedLayer {
        pub(crate) fn new(settings: &Learned, heads: &Heads, device: &Device) -> Self {
            let normal = Initializer::Normal { mean: 0.0, std: 0.02 };
            let table = normal.init([settings.entries(), heads.width], device);
            Self { table, settings: *settings }
        }
    }

    impl PositionLayer for LearnedLayer {
        fn embed(&self, x: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
            let (length, positions) = (x.dims()[1], self.settings.length);
            if first + length > positions {
                let reason = format!(
                    "the input reaches position {}, longer than the table",
                    first + length - 1
                );
                return Err(Error::setting("position.length", positions, reason));
            }
            let (table, own) = (self.table.val(), &self.settings);
            let fused = fused(own, x.clone(), table.clone(), first);
            Ok(fused.unwrap_or_else(|| composed(own, x, table, first)))
        }
    }

    impl Learned {
        /// The entries of a position on a grid: its row's and its column's.
        fn on_grid(&self, grid: usize, position: usize) -> [usize; 2] {
            [position / grid, self.rows() + position % grid]
        }
    }

    pub(super) fn composed(
        own: &Learned,
        x: Tensor<3>,
        table: Tensor<2>,
        first: usize,
    ) -> Tensor<3> {
        let length = x.dims()[1];
        let Some(grid) = own.grid else {
            return x + table.narrow(0, first, length).unsqueeze::<3>();
        };
        let entries = (first..first + length).map(|position| own.on_grid(grid, position));
        let (rows, columns): (Vec<i64>, Vec<i64>) =
            entries.map(|[row, column]| (row as i64, column as i64)).unzip();
        let [rows, columns] = [rows, columns].map(|entries| {
            let entries = Tensor::<1, Int>::from_ints(entries.as_slice(), &table.device());
            table.clone().select(0, entries)
        });
        x + (rows + columns).unsqueeze::<3>()
    }

    /// The same as one operation on the CPU: the backward pass of a slice would make a table of zeros for each step anew.
    pub(super) fn fused(
        own: &Learned,
        x: Tensor<3>,
        table: Tensor<2>,
        first: usize,
    ) -> Option<Tensor<3>> {
        const FITS: &str = "as many values as positions have";
        let (shape @ [_, length, width], own) = (x.dims(), *own);
        let (x, table) = (Operand::new(x)?, Operand::new(table)?);
        let count = length * width;
        if count == 0 {
            return None;
        }
        let mut out = Pooled::of(x.values());
        let vectors = vectors(&own, table.values(), first..first + length, width);
        for sequence in out.chunks_exact_mut(count) {
            add_to(sequence, &vectors).expect(FITS);
        }
        drop(vectors);
        Some(operation([x, table], shape, out, move |seen| {
            let mut d_vectors = Pooled::zeros(count);
            for sequence in seen.d_out.chunks_exact(count) {
                add_to(&mut d_vectors, sequence).expect(FITS);
            }
            let mut d_table = Pooled::zeros(seen.operands[1].len());
            match own.grid {
                None => d_table[first * width..][..count].copy_from_slice(&d_vectors),
                Some(grid) => {
                    for (position, d) in (first..).zip(d_vectors.chunks_exact(width)) {
                        for entry in own.on_grid(grid, position) {
                            let sums = &mut d_table[entry * width..][..width];
                            sums.iter_mut().zip(d).for_each(|(sum, d)| *sum += d);
                        }
                    }
                }
            }
            [Pooled::of(seen.d_out), d_table]
        }))
    }

    /// What is added at each position.
    fn vectors<'a>(
        own: &Learned,
        table: &'a [f32],
        positions: Range<usize>,
        width: usize,
    ) -> Cow<'a, [f32]> {
        let Some(grid) = own.grid else {
            return table[positions.start * width..positions.end * width].into();
        };
        let entry = |entry: usize| &table[entry * width..][..width];
        let sums = positions.flat_map(|position| {
            let [row, column] = own.on_grid(grid, position).map(entry);
            row.iter().zip(column).map(|(row, column)| row + column)
        });
        sums.collect()
    }
}

#[cfg(all(test, feature = "burn"))]
mod tests {
    use burn::tensor::{Device, Distribution, Tensor};

    use super::{
        Learned,
        layer::{composed, fused},
    };
    use crate::position::PositionSettings;

    #[test]
    fn both_ways_give_the_same_values_and_gradients() {
        let device = Device::flex().autodiff();
        let random = Distribution::Normal(0.0, 1.0);
        let sizes = [(1, 5, 0), (3, 2, 1), (2, 1, 4)];
        for ((batch, length, first), grid) in
            sizes.into_iter().flat_map(|sizes| [None, Some(2), Some(3)].map(|grid| (sizes, grid)))
        {
            let own = Learned { length: 5, grid };
            let x = Tensor::<3>::random([batch, length, 4], random, &device).require_grad();
            let table = Tensor::<2>::random([own.entries(), 4], random, &device).require_grad();
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
            let made = fused(&own, x.clone(), table.clone(), first).expect("on the CPU");
            assert_eq!(of(made), of(composed(&own, x.clone(), table.clone(), first)));
        }
    }

    #[test]
    fn on_a_grid_a_position_has_the_vectors_of_its_row_and_column() {
        let own = Learned { length: 7, grid: Some(3) };
        let device = Device::flex();
        let table: Vec<f32> = (0..6).map(|entry| 10f32.powi(entry)).collect();
        let table = Tensor::<1>::from_floats(table.as_slice(), &device).reshape([6, 1]);
        let out = fused(&own, Tensor::zeros([1, 7, 1], &device), table, 0).expect("on the CPU");
        let found = out.into_data().try_to_vec::<f32>().expect("f32");
        assert_eq!(found, [1001.0, 10001.0, 100001.0, 1010.0, 10010.0, 100010.0, 1100.0]);
    }
}
