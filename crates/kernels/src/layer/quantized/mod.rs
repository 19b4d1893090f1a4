//! Linear layers with int8 weights: a quarter of the memory to read, and nearly the same result. For generation with
//! quantized weights, and for the drafts of speculative decoding, which are checked with the weights themselves.
//!
//! Weights are quantized symmetrically in blocks of 32 channels of a column, each with a scale in f16 that is a 127th of its
//! largest weight: the numbers of GGUF's `Q8_0`, which are kept as they are. Rows that come in are quantized the same way, each
//! block with a scale in f32.

mod rows;
mod values;
mod weights;

use rayon::prelude::*;

use crate::{
    Error, Simd,
    error::expect_len,
    layer::Linear,
    simd::int8::{self, BLOCK, Block, Levels, PANEL, ROWS},
};

pub use values::{Int8Values, bf16_bits, bf16_value, f16_bits, f16_value};

use rows::Rows;

/// Panels of one task.
const TOGETHER: usize = 4;

/// Rows of one task, a multiple of those that go through a panel at once: its panels stay in the cache for all of them.
const TASK_ROWS: usize = 16 * ROWS;

/// A linear layer with int8 weights.
#[derive(Debug)]
pub struct QuantizedLinear {
    from: usize,
    to: usize,
    panels: Vec<Panel>,
}

/// Some columns; those beyond the last, and channels beyond the last, are 0.
#[derive(Debug)]
struct Panel {
    blocks: Vec<Block>,
    bias: [f32; PANEL],
}

impl QuantizedLinear {
    /// The nearest to a linear layer.
    pub fn new(linear: &Linear) -> Result<Self, Error> {
        let Linear { from, to, weight, bias, .. } = *linear;
        expect_len("weight", weight.len(), from * to)?;
        Self::of(from, to, bias, |first, panel| {
            let count = PANEL.min(to - first);
            panel.quantize(from, |channel, row| {
                row[..count].copy_from_slice(&weight[channel * to + first..][..count]);
            })
        })
    }

    /// The nearest to the logits of every row of a table of `width` channels.
    pub fn logits(table: &[f32], width: usize) -> Result<Self, Error> {
        let to = table.len() / width.max(1);
        expect_len("table", table.len(), to * width)?;
        Self::of(width, to, None, |first, panel| {
            let rows = &table[first * width..to.min(first + PANEL) * width];
            panel.quantize(width, |channel, row| {
                for (weight, table) in row.iter_mut().zip(rows.chunks_exact(width)) {
                    *weight = table[channel];
                }
            })
        })
    }

    /// The layer of levels and scales as they are: their columns are its own if blocks lie along columns, and their rows
    /// otherwise, as those of a table of embeddings.
    pub fn from_values(values: &Int8Values) -> Result<Self, Error> {
        let [rows, columns] = values.shape();
        let (from, to) = if values.is_table() { (columns, rows) } else { (rows, columns) };
        Self::of(from, to, None, |first, panel| {
            panel.take(values, first);
            Ok(())
        })
    }

    /// The same with a bias.
    pub fn with_bias(mut self, bias: &[f32]) -> Result<Self, Error> {
        expect_len("bias", bias.len(), self.to)?;
        for (panel, bias) in self.panels.iter_mut().zip(bias.chunks(PANEL)) {
            panel.bias[..bias.len()].copy_from_slice(bias);
        }
        Ok(self)
    }

    fn of(
        from: usize,
        to: usize,
        bias: Option<&[f32]>,
        fill: impl Fn(usize, &mut Panel) -> Result<(), Error> + Send + Sync,
    ) -> Result<Self, Error> {
        for (what, size) in [("from", from), ("to", to)] {
            if size == 0 {
                return Err(Error::Zero { what });
            }
        }
        expect_len("bias", bias.map_or(to, <[f32]>::len), to)?;
        let panel = |first: usize| {
            let blocks = vec![Block::ZERO; from.div_ceil(BLOCK)];
            let mut panel = Panel { blocks, bias: [0.0; PANEL] };
            if let Some(bias) = bias {
                let bias = &bias[first..to.min(first + PANEL)];
                panel.bias[..bias.len()].copy_from_slice(bias);
            }
            fill(first, &mut panel)?;
            Ok(panel)
        };
        let panels = (0..to).into_par_iter().step_by(PANEL).map(panel);
        Ok(Self { from, to, panels: panels.collect::<Result<_, Error>>()? })
    }

    /// Channels that go in.
    pub fn from(&self) -> usize {
        self.from
    }

    /// Channels that come out.
    pub fn to(&self) -> usize {
        self.to
    }

    /// The bytes it holds.
    pub fn bytes(&self) -> usize {
        let panel = |panel: &Panel| size_of_val(panel.blocks.as_slice()) + size_of_val(&panel.bias);
        self.panels.iter().map(panel).sum()
    }

    /// Its levels and scales, `[from, to]`, or `[to, from]` if as a table.
    pub fn values(&self, is_table: bool) -> Int8Values {
        let shape = if is_table { [self.to, self.from] } else { [self.from, self.to] };
        let mut values = Int8Values::zeros(shape, is_table);
        for (panel, first) in self.panels.iter().zip((0..).step_by(PANEL)) {
            panel.give(&mut values, first, self.to);
        }
        values
    }

    /// The weights of one column, such as a token's embedding of a table that was made by [`Self::logits`].
    ///
    /// # Panics
    /// If there is no such column, or `out` has another length than the layer has channels that go in.
    pub fn write_column(&self, column: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.from, "a weight for each channel");
        let (panel, j) = (&self.panels[column / PANEL], column % PANEL);
        assert!(column < self.to, "column {column} of {}", self.to);
        for (block, out) in panel.blocks.iter().zip(out.chunks_mut(BLOCK)) {
            let scale = int8::scale(block.scales[j]);
            for (channel, out) in out.iter_mut().enumerate() {
                *out = f32::from(block.level(channel, j)) * scale;
            }
        }
    }

    /// Projects every row of `x`. A row has the same result alone and among others.
    pub fn forward(&self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        Self::forward_all([self], x, [out])
    }

    /// Several projections of the same rows.
    pub fn forward_all<const N: usize>(
        all: [&Self; N],
        x: &[f32],
        outs: [&mut [f32]; N],
    ) -> Result<(), Error> {
        let Some(from) = all.first().map(|quantized| quantized.from) else { return Ok(()) };
        let count = x.len() / from;
        for (quantized, out) in all.iter().zip(&outs) {
            expect_len("x", x.len(), count * quantized.from)?;
            expect_len("out", out.len(), count * quantized.to)?;
        }
        let simd = Simd::detect();
        let rows = Rows::new(simd, x, from);
        let tasks = all.into_iter().zip(outs);
        let tasks: Vec<Task> = tasks.flat_map(|(quantized, out)| quantized.tasks(out)).collect();
        tasks.into_par_iter().with_max_len(1).for_each(|task| task.run(simd, &rows));
        Ok(())
    }

    /// What is to be done for `out`: some columns of some rows each.
    fn tasks<'a>(&'a self, out: &'a mut [f32]) -> Vec<Task<'a>> {
        let mut tasks = Vec::new();
        for (i, rows) in out.chunks_mut(self.to * TASK_ROWS).enumerate() {
            let (first, earlier) = (i * TASK_ROWS, tasks.len());
            let panels = self.panels.chunks(TOGETHER);
            tasks.extend(panels.map(|panels| Task { panels, first, outs: Vec::new() }));
            for row in rows.chunks_mut(self.to) {
                let parts = row.chunks_mut(TOGETHER * PANEL);
                for (task, out) in tasks[earlier..].iter_mut().zip(parts) {
                    task.outs.push(out);
                }
            }
        }
        tasks
    }
}

/// Some panels, and where their columns of some rows go.
struct Task<'a> {
    panels: &'a [Panel],
    /// The first row.
    first: usize,
    outs: Vec<&'a mut [f32]>,
}

impl Task<'_> {
    /// Few rows meet their panels in memory, and read them in turns; many meet them in the cache, one after the other.
    fn run(mut self, simd: Simd, rows: &Rows) {
        if self.outs.len() <= ROWS {
            return project::<TOGETHER>(simd, self.panels, rows, self.first, 0, &mut self.outs);
        }
        for (i, panel) in self.panels.chunks(1).enumerate() {
            for (j, outs) in self.outs.chunks_mut(ROWS).enumerate() {
                project::<1>(simd, panel, rows, self.first + j * ROWS, i * PANEL, outs);
            }
        }
    }
}

/// Up to `P` panels of the rows from `row` on, into their columns from `column` on.
fn project<const P: usize>(
    simd: Simd,
    panels: &[Panel],
    rows: &Rows,
    row: usize,
    column: usize,
    outs: &mut [&mut [f32]],
) {
    let mut blocks: [&[Block]; P] = [&[]; P];
    for (blocks, panel) in blocks.iter_mut().zip(panels) {
        *blocks = &panel.blocks;
    }
    let mut levels: [&[Levels]; ROWS] = [&[]; ROWS];
    for (r, levels) in levels[..outs.len()].iter_mut().enumerate() {
        *levels = rows.levels(row + r);
    }
    let mut sums: [_; P] =
        std::array::from_fn(|p| [panels.get(p).map_or([0.0; PANEL], |panel| panel.bias); ROWS]);
    int8::add_products(simd, &levels[..outs.len()], &blocks[..panels.len()], &mut sums);
    for (r, out) in outs.iter_mut().enumerate() {
        for (sums, out) in sums[..panels.len()].iter().zip(out[column..].chunks_mut(PANEL)) {
            out.copy_from_slice(&sums[r][..out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Precision, simd::int8::LEVELS};

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
    }

    /// Half a level for each weight and for each channel that goes in, and a 1024th of a weight's for its scale's rounding.
    fn assert_near(found: &[f32], expected: &[f32], x: &[f32], largest: f32) {
        let sizes = x.iter().map(|x| x.abs());
        let inputs = sizes.clone().fold(0.0, f32::max) * x.len() as f32;
        let most = (sizes.sum::<f32>() + inputs) * largest / LEVELS * 0.51 + 1e-5;
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= most, "{found} {expected}");
        }
    }

    #[test]
    fn a_projection_is_right_to_within_half_a_level_of_each_weight() {
        for (from, to) in [(1, 1), (5, 64), (130, 65), (7, 200), (32, 257)] {
            let (x, weight, bias) = (numbers(from, 1), numbers(from * to, 2), numbers(to, 3));
            for bias in [None, Some(bias.as_slice())] {
                let linear = Linear { from, to, weight: &weight, bias, precision: Precision::F32 };
                let (mut out, mut exact) = (vec![f32::NAN; to], vec![f32::NAN; to]);
                QuantizedLinear::new(&linear).unwrap().forward(&x, &mut out).unwrap();
                linear.forward(&x, &mut exact).unwrap();
                assert_near(&out, &exact, &x, 1.3);
                let table: Vec<f32> =
                    (0..from * to).map(|i| weight[i % from * to + i / from]).collect();
                let without = bias.map_or(vec![0.0; to], <[f32]>::to_vec);
                exact.iter_mut().zip(without).for_each(|(exact, bias)| *exact -= bias);
                QuantizedLinear::logits(&table, from).unwrap().forward(&x, &mut out).unwrap();
                assert_near(&out, &exact, &x, 1.3);
            }
        }
    }

    #[test]
    fn whole_levels_are_kept_and_columns_of_zeros_stay() {
        // Columns with the largest weight 127 have a scale of 1.
        let weight = [127.0, 0.0, -3.0, 0.0, 50.0, 0.0];
        let linear = Linear {
            from: 3,
            to: 2,
            weight: &weight,
            bias: Some(&[0.5, 0.25]),
            precision: Precision::F32,
        };
        let mut out = [f32::NAN; 2];
        QuantizedLinear::new(&linear).unwrap().forward(&[1.0, 2.0, -1.0], &mut out).unwrap();
        // Half a level of each channel, of which there are 127 to 2.
        let most = (127.0 + 3.0 + 50.0) / 127.0;
        assert!((out[0] - (127.0 - 6.0 - 50.0 + 0.5)).abs() <= most, "{out:?}");
        assert_eq!(out[1], 0.25);
    }

    #[test]
    fn rows_give_together_what_each_gives_alone() {
        for (from, to, rows) in [(40, 70, 3), (96, 300, 131), (33, 1, 64)] {
            let (x, weight, bias) =
                (numbers(rows * from, 1), numbers(from * to, 2), numbers(to, 3));
            let linear =
                Linear { from, to, weight: &weight, bias: Some(&bias), precision: Precision::F32 };
            let quantized = QuantizedLinear::new(&linear).unwrap();
            let mut together = vec![f32::NAN; rows * to];
            quantized.forward(&x, &mut together).unwrap();
            for (x, together) in x.chunks(from).zip(together.chunks(to)) {
                let mut alone = vec![f32::NAN; to];
                quantized.forward(x, &mut alone).unwrap();
                assert_eq!(alone, together, "{from} to {to}");
            }
        }
    }

    #[test]
    fn several_give_what_each_gives() {
        let weights = [numbers(40 * 70, 1), numbers(40 * 3, 2)];
        let quantized = [(70, &weights[0]), (3, &weights[1])].map(|(to, weight)| {
            QuantizedLinear::new(&Linear {
                from: 40,
                to,
                weight,
                bias: None,
                precision: Precision::F32,
            })
            .unwrap()
        });
        let x = numbers(2 * 40, 3);
        let (mut first, mut second) = (vec![0.0; 2 * 70], vec![0.0; 2 * 3]);
        QuantizedLinear::forward_all(quantized.each_ref(), &x, [&mut first, &mut second]).unwrap();
        for (quantized, together) in quantized.iter().zip([first, second]) {
            let mut alone = vec![0.0; 2 * quantized.to()];
            quantized.forward(&x, &mut alone).unwrap();
            assert_eq!(alone, together);
        }
    }

    #[test]
    fn levels_go_out_and_come_back() {
        for (from, to) in [(32, 1), (70, 65), (3, 130)] {
            let (weight, bias) = (numbers(from * to, 1), numbers(to, 2));
            let linear =
                Linear { from, to, weight: &weight, bias: Some(&bias), precision: Precision::F32 };
            let quantized = QuantizedLinear::new(&linear).unwrap();
            let x = numbers(from, 3);
            let mut one = vec![0.0; to];
            quantized.forward(&x, &mut one).unwrap();
            for is_table in [false, true] {
                let values = quantized.values(is_table);
                let again = QuantizedLinear::from_values(&values).unwrap();
                let again = again.with_bias(&bias).unwrap();
                assert_eq!(again.values(is_table), values);
                let mut other = vec![1.0; to];
                again.forward(&x, &mut other).unwrap();
                assert_eq!(one, other);
                let mut column = vec![f32::NAN; from];
                again.write_column(to - 1, &mut column);
                let all = values.values();
                for (channel, found) in column.iter().enumerate() {
                    let exact = weight[channel * to + to - 1];
                    assert!((found - exact).abs() <= 1.3 / LEVELS * 0.51, "{found} {exact}");
                    let at =
                        if is_table { (to - 1) * from + channel } else { channel * to + to - 1 };
                    assert_eq!(*found, all[at]);
                }
                // What is made of the values has their levels again, unless a column's largest is not 127.
                let again = match is_table {
                    true => QuantizedLinear::logits(&all, from).unwrap(),
                    false => QuantizedLinear::new(&Linear {
                        from,
                        to,
                        weight: &all,
                        bias: None,
                        precision: Precision::F32,
                    })
                    .unwrap(),
                };
                assert_eq!(again.values(is_table), values);
            }
        }
    }

    #[test]
    fn what_has_no_finite_scale_is_refused() {
        for large in [f32::NAN, f32::INFINITY, 127.0 * 65536.0] {
            let linear = Linear {
                from: 2,
                to: 1,
                weight: &[1.0, large],
                bias: None,
                precision: Precision::F32,
            };
            assert!(QuantizedLinear::new(&linear).is_err(), "{large}");
        }
        assert!(Int8Values::new(&[1, 1], vec![1], &[1, 1], vec![0x7c00]).is_err());
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let linear =
            Linear { from: 2, to: 3, weight: &[0.0; 6], bias: None, precision: Precision::F32 };
        let quantized = QuantizedLinear::new(&linear).unwrap();
        assert!(quantized.forward(&[0.0; 3], &mut [0.0; 3]).is_err());
        assert!(quantized.forward(&[0.0; 2], &mut [0.0; 2]).is_err());
        assert!(QuantizedLinear::new(&Linear { weight: &[0.0; 5], ..linear }).is_err());
        assert!(QuantizedLinear::new(&Linear { from: 0, weight: &[], ..linear }).is_err());
        assert!(QuantizedLinear::new(&Linear { bias: Some(&[0.0]), ..linear }).is_err());
        assert!(QuantizedLinear::logits(&[0.0; 5], 2).is_err());
        assert!(Int8Values::new(&[2, 2], vec![0; 3], &[1, 2], vec![0; 2]).is_err());
        assert!(Int8Values::new(&[2, 2], vec![0; 4], &[1, 1], vec![0; 1]).is_err());
        assert!(Int8Values::new(&[4], vec![0; 4], &[1], vec![0; 1]).is_err());
    }
}
