//! From raw queries and keys to what is compared, and gradients back again.
//!
//! A prepared row is `head_dim` wide plus one for each polar channel: channel `c` keeps its index (rotated, or the
//! cosine part of a polar pair); the sine parts follow. Queries carry the score's scale. Under the cosine score both
//! sides have length 1, under the additive score they are brought into its form later.

use pulp::{Simd, WithSimd};

use crate::{
    attention::{
        Attention, DELTA_RANGE, Feature, FeatureKind, Layout, Magnitude, indices::Indices,
    },
    simd::{math, rows::dot},
};

/// Whose rows are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Query,
    Key,
}

/// How one head prepares its rows: the features that apply to it and the key phases of polar ones.
pub(crate) struct Preparation<'a> {
    attention: &'a Attention<'a>,
    head: usize,
    features: Vec<HeadFeature<'a>>,
}

struct HeadFeature<'a> {
    feature: &'a Feature<&'a [f32]>,
    /// Index of the feature in the call.
    index: usize,
    /// First sine part of a polar feature in the prepared row.
    sines: usize,
    /// Of a polar feature that has them.
    delta: Option<Phases>,
}

/// Cosine and sine of δ per channel.
struct Phases {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Phases {
    fn new(delta: &[f32]) -> Self {
        let delta = delta.iter().map(|delta| delta.clamp(DELTA_RANGE.0, DELTA_RANGE.1));
        Self { cos: delta.clone().map(f32::cos).collect(), sin: delta.map(f32::sin).collect() }
    }
}

impl<'a> Preparation<'a> {
    pub(crate) fn new(attention: &'a Attention<'a>, head: usize) -> Self {
        let mut sines = attention.shape.head_dim;
        let mut features = Vec::new();
        for (index, feature) in attention.features.iter().enumerate() {
            if !feature.heads.contains(&head) || feature.channels.is_empty() {
                continue;
            }
            let width = feature.channels.len();
            let delta = match feature.kind {
                FeatureKind::Polar { delta: Some(delta), .. } => {
                    Some(Phases::new(&delta[head * width..][..width]))
                }
                _ => None,
            };
            features.push(HeadFeature { feature, index, sines, delta });
            sines += feature.widening(head);
        }
        Self { attention, head, features }
    }

    /// Whether prepared keys are the raw keys.
    pub(crate) fn keys_are_raw(&self) -> bool {
        self.features.is_empty() && self.attention.score.takes_raw_keys()
    }

    /// Position of the first row of a side.
    fn first_position(&self, side: Side) -> usize {
        match side {
            Side::Query => self.attention.first_query,
            Side::Key => self.attention.first_key,
        }
    }

    fn bias(&self, side: Side) -> Option<&'a [f32]> {
        let dim = self.attention.shape.head_dim;
        match side {
            Side::Query => self.attention.query_bias.map(|u| &u[self.head * dim..][..dim]),
            Side::Key => None,
        }
    }
}

/// Prepares rows of one side.
pub(crate) struct Prepare<'a> {
    pub(crate) preparation: &'a Preparation<'a>,
    pub(crate) side: Side,
    pub(crate) indices: Indices<'a>,
    /// `[rows, head_dim]`.
    pub(crate) raw: &'a [f32],
    /// `[rows, width]`.
    pub(crate) prepared: &'a mut [f32],
}

impl WithSimd for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self { preparation, side, indices, raw, prepared } = self;
        let dim = preparation.attention.shape.head_dim;
        let width = preparation.attention.width(preparation.head);
        let (scale, unit) = preparation.attention.score.preparation(side);
        let first = preparation.first_position(side);
        let rows = raw.chunks_exact(dim).zip(prepared.chunks_exact_mut(width));
        for (index, (raw, prepared)) in indices.iter().zip(rows) {
            let position = first + index;
            form_row(s, preparation, side, position, raw, prepared);
            let factor = if unit { scale * inverse_norm(s, prepared) } else { scale };
            if factor != 1.0 {
                for value in prepared {
                    *value *= factor;
                }
            }
        }
    }
}

/// One row with bias and features, before scale and norm.
#[inline(always)]
fn form_row<S: Simd>(
    s: S,
    preparation: &Preparation,
    side: Side,
    position: usize,
    raw: &[f32],
    out: &mut [f32],
) {
    let dim = raw.len();
    match preparation.bias(side) {
        None => out[..dim].copy_from_slice(raw),
        Some(bias) => {
            for ((out, raw), bias) in out.iter_mut().zip(raw).zip(bias) {
                *out = raw + bias;
            }
        }
    }
    for HeadFeature { feature, sines, delta, .. } in &preparation.features {
        let (cos, sin) = feature.angles.at(position);
        let (head, tail) = out.split_at_mut(*sines);
        let x = &mut head[feature.channels.clone()];
        match feature.kind {
            FeatureKind::Rotary { layout } => {
                pairs(layout, x, cos, sin, |[a, b], cos, sin| {
                    [a * cos - b * sin, a * sin + b * cos]
                });
            }
            FeatureKind::Polar { magnitude, .. } => {
                let y = &mut tail[..x.len()];
                let delta = delta.as_ref().filter(|_| side == Side::Key);
                for at in (0..x.len()).step_by(S::F32_LANES) {
                    let (cos, sin) = turned(s, at, (cos, sin), delta);
                    let (size, _) = magnitude_of(s, magnitude, load(s, x, at));
                    store(s, x, at, s.mul_f32s(size, cos));
                    store(s, y, at, s.mul_f32s(size, sin));
                }
            }
        }
    }
}

/// Gradients of prepared rows, added to those of the raw rows and of δ.
pub(crate) struct PrepareBackward<'a> {
    pub(crate) preparation: &'a Preparation<'a>,
    pub(crate) side: Side,
    pub(crate) indices: Indices<'a>,
    /// `[rows, head_dim]`.
    pub(crate) raw: &'a [f32],
    /// `[rows, width]`; used as working space.
    pub(crate) d_prepared: &'a mut [f32],
    /// `[rows, head_dim]`, added to.
    pub(crate) d_raw: &'a mut [f32],
    /// Gradients of the query bias, `[head_dim]`, and of each feature's δ, `[channels]`; added to.
    pub(crate) d_bias: &'a mut [f32],
    pub(crate) d_deltas: &'a mut [Vec<f32>],
    /// At least `width` values of working space.
    pub(crate) row: &'a mut [f32],
}

impl WithSimd for PrepareBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self { preparation, side, indices, raw, d_prepared, d_raw, d_bias, d_deltas, row } =
            self;
        let dim = preparation.attention.shape.head_dim;
        let width = preparation.attention.width(preparation.head);
        let (scale, unit) = preparation.attention.score.preparation(side);
        let formed = &mut row[..width];
        let rows = raw
            .chunks_exact(dim)
            .zip(d_prepared.chunks_exact_mut(width))
            .zip(d_raw.chunks_exact_mut(dim));
        let first = preparation.first_position(side);
        for (index, ((raw, d), d_raw)) in indices.iter().zip(rows) {
            let position = first + index;
            if unit {
                form_row(s, preparation, side, position, raw, formed);
                // With n = f/|f|: d_f = (d − n (n·d)) / |f|.
                let inverse = inverse_norm(s, formed);
                let along = dot(s, formed, d) * inverse * inverse;
                for (d, f) in d.iter_mut().zip(formed.iter()) {
                    *d = scale * inverse * (*d - f * along);
                }
            } else if scale != 1.0 {
                for d in d.iter_mut() {
                    *d *= scale;
                }
            }
            for feature in &preparation.features {
                feature_backward(s, preparation, feature, side, position, raw, d, d_deltas);
            }
            for (d_raw, d) in d_raw.iter_mut().zip(d.iter()) {
                *d_raw += d;
            }
            for (d_bias, d) in d_bias.iter_mut().zip(d.iter()) {
                *d_bias += d;
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one step of the loop above, split off to be read")]
fn feature_backward<S: Simd>(
    s: S,
    preparation: &Preparation,
    HeadFeature { feature, index, sines, delta }: &HeadFeature,
    side: Side,
    position: usize,
    raw: &[f32],
    d: &mut [f32],
    d_deltas: &mut [Vec<f32>],
) {
    let (cos, sin) = feature.angles.at(position);
    let channels = feature.channels.clone();
    let (head, tail) = d.split_at_mut(*sines);
    let d_x = &mut head[channels.clone()];
    match feature.kind {
        FeatureKind::Rotary { layout } => {
            pairs(layout, d_x, cos, sin, |[a, b], cos, sin| [a * cos + b * sin, b * cos - a * sin]);
        }
        FeatureKind::Polar { magnitude, .. } => {
            let (raw, d_y) = (&raw[channels.clone()], &tail[..channels.len()]);
            let bias = preparation.bias(side).map(|bias| &bias[channels]);
            let delta = delta.as_ref().filter(|_| side == Side::Key);
            for at in (0..raw.len()).step_by(S::F32_LANES) {
                let (cos, sin) = turned(s, at, (cos, sin), delta);
                let x = load(s, raw, at);
                let x = bias.map_or(x, |bias| s.add_f32s(x, load(s, bias, at)));
                let (size, slope) = magnitude_of(s, magnitude, x);
                let (dx, dy) = (load(s, d_x, at), load(s, d_y, at));
                if delta.is_some() {
                    let across = s.sub_f32s(s.mul_f32s(dy, cos), s.mul_f32s(dx, sin));
                    let d_delta = &mut d_deltas[*index];
                    let sum = s.mul_add_e_f32s(size, across, load(s, d_delta, at));
                    store(s, d_delta, at, sum);
                }
                let along = s.mul_add_e_f32s(dx, cos, s.mul_f32s(dy, sin));
                store(s, d_x, at, s.mul_f32s(along, slope));
            }
        }
    }
}

/// Turns every pair of channels. Each layout has a loop of its own, of a form that becomes vectors.
#[inline(always)]
fn pairs(
    layout: Layout,
    x: &mut [f32],
    cos: &[f32],
    sin: &[f32],
    turn: impl Fn([f32; 2], f32, f32) -> [f32; 2],
) {
    let angles = cos.iter().zip(sin);
    match layout {
        Layout::Interleaved => {
            for (pair, (cos, sin)) in x.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                *pair = turn(*pair, *cos, *sin);
            }
        }
        Layout::HalfSplit => {
            let (first, second) = x.split_at_mut(x.len() / 2);
            for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(angles) {
                [*a, *b] = turn([*a, *b], *cos, *sin);
            }
        }
    }
}

/// Cosines and sines of some channels, `at` the first of them, turned on by δ.
#[inline(always)]
fn turned<S: Simd>(
    s: S,
    at: usize,
    (cos, sin): (&[f32], &[f32]),
    delta: Option<&Phases>,
) -> (S::f32s, S::f32s) {
    let (cos, sin) = (load(s, cos, at), load(s, sin, at));
    let Some(delta) = delta else { return (cos, sin) };
    let (c, d) = (load(s, &delta.cos, at), load(s, &delta.sin, at));
    let turned_cos = s.sub_f32s(s.mul_f32s(cos, c), s.mul_f32s(sin, d));
    (turned_cos, s.mul_add_e_f32s(sin, c, s.mul_f32s(cos, d)))
}

/// `1/|row|`, or 0 for a zero row.
#[inline(always)]
fn inverse_norm<S: Simd>(s: S, row: &[f32]) -> f32 {
    let square = dot(s, row, row);
    if square == 0.0 { 0.0 } else { 1.0 / square.sqrt() }
}

/// A magnitude and its slope.
#[inline(always)]
fn magnitude_of<S: Simd>(s: S, magnitude: Magnitude, x: S::f32s) -> (S::f32s, S::f32s) {
    let (zero, one) = (s.splat_f32s(0.0), s.splat_f32s(1.0));
    match magnitude {
        Magnitude::Identity => (x, one),
        // NaN stays NaN.
        Magnitude::Relu => {
            let value = s.select_f32s(s.less_than_f32s(x, zero), zero, x);
            (value, s.select_f32s(s.less_than_or_equal_f32s(x, zero), zero, one))
        }
        Magnitude::Softplus => math::softplus(s, x),
    }
}

/// A vector of values from `at` on, zeros where there are no more.
#[inline(always)]
fn load<S: Simd>(s: S, values: &[f32], at: usize) -> S::f32s {
    let values = &values[at..];
    match S::as_simd_f32s(values).0.first() {
        Some(vector) => *vector,
        None => s.partial_load_f32s(values),
    }
}

/// Writes a vector of values from `at` on, as far as there is room.
#[inline(always)]
fn store<S: Simd>(s: S, values: &mut [f32], at: usize, vector: S::f32s) {
    let values = &mut values[at..];
    match S::as_mut_simd_f32s(values).0.first_mut() {
        Some(to) => *to = vector,
        None => s.partial_store_f32s(values, vector),
    }
}
