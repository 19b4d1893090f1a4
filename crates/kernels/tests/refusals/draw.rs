//! Random calls, mostly right.

use std::{ops::Range, sync::Arc};

use whatwhere_kernels::attention::{
    Angles, Attention, Bias, Dropout, Feature, FeatureKind, Focus, Inputs, Layout, Magnitude,
    Relative, Score, Shape, pattern::Full,
};
use whatwhere_random::Random;

use crate::{common::numbers, rules::product};

/// What random calls borrow.
pub(crate) struct Tables {
    pub(crate) numbers: Vec<f32>,
    angles: Vec<AngleTable>,
}

/// Angles, and what they were made for.
pub(crate) struct AngleTable {
    pub(crate) frequencies: usize,
    pub(crate) positions: Range<usize>,
    angles: Arc<Angles>,
}

impl Tables {
    pub(crate) fn new() -> Self {
        let make = |frequencies: usize, positions: Range<usize>| AngleTable {
            angles: Arc::new(Angles::new(&vec![0.1; frequencies], positions.clone(), 1.0)),
            frequencies,
            positions,
        };
        let angles = (0..5).flat_map(|count| [make(count, 0..20), make(count, 3..5)]);
        Self { numbers: numbers(1, LONGEST), angles: angles.collect() }
    }

    pub(crate) fn of(&self, angles: &Angles) -> &AngleTable {
        let mut tables = self.angles.iter();
        tables.find(|table| std::ptr::eq(&*table.angles, angles)).expect("angles come from here")
    }
}

/// Longer than any slice that a call of small sizes needs.
const LONGEST: usize = 1 << 14;
/// Sizes near the ends of what machines count in.
const HUGE: [usize; 6] =
    [usize::MAX, usize::MAX / 2 + 1, 1 << 62, 1 << 40, 1 << 32, u32::MAX as usize];

/// Random choices, mostly right.
pub(crate) struct Dice(pub(crate) Random);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.below(end) }
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A small size, rarely 0, or a huge one.
    fn size(&mut self) -> usize {
        match self.below(60) {
            0 => 0,
            1 => HUGE[self.below(HUGE.len())],
            _ => 1 + self.below(4),
        }
    }

    /// A length or distance, often 0.
    fn count(&mut self) -> usize {
        if self.one_in(40) { self.size() } else { self.below(5) }
    }

    /// A slice of as many numbers as the sizes ask for, rarely of another length.
    fn slice<'t>(&mut self, tables: &'t Tables, sizes: &[usize]) -> &'t [f32] {
        let right = product(sizes);
        let wrong = self.one_in(40) || right > LONGEST as u128;
        &tables.numbers[..if wrong { self.below(20) } else { right as usize }]
    }

    /// A setting between 0 and 1, rarely a number that is no setting at all.
    fn number(&mut self) -> f32 {
        const ODD: [f32; 7] =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.5, 0.0, 1.0, f32::MIN_POSITIVE];
        if self.one_in(20) { ODD[self.below(ODD.len())] } else { 0.5 }
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(3).then(|| make(self))
    }

    pub(crate) fn call<'t>(&mut self, tables: &'t Tables) -> (Attention<'t>, Inputs<'t>) {
        let kv_heads = self.size();
        let group = 1 + self.below(2);
        let heads = if self.one_in(30) { self.size() } else { kv_heads.saturating_mul(group) };
        let (keys, value_dim) = (self.count(), self.size());
        let shape = Shape {
            batch: self.size(),
            heads,
            kv_heads,
            queries: self.count(),
            keys,
            head_dim: self.size(),
            // No keys have values of any width; the output is still as wide, and must be held in memory.
            value_dim: if keys == 0 { value_dim.min(4) } else { value_dim },
        };
        let Shape { batch, queries, head_dim, value_dim, .. } = shape;
        let attention = Attention {
            first_query: self.count(),
            first_key: self.count(),
            query_bias: self.maybe(|dice| dice.slice(tables, &[heads, head_dim])),
            features: (0..self.below(3)).map(|_| self.feature(tables, &shape)).collect(),
            score: self.score(tables, &shape),
            soft_cap: self.maybe(Self::number),
            biases: (0..self.below(3)).map(|_| self.bias(tables, &shape)).collect(),
            focus: self.maybe(|dice| Focus {
                centers: dice.slice(tables, &[batch, heads, queries]),
                deviation: dice.number(),
            }),
            dropout: self.maybe(|dice| Dropout { rate: dice.number(), seed: 1 }),
            relative_values: self.maybe(|dice| dice.vectors(tables, heads, value_dim)),
            ..Attention::new(shape, &Full)
        };
        let inputs = Inputs {
            q: self.slice(tables, &[batch, heads, queries, head_dim]),
            k: self.slice(tables, &[batch, kv_heads, keys, head_dim]),
            v: self.slice(tables, &[batch, kv_heads, keys, value_dim]),
        };
        (attention, inputs)
    }

    fn score<'t>(&mut self, tables: &'t Tables, shape: &Shape) -> Score<&'t [f32]> {
        match self.below(4) {
            0 => Score::Additive { weight: self.slice(tables, &[shape.heads, shape.head_dim]) },
            1 => Score::Cosine { scale: self.number() },
            _ => Score::Dot { scale: self.number() },
        }
    }

    fn feature<'t>(&mut self, tables: &'t Tables, shape: &Shape) -> Feature<&'t [f32]> {
        let channels = self.range(shape.head_dim);
        let heads = self.range(shape.heads);
        let is_rotary = self.one_in(2);
        let wanted = if is_rotary { channels.len() / 2 } else { channels.len() };
        let fitting = tables.angles.iter().find(|table| table.frequencies == wanted);
        let any = &tables.angles[self.below(tables.angles.len())];
        let angles = fitting.filter(|_| !self.one_in(10)).unwrap_or(any).angles.clone();
        let kind = if is_rotary {
            FeatureKind::Rotary { layout: Layout::HalfSplit }
        } else {
            let delta = self.maybe(|dice| dice.slice(tables, &[shape.heads, channels.len()]));
            FeatureKind::Polar { magnitude: Magnitude::Softplus, delta }
        };
        Feature { kind, channels, heads, angles }
    }

    /// A part of `0..end`, rarely beyond it or backwards.
    fn range(&mut self, end: usize) -> Range<usize> {
        match self.below(30) {
            0 => self.size()..self.size(),
            1 => end..end.saturating_add(1),
            _ => {
                let start = self.below(end.min(2));
                start..end
            }
        }
    }

    fn bias<'t>(&mut self, tables: &'t Tables, shape: &Shape) -> Bias<&'t [f32]> {
        let Shape { batch, heads, queries, keys, head_dim, .. } = *shape;
        match self.below(4) {
            0 | 1 => {
                let Relative { table, left, right, .. } = self.vectors(tables, heads, 1);
                Bias::ByDistance { table, left, right }
            }
            2 => Bias::Relative {
                vectors: self.vectors(tables, heads, head_dim),
                query_bias: self.maybe(|dice| dice.slice(tables, &[heads, head_dim])),
                scale: self.number(),
            },
            _ => {
                let shape = [batch, heads, queries, keys].map(|whole| match self.below(30) {
                    0 => self.size(),
                    1..10 => 1,
                    _ => whole,
                });
                Bias::Dense { values: self.slice(tables, &shape), shape, learned: self.one_in(2) }
            }
        }
    }

    fn vectors<'t>(
        &mut self,
        tables: &'t Tables,
        heads: usize,
        width: usize,
    ) -> Relative<&'t [f32]> {
        let (left, right, per_head) = (self.count(), self.count(), self.one_in(2));
        let count = left.saturating_add(right).saturating_add(1);
        let table = self.slice(tables, &[if per_head { heads } else { 1 }, count, width]);
        Relative { table, per_head, left, right }
    }
}
