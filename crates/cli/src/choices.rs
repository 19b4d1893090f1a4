//! Every choice of the kernels by name. A new one joins the tour by its line here.
//!
//! Each is built into an otherwise plain call: scaled dot, causal, no position, as many key heads as heads.
//! Settings follow the length, so that a short check and a long measurement have the same shape.

use serde::Serialize;
use whatwhere_kernels::{
    Error,
    attention::{
        Angles, Attention, Bias, Buckets, Dropout, Feature, FeatureKind, Focus, Inputs, Layout,
        Magnitude, Score, Shape, alibi_slopes,
        pattern::{
            And, Causal, Dilated, Documents, Draw, Fixed, Full, Global, KeyLengths, Or, Pattern,
            Prefix, Random, Strided, Window, from_fn,
        },
    },
};

use crate::supply::{Supply, Tensors};

/// The question a choice answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Axis {
    Score,
    Pattern,
    Position,
    Heads,
    Weights,
}

impl Axis {
    /// The question, and what the other axes hold still meanwhile.
    pub(crate) fn question(self) -> (&'static str, &'static str) {
        match self {
            Axis::Score => ("score", "how alike are a query and a key? (causal, no position)"),
            Axis::Pattern => ("pattern", "which keys may a query see? (scaled_dot, no position)"),
            Axis::Position => ("position", "what does a token know of its place? (causal)"),
            Axis::Heads => ("heads", "how many heads of keys and values? (causal, no position)"),
            Axis::Weights => ("weights", "what happens to the weights? (causal, no position)"),
        }
    }
}

/// One choice.
pub(crate) struct Choice {
    pub(crate) axis: Axis,
    /// As in settings and in JSON.
    pub(crate) name: &'static str,
    /// What it does, in a few words.
    pub(crate) about: &'static str,
    part: Part,
}

/// The part of a call that a choice replaces.
enum Part {
    Field(for<'a> fn(&mut Attention<'a>, &'a Supply)),
    Pattern(MakePattern),
    KeyHeads(fn(usize) -> usize),
}

type MakePattern = fn(&Shape, u64) -> Result<Box<dyn Pattern>, Error>;

/// A call with everything it needs.
pub(crate) struct Call<'a> {
    pub(crate) attention: Attention<'a>,
    pub(crate) inputs: Inputs<'a>,
    pub(crate) d_out: &'a [f32],
}

impl Choice {
    /// Builds a call of this choice on numbers drawn from `seed`, and hands it to `work`.
    pub(crate) fn run<R>(
        &self,
        shape: Shape,
        seed: u64,
        work: impl FnOnce(&Call) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut shape = shape;
        let mut pattern: Box<dyn Pattern> = Box::new(Causal::upper_left());
        match self.part {
            Part::Pattern(make) => pattern = make(&shape, seed)?,
            Part::KeyHeads(count) => shape.kv_heads = count(shape.heads),
            Part::Field(_) => {}
        }
        let supply = Supply::new(shape, seed);
        let mut attention = Attention::new(shape, &*pattern);
        self.set(&mut attention, &supply);
        let Tensors { q, k, v, d_out } = &Tensors::new(&shape, seed);
        work(&Call { attention, inputs: Inputs { q, k, v }, d_out })
    }

    /// Sets the field of a call that this choice is about, if it is a field.
    pub(crate) fn set<'a>(&self, attention: &mut Attention<'a>, supply: &'a Supply) {
        if let Part::Field(set) = self.part {
            set(attention, supply);
        }
    }
}

/// All choices, axis by axis.
pub(crate) fn every() -> Vec<Choice> {
    let mut all = scores();
    all.extend(patterns());
    all.extend(positions());
    all.extend(heads());
    all.extend(weights());
    all
}

fn scores() -> Vec<Choice> {
    let score =
        |name, about, set| Choice { axis: Axis::Score, name, about, part: Part::Field(set) };
    vec![
        score("scaled_dot", "q·k / √head_dim", |_, _| {}),
        score("dot", "q·k", |a, _| a.score = Score::Dot { scale: 1.0 }),
        score("cosine", "10 q·k / |q||k|", |a, _| a.score = Score::Cosine { scale: 10.0 }),
        score("additive", "w·tanh(q + k)", |a, s| {
            a.score = Score::Additive { weight: s.draw(s.shape.heads * s.shape.head_dim) };
        }),
        score("soft_cap", "scaled_dot within ±5", |a, _| a.soft_cap = Some(5.0)),
    ]
}

fn patterns() -> Vec<Choice> {
    let pattern = |name, about, make: MakePattern| {
        let part = Part::Pattern(make);
        Choice { axis: Axis::Pattern, name, about, part }
    };
    vec![
        pattern("full", "every key", |_, _| Ok(Box::new(Full))),
        pattern("causal", "itself and the past", |_, _| Ok(Box::new(Causal::upper_left()))),
        pattern("window", "1/8 of the length back", |s, _| Ok(Box::new(window(s)))),
        pattern("dilated", "1/8, every 4th key", |s, _| {
            Ok(Box::new(Dilated::new(part(s, 8), 0, 4)?))
        }),
        pattern("strided", "nearby, then every √length", |s, _| {
            Ok(Box::new(Strided::new(s.queries.isqrt().max(1))?))
        }),
        pattern("fixed", "own block, ends of others", |s, _| {
            Ok(Box::new(Fixed::new(part(s, 8), part(s, 64))?))
        }),
        pattern("random", "3 of 16 blocks", |s, seed| Ok(Box::new(causal(random(s, seed)?)))),
        pattern("global", "1/64 of the places", |s, _| {
            Ok(Box::new(causal(Global::first(part(s, 64)))))
        }),
        pattern("big_bird", "window or random or global", |s, seed| {
            let sparse = Or(random(s, seed)?, Global::first(part(s, 64)));
            Ok(Box::new(causal(Or(window(s), sparse))))
        }),
        pattern("prefix", "the first 1/4, then causal", |s, _| {
            Ok(Box::new(Prefix::new(vec![part(s, 4)])?))
        }),
        pattern("documents", "4 documents", |s, _| {
            let starts = [0, s.keys / 8, s.keys / 2, s.keys * 3 / 4];
            Ok(Box::new(causal(Documents::new(vec![starts.to_vec()])?)))
        }),
        pattern("key_lengths", "1/4 is padding", |s, _| {
            Ok(Box::new(causal(KeyLengths::new(vec![s.keys - s.keys / 4])?)))
        }),
        pattern("function", "causal, asked pair by pair", |_, _| {
            Ok(Box::new(from_fn(|pair| pair.key <= pair.query)))
        }),
    ]
}

/// A part of the length, at least one place.
fn part(shape: &Shape, divisor: usize) -> usize {
    (shape.keys / divisor).max(1)
}

fn causal<P>(pattern: P) -> And<Causal, P> {
    And(Causal::upper_left(), pattern)
}

fn window(shape: &Shape) -> Window {
    Window { left: part(shape, 8), right: 0 }
}

/// BigBird's three blocks for each, in sixteen blocks.
fn random(shape: &Shape, seed: u64) -> Result<Random, Error> {
    let Shape { heads, queries, keys, .. } = *shape;
    let block = keys.div_ceil(16).max(1);
    let count = 3.min(keys.div_ceil(block));
    Random::new(Draw { heads, queries, keys, block, count, seed })
}

/// The position encodings; the picture draws some of them.
pub(crate) fn positions() -> Vec<Choice> {
    let position =
        |name, about, set| Choice { axis: Axis::Position, name, about, part: Part::Field(set) };
    vec![
        position("none", "the pattern alone tells", |_, _| {}),
        position("rotary", "turns pairs of channels", |a, s| {
            a.features.push(rotary(s, s.shape.head_dim, Layout::Interleaved));
        }),
        position("partial_rotary", "1/4 of them, half-split", |a, s| {
            // Pairs need an even number of channels.
            let channels = (s.shape.head_dim / 8 * 2).max(2);
            a.features.push(rotary(s, channels, Layout::HalfSplit));
        }),
        position("polar", "PoPE: magnitude and phase", |a, s| {
            a.features.push(polar(s));
        }),
        position("alibi", "a slope per head", |a, s| {
            a.biases.push(Bias::Slopes { slopes: s.keep(alibi_slopes(s.shape.heads)) });
        }),
        position("t5", "a number per bucket", |a, s| {
            let buckets = Buckets { count: 32, max_distance: 128, bidirectional: false };
            let table = s.draw(s.shape.heads * buckets.count);
            a.biases.push(Bias::Buckets { table, buckets });
        }),
        position("distance_table", "a number per distance to 127", |a, s| {
            let table = s.draw(s.shape.heads * 128);
            a.biases.push(Bias::Table { table, left: 127, right: 0 });
        }),
        position("shaw_keys", "a vector per distance to 16", |a, s| {
            a.biases.push(s.shaw_keys(SHAW_REACH));
        }),
        position("shaw_keys_values", "the same for values, too", |a, s| {
            a.biases.push(s.shaw_keys(SHAW_REACH));
            a.relative_values = Some(s.vectors(SHAW_REACH, SHAW_REACH));
        }),
        position("transformer_xl", "a vector per distance", |a, s| {
            let Shape { heads, keys, head_dim, .. } = s.shape;
            let scale = 1.0 / (head_dim as f32).sqrt();
            let [u, v] = [(); 2].map(|()| Some(s.draw(heads * head_dim)));
            let vectors = s.vectors(keys - 1, 0);
            a.query_bias = u;
            a.biases.push(Bias::Relative { vectors, query_bias: v, scale });
        }),
        position("dense", "a number per pair, learned", |a, s| {
            let Shape { queries, keys, .. } = s.shape;
            let shape = [1, 1, queries, keys];
            a.biases.push(Bias::Dense { values: s.draw(queries * keys), shape, learned: true });
        }),
    ]
}

const SHAW_REACH: usize = 16; // the paper's k for its base model
const BASE: f64 = 10_000.0; // of the geometric frequencies, as published

fn rotary(supply: &Supply, channels: usize, layout: Layout) -> Feature<'_> {
    Feature {
        kind: FeatureKind::Rotary { layout },
        channels: 0..channels,
        heads: 0..supply.shape.heads,
        angles: supply.angles(&Angles::rotary_frequencies(channels, BASE)),
    }
}

/// As in the paper, with δ where its language models start: 0.
fn polar(supply: &Supply) -> Feature<'_> {
    let Shape { heads, head_dim, .. } = supply.shape;
    let delta = supply.keep(vec![0.0; heads * head_dim]);
    Feature {
        kind: FeatureKind::Polar { magnitude: Magnitude::Softplus, delta: Some(delta) },
        channels: 0..head_dim,
        heads: 0..heads,
        angles: supply.angles(&Angles::polar_frequencies(head_dim, BASE)),
    }
}

fn heads() -> Vec<Choice> {
    let layout = |name, about, count| {
        let part = Part::KeyHeads(count);
        Choice { axis: Axis::Heads, name, about, part }
    };
    vec![
        layout("multi_head", "one for each", |heads| heads),
        layout("grouped", "about one for 4", |heads| {
            // The largest divisor that leaves groups of four or more.
            (1..=heads.div_ceil(4)).rev().find(|count| heads % count == 0).unwrap_or(1)
        }),
        layout("multi_query", "one for all", |_| 1),
    ]
}

fn weights() -> Vec<Choice> {
    let extra =
        |name, about, set| Choice { axis: Axis::Weights, name, about, part: Part::Field(set) };
    vec![
        extra("dropout", "a tenth is lost", |a, s| {
            a.dropout = Some(Dropout { rate: 0.1, seed: s.seed });
        }),
        extra("focus", "Luong's Gaussian", |a, s| {
            let keys = s.shape.keys as f32;
            let centers = s.draw(s.shape.rows()).iter().map(|x| (x + 1.0) / 2.0 * keys).collect();
            let deviation = (keys / 16.0).max(1.0);
            a.focus = Some(Focus { centers: s.keep(centers), deviation });
        }),
    ]
}
