//! Linear layers with int8 weights: a quarter of the memory to read, and nearly the same result. For the drafts of
//! speculative decoding, which are checked with the weights themselves.
//!
//! Weights are quantized symmetrically, with a scale per output channel: a 127th of its largest weight. A row that comes in
//! is quantized, too, to as many levels as keep sums within 32 bits.

use rayon::prelude::*;

use crate::{
    Error, Simd,
    layer::Linear,
    simd::int8::{self, PAIR, PANEL, Rows},
};

/// The largest quantized weight.
const LEVELS: f32 = 127.0;

/// Panels that are read in turns.
const TOGETHER: usize = 4;

/// A linear layer with int8 weights, on single rows.
#[derive(Debug)]
pub struct QuantizedLinear {
    from: usize,
    to: usize,
    panels: Vec<Panel>,
}

/// Some columns; those beyond the last are 0.
#[derive(Debug)]
struct Panel {
    /// For pairs of the channels that go in.
    weights: Vec<Rows>,
    scales: [f32; PANEL],
    bias: [f32; PANEL],
}

impl QuantizedLinear {
    /// The nearest to a linear layer.
    pub fn new(linear: &Linear) -> Result<Self, Error> {
        let Linear { from, to, weight, bias } = *linear;
        for (what, found, expected) in
            [("weight", weight.len(), from * to), ("bias", bias.map_or(to, <[f32]>::len), to)]
        {
            if found != expected {
                return Err(Error::Length { what, found, expected });
            }
        }
        let panel = |first: usize| {
            let count = PANEL.min(to - first);
            let bias = bias.map(|bias| &bias[first..first + count]);
            Panel::new(from, bias, |channel, row| {
                row[..count].copy_from_slice(&weight[channel * to + first..][..count]);
            })
        };
        Self::of(from, to, panel)
    }

    /// The nearest to the logits of every row of a table of `width` channels.
    pub fn logits(table: &[f32], width: usize) -> Result<Self, Error> {
        let to = table.len() / width.max(1);
        if table.len() != to * width {
            return Err(Error::Length { what: "table", found: table.len(), expected: to * width });
        }
        let panel = |first: usize| {
            let rows = &table[first * width..to.min(first + PANEL) * width];
            Panel::new(width, None, |channel, row| {
                for (weight, table) in row.iter_mut().zip(rows.chunks_exact(width)) {
                    *weight = table[channel];
                }
            })
        };
        Self::of(width, to, panel)
    }

    fn of(
        from: usize,
        to: usize,
        panel: impl Fn(usize) -> Panel + Send + Sync,
    ) -> Result<Self, Error> {
        for (what, size) in [("from", from), ("to", to)] {
            if size == 0 {
                return Err(Error::Zero { what });
            }
        }
        let panels = (0..to).into_par_iter().step_by(PANEL).map(panel).collect();
        Ok(Self { from, to, panels })
    }

    /// Channels that come out.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Projects one row.
    pub fn forward(&self, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
        Self::forward_all([self], x, [out])
    }

    /// Several projections of the same row.
    pub fn forward_all<const N: usize>(
        all: [&Self; N],
        x: &[f32],
        outs: [&mut [f32]; N],
    ) -> Result<(), Error> {
        for (quantized, out) in all.iter().zip(&outs) {
            for (what, found, expected) in
                [("x", x.len(), quantized.from), ("out", out.len(), quantized.to)]
            {
                if found != expected {
                    return Err(Error::Length { what, found, expected });
                }
            }
        }
        let simd = Simd::detect();
        let row = Row::new(simd, x);
        let parts = all.into_iter().zip(outs);
        let tasks: Vec<_> = parts
            .flat_map(|(quantized, out)| {
                quantized.panels.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER * PANEL))
            })
            .collect();
        tasks
            .into_par_iter()
            .with_max_len(1)
            .for_each(|(panels, out)| forward(simd, &row, panels, out));
        Ok(())
    }
}

/// What goes in.
struct Row {
    pairs: Vec<[i16; PAIR]>,
    scale: f32,
}

impl Row {
    fn new(simd: Simd, x: &[f32]) -> Self {
        let mut row = Self { pairs: vec![[0; PAIR]; x.len().div_ceil(PAIR)], scale: 0.0 };
        simd.run(
            #[inline(always)]
            || row.quantize(x),
        );
        row
    }

    #[inline(always)]
    fn quantize(&mut self, x: &[f32]) {
        // As many levels as keep every sum within 32 bits.
        let most = i32::MAX as usize / (LEVELS as usize * PAIR * self.pairs.len());
        self.scale = largest(x) / most.min(i16::MAX as usize) as f32;
        let per_level = if self.scale > 0.0 { 1.0 / self.scale } else { 0.0 };
        for (level, x) in self.pairs.as_flattened_mut().iter_mut().zip(x) {
            *level = nearest(x * per_level) as i16;
        }
    }
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

impl Panel {
    /// Columns whose weights `fill` writes, one channel at a time, into a row of zeros.
    fn new(from: usize, bias: Option<&[f32]>, fill: impl Fn(usize, &mut [f32; PANEL])) -> Self {
        let mut rows = vec![[0.0; PANEL]; from];
        for (channel, row) in rows.iter_mut().enumerate() {
            fill(channel, row);
        }
        let weights = vec![[[0; PAIR]; PANEL]; from.div_ceil(PAIR)];
        let mut panel = Self { weights, scales: [0.0; PANEL], bias: [0.0; PANEL] };
        if let Some(bias) = bias {
            panel.bias[..bias.len()].copy_from_slice(bias);
        }
        Simd::detect().run(
            #[inline(always)]
            || panel.quantize(&rows),
        );
        panel
    }

    /// The scales of columns, and each weight as a multiple of its own.
    #[inline(always)]
    fn quantize(&mut self, rows: &[[f32; PANEL]]) {
        for row in rows {
            for (scale, weight) in self.scales.iter_mut().zip(row) {
                *scale = scale.max(weight.abs() / LEVELS);
            }
        }
        let mut per_level = [0.0; PANEL];
        for (per_level, scale) in per_level.iter_mut().zip(&self.scales) {
            *per_level = if *scale > 0.0 { 1.0 / scale } else { 0.0 };
        }
        for (weights, rows) in self.weights.iter_mut().zip(rows.chunks(PAIR)) {
            for (i, row) in rows.iter().enumerate() {
                for ((weights, exact), per_level) in weights.iter_mut().zip(row).zip(&per_level) {
                    weights[i] = nearest(exact * per_level) as i8;
                }
            }
        }
    }

    fn finish(&self, simd: Simd, sums: &[i32; PANEL], row: &Row, out: &mut [f32]) {
        simd.run(
            #[inline(always)]
            || {
                let columns = sums.iter().zip(&self.scales).zip(&self.bias);
                for (out, ((sum, scale), bias)) in out.iter_mut().zip(columns) {
                    *out = *sum as f32 * (scale * row.scale) + bias;
                }
            },
        );
    }
}

fn forward(simd: Simd, row: &Row, panels: &[Panel], out: &mut [f32]) {
    let mut outs = out.chunks_mut(PANEL);
    if let Ok(panels) = <&[Panel; TOGETHER]>::try_from(panels) {
        let weights = panels.each_ref().map(|panel| panel.weights.as_slice());
        let sums = int8::sums(simd, &row.pairs, weights);
        for ((panel, sums), out) in panels.iter().zip(&sums).zip(outs) {
            panel.finish(simd, sums, row, out);
        }
    } else {
        for (panel, out) in panels.iter().zip(&mut outs) {
            let [sums] = int8::sums(simd, &row.pairs, [&panel.weights]);
            panel.finish(simd, &sums, row, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 7919 % 1013) as f32 - 506.0) / 400.0).collect()
    }

    /// Half a level for each weight; and for each of up to 130 channels half a level of a 32767th, times a weight of 1.3.
    fn assert_near(found: &[f32], expected: &[f32], x: &[f32], largest: f32) {
        let most = x.iter().map(|x| x.abs()).sum::<f32>() * largest / LEVELS / 2.0 + 4e-3;
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= most, "{found} {expected}");
        }
    }

    #[test]
    fn a_projection_is_right_to_within_half_a_step_of_each_weight() {
        for (from, to) in [(1, 1), (5, 64), (130, 65), (7, 200)] {
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
    fn several_give_what_each_gives() {
        let weights = [numbers(40 * 70, 1), numbers(40 * 3, 2)];
        let quantized = [(70, &weights[0]), (3, &weights[1])].map(|(to, weight)| {
            QuantizedLinear::new(&Linear { from: 40, to, weight, bias: None }).unwrap()
        });
        let x = numbers(40, 3);
        let (mut first, mut second) = (vec![0.0; 70], vec![0.0; 3]);
        QuantizedLinear::forward_all(quantized.each_ref(), &x, [&mut first, &mut second]).unwrap();
        for (quantized, together) in quantized.iter().zip([first, second]) {
            let mut alone = vec![0.0; quantized.to()];
            quantized.forward(&x, &mut alone).unwrap();
            assert_eq!(alone, together);
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let linear = Linear { from: 2, to: 3, weight: &[0.0; 6], bias: None };
        let quantized = QuantizedLinear::new(&linear).unwrap();
        assert!(quantized.forward(&[0.0; 3], &mut [0.0; 3]).is_err());
        assert!(quantized.forward(&[0.0; 2], &mut [0.0; 2]).is_err());
        assert!(QuantizedLinear::new(&Linear { weight: &[0.0; 5], ..linear }).is_err());
        assert!(QuantizedLinear::new(&Linear { from: 0, weight: &[], ..linear }).is_err());
        assert!(QuantizedLinear::logits(&[0.0; 5], 2).is_err());
    }
}
