//! Every kind of position: what positions can do to a call, alone and together.

use std::{cell::Cell, f32::consts::TAU, ops::Range, sync::Arc};

use whatwhere_kernels::attention::{
    Angles, Attention, Bias, Buckets, Feature, FeatureKind, Layout, Magnitude, Relative, Shape,
    alibi_slopes, alibi_table,
};

use super::{Sizes, numbers};

/// Positions in a row of the grid.
const GRID: usize = 5;

/// A use of positions by name.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub(crate) name: &'static str,
    /// Whether scores depend on the distance of two positions alone.
    pub(crate) is_relative: bool,
    /// Whether queries and keys are changed before they are compared.
    pub(crate) has_features: bool,
    set: for<'a> fn(&mut Attention<'a>, &'a Supply),
}

impl Position {
    pub(crate) const NOTHING: Self =
        Self { name: "no position", is_relative: true, has_features: false, set: |_, _| {} };

    pub(crate) fn set<'a>(&self, attention: &mut Attention<'a>, supply: &'a Supply) {
        (self.set)(attention, supply);
    }
}

pub(crate) fn every_position() -> Vec<Position> {
    let feature = |name, set| Position { name, is_relative: true, has_features: true, set };
    let bias = |name, set| Position { name, is_relative: true, has_features: false, set };
    let dense = |name, set| Position { name, is_relative: false, has_features: false, set };
    vec![
        Position::NOTHING,
        feature("rotary, interleaved", |a, s| a.features.push(s.rotary(Layout::Interleaved))),
        feature("rotary, half split", |a, s| a.features.push(s.rotary(Layout::HalfSplit))),
        feature("rotary on some channels", |a, s| {
            a.features.push(s.half_rotary(Layout::HalfSplit));
        }),
        feature("rotary on some heads", |a, s| {
            a.features.push(Feature { heads: s.last_heads(), ..s.rotary(Layout::Interleaved) });
        }),
        feature("polar", |a, s| a.features.push(s.polar(Magnitude::Softplus, s.delta()))),
        feature("polar, relu", |a, s| a.features.push(s.polar(Magnitude::Relu, s.delta()))),
        feature("polar, identity, no delta", |a, s| {
            a.features.push(s.polar(Magnitude::Identity, None));
        }),
        feature("polar on some channels", |a, s| {
            a.features.push(s.half_polar());
        }),
        feature("polar on some heads", |a, s| {
            let whole = s.polar(Magnitude::Softplus, s.delta());
            a.features.push(Feature { heads: s.last_heads(), ..whole });
        }),
        feature("polar and rotary share a head", |a, s| {
            a.features.extend([s.half_rotary(Layout::Interleaved), s.half_polar()]);
        }),
        feature("polar, relu, after a query bias", |a, s| {
            a.query_bias = Some(s.take(a.shape.heads * a.shape.head_dim));
            a.features.push(s.polar(Magnitude::Relu, s.delta()));
        }),
        feature("rotary on a grid", |a, s| {
            let angles = s.rotary_grid.clone();
            a.features.push(Feature { angles, ..s.rotary(Layout::HalfSplit) });
        })
        .by_index(),
        feature("polar on a grid", |a, s| {
            let angles = s.polar_grid.clone();
            a.features.push(Feature { angles, ..s.polar(Magnitude::Softplus, s.delta()) });
        })
        .by_index(),
        bias("alibi", |a, s| a.biases.push(s.alibi())),
        bias("t5, causal", |a, s| a.biases.push(s.t5(false))),
        bias("t5, bidirectional", |a, s| a.biases.push(s.t5(true))),
        bias("distance table", |a, s| {
            let (left, right) = (9, 4);
            let table = s.take(a.shape.heads * (left + 1 + right));
            a.biases.push(Bias::ByDistance { table, left, right });
        }),
        bias("shaw keys, per head", |a, s| {
            let vectors = s.vectors(a.shape.head_dim, true, (6, 6));
            a.biases.push(Bias::Relative { vectors, query_bias: None, scale: a.score.scale() });
        }),
        bias("shaw keys, shared", |a, s| {
            let vectors = s.vectors(a.shape.head_dim, false, (5, 8));
            a.biases.push(Bias::Relative { vectors, query_bias: None, scale: a.score.scale() });
        }),
        bias("shaw keys and values", |a, s| {
            let vectors = s.vectors(a.shape.head_dim, true, (6, 6));
            a.biases.push(Bias::Relative { vectors, query_bias: None, scale: a.score.scale() });
            a.relative_values = Some(s.vectors(a.shape.value_dim, true, (6, 6)));
        }),
        bias("shaw values, shared", |a, s| {
            a.relative_values = Some(s.vectors(a.shape.value_dim, false, (0, 40)));
        }),
        bias("transformer-xl", |a, s| {
            a.query_bias = Some(s.take(a.shape.heads * a.shape.head_dim));
            let vectors = s.vectors(a.shape.head_dim, true, (s.span(), 0));
            let query_bias = Some(s.take(a.shape.heads * a.shape.head_dim));
            a.biases.push(Bias::Relative { vectors, query_bias, scale: a.score.scale() });
        }),
        dense("dense, whole", |a, s| {
            let Shape { batch, heads, queries, keys, .. } = a.shape;
            a.biases.push(s.dense([batch, heads, queries, keys], true));
        }),
        dense("dense, fixed, hiding pairs", |a, s| {
            a.biases.push(s.hiding([1, 1, a.shape.queries, a.shape.keys]));
        }),
        dense("dense, per head", |a, s| {
            let Shape { heads, queries, keys, .. } = a.shape;
            a.biases.push(s.dense([1, heads, queries, keys], true));
        }),
        dense("dense, per sequence and key", |a, s| {
            a.biases.push(s.dense([a.shape.batch, 1, 1, a.shape.keys], true));
        }),
        dense("dense, per head and query, and one for all", |a, s| {
            a.biases.push(s.dense([1, a.shape.heads, a.shape.queries, 1], true));
            a.biases.push(s.dense([1; 4], true));
        }),
        feature("polar and alibi", |a, s| {
            a.features.push(s.polar(Magnitude::Softplus, s.delta()));
            a.biases.push(s.alibi());
        }),
        bias("shaw keys and t5", |a, s| {
            let vectors = s.vectors(a.shape.head_dim, true, (6, 6));
            a.biases.push(Bias::Relative { vectors, query_bias: None, scale: a.score.scale() });
            a.biases.push(s.t5(true));
        }),
        feature("rotary on some channels and alibi on some heads", |a, s| {
            a.features.push(s.half_rotary(Layout::Interleaved));
            a.biases.push(s.by_distance(&s.some_slopes));
        }),
        feature("everything together", |a, s| {
            let Shape { heads, queries, keys, head_dim, value_dim, .. } = a.shape;
            a.query_bias = Some(s.take(heads * head_dim));
            a.features.extend([s.half_rotary(Layout::Interleaved), s.half_polar()]);
            for (per_head, reach) in [(true, (s.span(), 3)), (false, (4, 2))] {
                let vectors = s.vectors(head_dim, per_head, reach);
                let query_bias = Some(s.take(heads * head_dim));
                a.biases.push(Bias::Relative { vectors, query_bias, scale: 0.3 });
            }
            a.biases.extend([s.alibi(), s.dense([1, heads, queries, keys], true), s.t5(true)]);
            a.relative_values = Some(s.vectors(value_dim, true, (7, 3)));
        })
        .by_index(),
    ]
}

impl Position {
    /// The same, but some of it belongs to indices and not to positions.
    fn by_index(self) -> Self {
        Self { is_relative: false, ..self }
    }
}

/// What the positions of one call borrow: numbers to learn, angles, slopes.
pub(crate) struct Supply {
    sizes: Sizes,
    numbers: Vec<f32>,
    taken: Cell<usize>,
    deltas: Vec<f32>,
    /// ALiBi's table, and one with every second head without a slope.
    slopes: Vec<f32>,
    some_slopes: Vec<f32>,
    /// T5's tables, causal and bidirectional.
    buckets: [Vec<f32>; 2],
    hiding: Vec<f32>,
    centers: Vec<f32>,
    rotary: Arc<Angles>,
    half_rotary: Arc<Angles>,
    polar: Arc<Angles>,
    half_polar: Arc<Angles>,
    rotary_grid: Arc<Angles>,
    polar_grid: Arc<Angles>,
}

impl Supply {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let Shape { batch, heads, queries, keys, head_dim, value_dim, .. } = sizes.shape;
        let positions = sizes.first_query.min(sizes.first_key)..sizes.end();
        // The largest position takes one bias per pair and, per head, five vectors and five tables of them.
        let vectors = heads * (head_dim + value_dim) * (5 + 2 * (queries + keys) + 100);
        let even = head_dim / 2 * 2;
        let half = half(head_dim).len();
        let rotary = |width| Angles::rotary_frequencies(width, 50.0);
        let polar = |width| Angles::polar_frequencies(width, 50.0);
        let reach = sizes.reach();
        let slopes = alibi_slopes(heads);
        let some = |(head, slope): (usize, &f32)| if head % 2 == 0 { 0.0 } else { *slope };
        let some_slopes: Vec<f32> = slopes.iter().enumerate().map(some).collect();
        Self {
            numbers: numbers(10, batch * heads * queries * keys + vectors + 100),
            taken: Cell::new(0),
            deltas: numbers(11, heads * head_dim).iter().enumerate().map(delta).collect(),
            slopes: alibi_table(&slopes, reach, reach),
            some_slopes: alibi_table(&some_slopes, reach, reach),
            buckets: [false, true].map(|bidirectional| {
                let buckets = Buckets { count: 8, max_distance: 20, bidirectional };
                buckets.table(&numbers(14, heads * buckets.count), reach, reach)
            }),
            hiding: numbers(12, queries * keys)
                .iter()
                .map(|&x| if x < -0.6 { f32::NEG_INFINITY } else { x })
                .collect(),
            centers: numbers(13, batch * heads * queries)
                .iter()
                .map(|x| sizes.first_key as f32 + keys as f32 * (x + 1.0) / 2.0)
                .collect(),
            rotary: Angles::cached(&rotary(even), None, positions.clone(), 1.0),
            half_rotary: Angles::cached(&rotary(half / 2 * 2), None, positions.clone(), 1.2),
            polar: Angles::cached(&polar(head_dim), None, positions.clone(), 1.0),
            half_polar: Angles::cached(&polar(head_dim - half), None, positions.clone(), 1.0),
            rotary_grid: Angles::cached(&rotary(even), Some(GRID), positions.clone(), 1.0),
            polar_grid: Angles::cached(&polar(head_dim), Some(GRID), positions, 1.0),
            sizes,
        }
    }

    /// Numbers in (−1, 1) that nobody else has taken.
    pub(crate) fn take(&self, len: usize) -> &[f32] {
        let start = self.taken.replace(self.taken.get() + len);
        &self.numbers[start..start + len]
    }

    /// One position per row of scores, among those of the keys.
    pub(crate) fn centers(&self) -> &[f32] {
        &self.centers
    }

    /// δ for every head and channel, some outside the range it is clamped to.
    fn delta(&self) -> Option<&[f32]> {
        Some(&self.deltas)
    }

    fn heads(&self) -> Range<usize> {
        0..self.sizes.shape.heads
    }

    /// The upper half of the heads.
    fn last_heads(&self) -> Range<usize> {
        self.sizes.shape.heads / 2..self.sizes.shape.heads
    }

    /// Positions between the first and the last of the call.
    fn span(&self) -> usize {
        self.sizes.shape.queries + self.sizes.shape.keys
    }

    fn rotary(&self, layout: Layout) -> Feature<&[f32]> {
        let channels = 0..self.sizes.shape.head_dim / 2 * 2;
        Feature {
            kind: FeatureKind::Rotary { layout },
            channels,
            heads: self.heads(),
            angles: self.rotary.clone(),
        }
    }

    /// Rotary on the upper half of the channels.
    fn half_rotary(&self, layout: Layout) -> Feature<&[f32]> {
        let half = half(self.sizes.shape.head_dim);
        let channels = half.start..half.start + half.len() / 2 * 2;
        let angles = self.half_rotary.clone();
        Feature { kind: FeatureKind::Rotary { layout }, channels, heads: self.heads(), angles }
    }

    fn polar<'a>(&'a self, magnitude: Magnitude, delta: Option<&'a [f32]>) -> Feature<&'a [f32]> {
        let channels = 0..self.sizes.shape.head_dim;
        let kind = FeatureKind::Polar { magnitude, delta };
        Feature { kind, channels, heads: self.heads(), angles: self.polar.clone() }
    }

    /// Polar on the lower half of the channels.
    fn half_polar(&self) -> Feature<&[f32]> {
        let channels = 0..half(self.sizes.shape.head_dim).start;
        let delta = Some(&self.deltas[..self.sizes.shape.heads * channels.len()]);
        let kind = FeatureKind::Polar { magnitude: Magnitude::Softplus, delta };
        Feature { kind, channels, heads: self.heads(), angles: self.half_polar.clone() }
    }

    fn alibi(&self) -> Bias<&[f32]> {
        self.by_distance(&self.slopes)
    }

    /// A table over all distances of the call.
    fn by_distance<'a>(&self, table: &'a [f32]) -> Bias<&'a [f32]> {
        let reach = self.sizes.reach();
        Bias::ByDistance { table, left: reach, right: reach }
    }

    fn t5(&self, bidirectional: bool) -> Bias<&[f32]> {
        self.by_distance(&self.buckets[usize::from(bidirectional)])
    }

    fn vectors(
        &self,
        width: usize,
        per_head: bool,
        (left, right): (usize, usize),
    ) -> Relative<&[f32]> {
        let tables = if per_head { self.sizes.shape.heads } else { 1 };
        let table = self.take(tables * (left + 1 + right) * width);
        Relative { table, per_head, left, right }
    }

    fn dense(&self, shape: [usize; 4], learned: bool) -> Bias<&[f32]> {
        Bias::Dense { values: self.take(shape.iter().product()), shape, learned }
    }

    /// A fixed bias by query and key that is −∞ for some pairs.
    fn hiding(&self, shape: [usize; 4]) -> Bias<&[f32]> {
        Bias::Dense { values: &self.hiding, shape, learned: false }
    }
}

/// δ beyond either end of the range it is clamped to, at the ends, and inside.
fn delta((index, x): (usize, &f32)) -> f32 {
    match index % 6 {
        0 => 0.7,
        1 => -7.0,
        2 => 0.0,
        3 => -TAU,
        _ => TAU * (x - 1.0) / 2.0,
    }
}

/// The upper half of the channels; the lower half is at least one channel wide.
fn half(head_dim: usize) -> Range<usize> {
    head_dim.div_ceil(2)..head_dim
}
