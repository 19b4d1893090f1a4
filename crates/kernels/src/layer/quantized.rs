//! Linear layers with int8 weights: a quarter of the memory to read, and nearly the same result. For generation with
//! quantized weights, and for the drafts of speculative decoding, which are checked with the weights themselves.
//!
//! Weights are quantized symmetrically in blocks of 32 channels of a column, each with a scale in f16 that is a 127th of its
//! largest weight: the numbers of GGUF's `Q8_0`, which are kept as they are. Rows that come in are quantized, too, to 15 bits
//! and a sign, which costs next to nothing of the result.

use rayon::prelude::*;

use crate::{
    Error, Simd,
    error::expect_len,
    layer::Linear,
    simd::int8::{self, BLOCK, Block, Levels, PAIR, PANEL, ROWS},
};

/// The largest quantized weight.
const LEVELS: f32 = 127.0;

/// Panels of one task.
const TOGETHER: usize = 4;

/// Rows of one task: its panels stay in the cache for all of them.
const TASK_ROWS: usize = 64;

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
        let Linear { from, to, weight, bias } = *linear;
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

    /// The layer of levels `[to, from]`, from -127 to 127, and scales `[to, ⌈from / 32⌉]`, the latter as the bits of f16: what
    /// GGUF's `Q8_0` holds.
    pub fn from_levels(
        from: usize,
        levels: &[i8],
        scales: &[u16],
        bias: Option<&[f32]>,
    ) -> Result<Self, Error> {
        let to = levels.len() / from.max(1);
        let blocks = from.div_ceil(BLOCK);
        expect_len("levels", levels.len(), to * from)?;
        expect_len("scales", scales.len(), to * blocks)?;
        if let Some(bits) = scales.iter().find(|bits| **bits & 0x7c00 == 0x7c00) {
            return Err(unscalable(format!("the f16 {bits:#06x}")));
        }
        Self::of(from, to, bias, |first, panel| {
            let columns = levels.chunks_exact(from).zip(scales.chunks_exact(blocks));
            for (j, (levels, scales)) in columns.skip(first).take(PANEL).enumerate() {
                for ((block, levels), scale) in
                    panel.blocks.iter_mut().zip(levels.chunks(BLOCK)).zip(scales)
                {
                    block.scales[j] = *scale;
                    for (channel, level) in levels.iter().enumerate() {
                        block.weights[channel / PAIR][j][channel % PAIR] = *level;
                    }
                }
            }
            Ok(())
        })
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

    /// Levels and scales as [`Self::from_levels`] takes them.
    pub fn levels(&self) -> (Vec<i8>, Vec<u16>) {
        let mut levels = Vec::with_capacity(self.to * self.from);
        let mut scales = Vec::with_capacity(self.to * self.from.div_ceil(BLOCK));
        for column in 0..self.to {
            let (panel, j) = (&self.panels[column / PANEL], column % PANEL);
            scales.extend(panel.blocks.iter().map(|block| block.scales[j]));
            levels.extend(panel.column(j).take(self.from));
        }
        (levels, scales)
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
                *out = f32::from(block.weights[channel / PAIR][j][channel % PAIR]) * scale;
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
    fn run(mut self, simd: Simd, rows: &Rows) {
        let empty: [&[Block]; TOGETHER] = [&[]; TOGETHER];
        let mut panels = empty;
        for (blocks, panel) in panels.iter_mut().zip(self.panels) {
            *blocks = &panel.blocks;
        }
        let panels = &panels[..self.panels.len()];
        for (i, outs) in self.outs.chunks_mut(ROWS).enumerate() {
            let first = self.first + i * ROWS;
            let levels: [&[Levels]; ROWS] =
                std::array::from_fn(|r| if r < outs.len() { rows.levels(first + r) } else { &[] });
            let mut sums = [[[0.0; PANEL]; ROWS]; TOGETHER];
            int8::add_products(simd, &levels[..outs.len()], panels, &mut sums);
            for (r, out) in outs.iter_mut().enumerate() {
                let parts = self.panels.iter().zip(&sums).zip(out.chunks_mut(PANEL));
                for ((panel, sums), out) in parts {
                    let columns = sums[r].iter().zip(&panel.bias);
                    for (out, (sum, bias)) in out.iter_mut().zip(columns) {
                        *out = sum * rows.scales[first + r] + bias;
                    }
                }
            }
        }
    }
}

/// What goes in.
struct Rows {
    /// Blocks of a row.
    blocks: usize,
    levels: Vec<Levels>,
    scales: Vec<f32>,
}

impl Rows {
    fn new(simd: Simd, x: &[f32], from: usize) -> Self {
        let (blocks, count) = (from.div_ceil(BLOCK), x.len() / from);
        let mut levels = vec![[[0; PAIR]; BLOCK / PAIR]; blocks * count];
        let mut scales = vec![0.0; count];
        let rows = x.par_chunks(from).zip(levels.par_chunks_mut(blocks)).zip(&mut scales);
        rows.with_min_len(ROWS).for_each(|((x, levels), scale)| {
            simd.run(
                #[inline(always)]
                || *scale = quantize_row(x, levels.as_flattened_mut().as_flattened_mut()),
            );
        });
        Self { blocks, levels, scales }
    }

    fn levels(&self, row: usize) -> &[Levels] {
        &self.levels[row * self.blocks..(row + 1) * self.blocks]
    }
}

/// Returns the scale: a sum over a block of such levels and those of weights is within 32 bits.
#[inline(always)]
fn quantize_row(x: &[f32], levels: &mut [i16]) -> f32 {
    const _: () = assert!(BLOCK as i64 * LEVELS as i64 * i16::MAX as i64 <= i32::MAX as i64);
    let scale = largest(x) / f32::from(i16::MAX);
    let per_level = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (level, x) in levels.iter_mut().zip(x) {
        *level = nearest(x * per_level) as i16;
    }
    scale
}

/// The nearest integer, of at most 22 bits: a sum with 1.5 · 2²³ has no digits behind the point.
#[inline(always)]
fn nearest(value: f32) -> i32 {
    const POINTLESS: f32 = 12_582_912.0;
    (value + POINTLESS).to_bits().wrapping_sub(POINTLESS.to_bits()) as i32
}

/// The largest size of a value.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sizes = [0.0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (size, value) in sizes.iter_mut().zip(chunk) {
            *size = size.max(value.abs());
        }
    }
    rest.iter().chain(&sizes).fold(0.0, |size, value| size.max(value.abs()))
}

/// The bits of the f16 that is nearest to a positive number; infinity beyond the largest.
#[inline(always)]
fn half(value: f32) -> u16 {
    /// 2⁻¹¹²: what an f16's bits stand for at their places in an f32.
    const SMALL: f32 = f32::from_bits((127 - 112) << 23);
    const INFINITE: u32 = 0x7c00;
    let bits = (value * SMALL).to_bits();
    ((bits + 0xfff + ((bits >> 13) & 1)) >> 13).min(INFINITE) as u16
}

fn unscalable(found: String) -> Error {
    Error::Range {
        what: "scale of a block of weights",
        found,
        allowed: "the finite numbers of f16",
    }
}

impl Panel {
    /// The columns whose weights `fill` writes, one channel at a time, into a row of zeros.
    fn quantize(
        &mut self,
        from: usize,
        fill: impl Fn(usize, &mut [f32; PANEL]),
    ) -> Result<(), Error> {
        let simd = Simd::detect();
        for (first, block) in (0..from).step_by(BLOCK).zip(&mut self.blocks) {
            let mut rows = [[0.0; PANEL]; BLOCK];
            for (channel, row) in (first..from).zip(&mut rows) {
                fill(channel, row);
            }
            simd.run(
                #[inline(always)]
                || quantize_block(&rows, block),
            );
            if let Some(j) = block.scales.iter().position(|bits| *bits >= 0x7c00) {
                let most = rows.iter().map(|row| row[j]).fold(0.0, |m: f32, w| m.max(w.abs()));
                return Err(unscalable(format!("{} for a weight of {most}", most / LEVELS)));
            }
        }
        Ok(())
    }

    /// The levels of a column.
    fn column(&self, j: usize) -> impl Iterator<Item = i8> {
        self.blocks.iter().flat_map(move |block| block.weights.iter().flat_map(move |pair| pair[j]))
    }
}

/// The scales of columns, and each weight as a multiple of its own.
#[inline(always)]
fn quantize_block(rows: &[[f32; PANEL]; BLOCK], block: &mut Block) {
    let mut most = [0.0f32; PANEL];
    for row in rows {
        for (most, weight) in most.iter_mut().zip(row) {
            // Not `max`, which would lose a NaN.
            *most = if weight.abs() <= *most || most.is_nan() { *most } else { weight.abs() };
        }
    }
    let mut per_level = [0.0; PANEL];
    for ((per_level, bits), most) in per_level.iter_mut().zip(&mut block.scales).zip(&most) {
        *bits = half(most / LEVELS);
        let scale = int8::scale(*bits);
        *per_level = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    }
    for (weights, rows) in block.weights.iter_mut().zip(rows.as_chunks::<PAIR>().0) {
        for (i, row) in rows.iter().enumerate() {
            for ((weights, exact), per_level) in weights.iter_mut().zip(row).zip(&per_level) {
                // The f16 may be a little smaller than a 127th, and much below the smallest normal one.
                let level = (exact * per_level).clamp(-LEVELS, LEVELS);
                weights[i] = nearest(level) as i8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
    }

    /// Half a level for each weight, and a 1024th of them for the scale's rounding; and for each of up to 130 channels half a
    /// level of a 32767th, times a weight of 1.3.
    fn assert_near(found: &[f32], expected: &[f32], x: &[f32], largest: f32) {
        let most = x.iter().map(|x| x.abs()).sum::<f32>() * largest / LEVELS * 0.51 + 4e-3;
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= most, "{found} {expected}");
        }
    }

    #[test]
    fn a_projection_is_right_to_within_half_a_level_of_each_weight() {
        for (from, to) in [(1, 1), (5, 64), (130, 65), (7, 200), (32, 257)] {
            let (x, weight, bias) = (numbers(from, 1), numbers(from * to, 2), numbers(to, 3));
            for bias in [None, Some(bias.as_slice())] {
                let linear = Linear { from, to, weight: &weight, bias };
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
        let linear = Linear { from: 3, to: 2, weight: &weight, bias: Some(&[0.5, 0.25]) };
        let mut out = [f32::NAN; 2];
        QuantizedLinear::new(&linear).unwrap().forward(&[1.0, 2.0, -1.0], &mut out).unwrap();
        // Half a level of each channel, of which there are 32767 to 2.
        let most = (127.0 + 3.0 + 50.0) / 32767.0;
        assert!((out[0] - (127.0 - 6.0 - 50.0 + 0.5)).abs() <= most, "{out:?}");
        assert_eq!(out[1], 0.25);
    }

    #[test]
    fn rows_give_together_what_each_gives_alone() {
        for (from, to, rows) in [(40, 70, 3), (96, 300, 131), (33, 1, 64)] {
            let (x, weight, bias) =
                (numbers(rows * from, 1), numbers(from * to, 2), numbers(to, 3));
            let linear = Linear { from, to, weight: &weight, bias: Some(&bias) };
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
            QuantizedLinear::new(&Linear { from: 40, to, weight, bias: None }).unwrap()
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
            let linear = Linear { from, to, weight: &weight, bias: Some(&bias) };
            let quantized = QuantizedLinear::new(&linear).unwrap();
            let (levels, scales) = quantized.levels();
            let again = QuantizedLinear::from_levels(from, &levels, &scales, Some(&bias)).unwrap();
            assert_eq!(again.levels(), (levels, scales));
            let x = numbers(from, 3);
            let (mut one, mut other) = (vec![0.0; to], vec![1.0; to]);
            quantized.forward(&x, &mut one).unwrap();
            again.forward(&x, &mut other).unwrap();
            assert_eq!(one, other);
            let mut column = vec![f32::NAN; from];
            again.write_column(to - 1, &mut column);
            for (channel, found) in column.iter().enumerate() {
                let exact = weight[channel * to + to - 1];
                assert!((found - exact).abs() <= 1.3 / LEVELS * 0.51, "{found} {exact}");
            }
        }
    }

    #[test]
    fn what_has_no_finite_scale_is_refused() {
        for large in [f32::NAN, f32::INFINITY, 127.0 * 65536.0] {
            let linear = Linear { from: 2, to: 1, weight: &[1.0, large], bias: None };
            assert!(QuantizedLinear::new(&linear).is_err(), "{large}");
        }
        assert!(QuantizedLinear::from_levels(1, &[1], &[0x7c00], None).is_err());
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let linear = Linear { from: 2, to: 3, weight: &[0.0; 6], bias: None };
        let quantized = QuantizedLinear::new(&linear).unwrap();
        assert!(quantized.forward(&[0.0; 3], &mut [0.0; 3]).is_err());
        assert!(quantized.forward(&[0.0; 2], &mut [0.0; 2]).is_err());
        assert!(QuantizedLinear::new(&Linear { weight: &[0.0; 5], ..linear }).is_err());
        assert!(QuantizedLinear::new(&Linear { from: 0, weight: &[], ..linear }).is_err());
        assert!(QuantizedLinear::new(&Linear { bias: Some(&[0.0]), ..linear }).is_err());
        assert!(QuantizedLinear::logits(&[0.0; 5], 2).is_err());
        assert!(QuantizedLinear::from_levels(2, &[0; 3], &[0; 1], None).is_err());
        assert!(QuantizedLinear::from_levels(2, &[0; 4], &[0; 1], None).is_err());
    }
}
