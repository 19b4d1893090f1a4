//! What the public entry refuses: anything that does not fit together gives an error, never a panic.

mod common;

use std::ops::Range;

use whatwhere_kernels::{
    Angles, Attended, Attention, Bias, Buckets, Dropout, Error, Feature, Focus, Gradients, Inputs,
    Kind, Layout, Magnitude, Relative, Score, Shape,
    pattern::{Full, KeyLengths},
    reference,
};

use common::numbers;

#[test]
fn a_call_is_refused_exactly_when_something_does_not_fit() {
    let tables = Tables::new();
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..100_000 {
        let (attention, inputs) = Dice(seed).call(&tables);
        let name = format!("seed {seed}, {:?}", attention.shape);
        let fits = fits(&attention, &inputs, &tables);
        let found = attention.forward(&inputs);
        assert_eq!(found.is_ok(), fits, "{name}: {:?}", found.err());
        // The reference takes its time over heads without queries.
        if attention.shape.batch.saturating_mul(attention.shape.heads) < 1000 {
            assert_eq!(reference::forward(&attention, &inputs).is_ok(), fits, "{name}");
        }
        match found {
            Ok(made) => {
                allowed += 1;
                let d_out = &tables.numbers[..made.out.len()];
                assert!(attention.backward(&inputs, &made, d_out).is_ok(), "{name}");
            }
            Err(error) => {
                refused += 1;
                // The settings and the inputs are looked at first.
                let made = Attended { out: Vec::new(), log_sum: Vec::new() };
                assert_eq!(attention.backward(&inputs, &made, &[]), Err(error), "{name}");
            }
        }
    }
    assert!(allowed > 10_000 && refused > 10_000, "{allowed} allowed, {refused} refused");
}

#[test]
fn results_and_gradients_of_the_wrong_length_are_refused() {
    let attention = Attention::new(Shape::square(1, 2, 3, 4), &Full);
    let x = numbers(1, 24);
    let inputs = Inputs { q: &x, k: &x, v: &x };
    let made = attention.forward(&inputs).unwrap();
    for wrong in [0, 1, 23, 25] {
        let length = |what, expected| Error::Length { what, found: wrong, expected };
        let cut = |values: &[f32]| values.iter().copied().cycle().take(wrong).collect::<Vec<f32>>();
        let (mut out, mut log_sum) = (vec![0.0; wrong], [0.0; 6]);
        let found = attention.forward_into(&inputs, &mut out, &mut log_sum);
        assert_eq!(found, Err(length("out", 24)));
        let found = attention.forward_into(&inputs, &mut [0.0; 24], &mut out);
        assert_eq!(found, Err(length("log_sum", 6)));
        let bad_out = Attended { out: cut(&made.out), ..made.clone() };
        assert_eq!(attention.backward(&inputs, &bad_out, &x), Err(length("out", 24)));
        let bad_sum = Attended { log_sum: cut(&made.log_sum), ..made.clone() };
        assert_eq!(attention.backward(&inputs, &bad_sum, &x), Err(length("log_sum", 6)));
        assert_eq!(attention.backward(&inputs, &made, &cut(&x)), Err(length("d_out", 24)));

        let right = Gradients::zeros(&attention);
        for (what, mut gradients) in [
            ("gradients of q", Gradients { q: cut(&x), ..right.clone() }),
            ("gradients of k", Gradients { k: cut(&x), ..right.clone() }),
            ("gradients of v", Gradients { v: cut(&x), ..right.clone() }),
        ] {
            let found =
                attention.backward_into(&inputs, &made.out, &made.log_sum, &x, &mut gradients);
            assert_eq!(found, Err(length(what, 24)));
        }
    }
}

#[test]
fn messages_say_what_was_found_and_what_would_be_right() {
    let shape = Shape { kv_heads: 2, ..Shape::square(1, 4, 3, 8) };
    let angles = Angles::new(&Angles::rotary_frequencies(8, 10_000.0), 0..3, 1.0);
    let rotary = Feature {
        kind: Kind::Rotary { layout: Layout::HalfSplit },
        channels: 0..8,
        heads: 0..4,
        angles: &angles,
    };
    let base = Attention { features: vec![rotary.clone()], ..Attention::new(shape, &Full) };
    let sized = |shape| Attention { shape, features: Vec::new(), ..base.clone() };
    let bias = |bias| Attention { biases: vec![bias], ..base.clone() };
    let feature = |feature| Attention { features: vec![feature], ..base.clone() };
    let buckets = Buckets { count: 1, max_distance: 20, bidirectional: false };
    let dense = Bias::Dense { values: &[0.0; 6], shape: [1, 1, 2, 3], learned: false };
    let vectors = Relative { table: &[0.0; 7], per_head: false, left: 1, right: 1 };
    let two_sequences = KeyLengths::new(vec![1, 2]).unwrap();
    let cases = [
        (sized(Shape { heads: 0, ..shape }), "heads is 0, expected at least 1"),
        (sized(Shape { kv_heads: 3, ..shape }), "heads = 4 is not a multiple of kv_heads = 3"),
        (
            sized(Shape { queries: usize::MAX, ..shape }),
            "the shape's tensors are larger than this machine can address",
        ),
        (sized(Shape { queries: 4, ..shape }), "q has 96 values, expected 128"),
        (
            Attention { score: Score::Dot { scale: f32::NAN }, ..base.clone() },
            "scale = NaN is outside the finite numbers",
        ),
        (Attention { soft_cap: Some(0.0), ..base.clone() }, "soft_cap = 0.0 is outside (0, ∞)"),
        (
            Attention { dropout: Some(Dropout { rate: 1.0, seed: 0 }), ..base.clone() },
            "dropout rate = 1.0 is outside [0, 1)",
        ),
        (
            Attention {
                focus: Some(Focus { centers: &[0.0; 12], deviation: -1.0 }),
                ..base.clone()
            },
            "focus deviation = -1.0 is outside (0, ∞)",
        ),
        (
            Attention { query_bias: Some(&[0.0; 3]), ..base.clone() },
            "query bias has 3 values, expected 32",
        ),
        (
            Attention { first_query: usize::MAX, ..base.clone() },
            "first_query = 18446744073709551615 is outside places below 2³²",
        ),
        (
            feature(Feature { channels: 4..12, ..rotary.clone() }),
            "feature.channels = 4..12 is outside a range of the head's channels",
        ),
        (
            feature(Feature { heads: 2..5, ..rotary.clone() }),
            "feature.heads = 2..5 is outside a range of the heads",
        ),
        (
            feature(Feature { channels: 0..7, ..rotary.clone() }),
            "rotary channels = 7 is outside the even numbers",
        ),
        (
            feature(Feature { channels: 0..6, ..rotary.clone() }),
            "angles' frequencies has 4 values, expected 3",
        ),
        (
            Attention { first_query: 2, ..base.clone() },
            "queries' places = 2..5 is outside the places of the angle table",
        ),
        (
            Attention { features: vec![rotary.clone(), rotary], ..base.clone() },
            "features: two of them claim the same channels of the same heads",
        ),
        (bias(Bias::Slopes { slopes: &[0.0; 3] }), "slopes has 3 values, expected 4"),
        (
            bias(Bias::Buckets { table: &[0.0; 4], buckets }),
            "buckets.count = 1 is outside 2 and more (bidirectional: even, 4 and more)",
        ),
        (
            bias(Bias::Table { table: &[0.0; 8], left: 1, right: 1 }),
            "distance table has 8 values, expected 12",
        ),
        (
            bias(Bias::Relative { vectors, query_bias: None, scale: 1.0 }),
            "relative keys has 7 values, expected 24",
        ),
        (bias(dense), "dense bias size = 2 is outside 1 or the call's own size"),
        (
            Attention { relative_values: Some(vectors), ..base.clone() },
            "relative values has 7 values, expected 24",
        ),
        (
            Attention { pattern: &two_sequences, ..base.clone() },
            "list of key lengths has 2 values, expected 1",
        ),
        (
            Attention { score: Score::Additive { weight: &[0.0; 32] }, ..base.clone() },
            "additive score with rotary or polar features: tanh(q + k) does not depend on the \
             distance after a rotation",
        ),
    ];
    let (q, k) = (numbers(1, 96), numbers(2, 48));
    let inputs = Inputs { q: &q, k: &k, v: &k };
    assert!(base.forward(&inputs).is_ok());
    for (attention, message) in cases {
        assert_eq!(attention.forward(&inputs).unwrap_err().to_string(), message);
    }
}

/// Whether everything about a call fits together: the rules again, in numbers that cannot overflow.
fn fits(attention: &Attention, inputs: &Inputs, tables: &Tables) -> bool {
    let Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim } = attention.shape;
    let sizes_fit = [batch, heads, kv_heads, head_dim, value_dim].iter().all(|&size| size > 0)
        && heads % kv_heads == 0
        && addressable(&[batch, heads, queries.max(1), head_dim.max(value_dim)])
        && addressable(&[batch, kv_heads, keys.max(1), head_dim.max(value_dim)]);
    let inputs_fit = is_product(inputs.q, &[batch, heads, queries, head_dim])
        && is_product(inputs.k, &[batch, kv_heads, keys, head_dim])
        && is_product(inputs.v, &[batch, kv_heads, keys, value_dim]);
    let below = |first: usize, count: usize| first as u128 + count as u128 <= u32::MAX.into();
    let places_fit = below(attention.first_query, queries) && below(attention.first_key, keys);
    let per_channel = |values: &[f32]| is_product(values, &[heads, head_dim]);
    let score_fits = match attention.score {
        Score::Dot { scale } | Score::Cosine { scale } => scale.is_finite(),
        Score::Additive { weight } => per_channel(weight) && attention.features.is_empty(),
    };
    let positive = |x: f32| x > 0.0 && x.is_finite();
    let focus_fits = attention.focus.is_none_or(|Focus { centers, deviation }| {
        is_product(centers, &[batch, heads, queries]) && positive(deviation)
    });
    sizes_fit
        && inputs_fit
        && places_fit
        && score_fits
        && focus_fits
        && attention.query_bias.is_none_or(per_channel)
        && attention.soft_cap.is_none_or(positive)
        && attention.dropout.is_none_or(|dropout| dropout.rate >= 0.0 && dropout.rate < 1.0)
        && attention.relative_values.is_none_or(|vectors| vectors_fit(&vectors, heads, value_dim))
        && attention.biases.iter().all(|bias| bias_fits(bias, &attention.shape))
        && features_fit(attention, tables)
}

fn addressable(sizes: &[usize]) -> bool {
    product(sizes).saturating_mul(4) <= isize::MAX as u128
}

fn is_product(values: &[f32], sizes: &[usize]) -> bool {
    values.len() as u128 == product(sizes)
}

fn product(sizes: &[usize]) -> u128 {
    // A 0 counts before what would be too large for 128 bits.
    if sizes.contains(&0) {
        return 0;
    }
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size as u128))
}

fn vectors_fit(vectors: &Relative, heads: usize, width: usize) -> bool {
    let Relative { table, per_head, left, right } = *vectors;
    let tables = if per_head { heads as u128 } else { 1 };
    let count = left as u128 + 1 + right as u128;
    table.len() as u128 == (tables * count).saturating_mul(width as u128)
}

fn bias_fits(bias: &Bias, shape: &Shape) -> bool {
    let Shape { batch, heads, queries, keys, head_dim, .. } = *shape;
    match *bias {
        Bias::Slopes { slopes } => slopes.len() == heads,
        Bias::Buckets { table, buckets: Buckets { count, max_distance, bidirectional } } => {
            let one_way = if bidirectional { count / 2 } else { count };
            let splits = !bidirectional || count % 2 == 0;
            is_product(table, &[heads, count])
                && one_way >= 2
                && splits
                && max_distance > one_way / 2
        }
        Bias::Table { table, left, right } => {
            let vectors = Relative { table, per_head: true, left, right };
            vectors_fit(&vectors, heads, 1)
        }
        Bias::Relative { vectors, query_bias, scale } => {
            vectors_fit(&vectors, heads, head_dim)
                && query_bias.is_none_or(|bias| is_product(bias, &[heads, head_dim]))
                && scale.is_finite()
        }
        Bias::Dense { values, shape, .. } => {
            let sizes = shape.iter().zip([batch, heads, queries, keys]);
            sizes.clone().all(|(&size, whole)| size == 1 || size == whole)
                && is_product(values, &shape)
        }
    }
}

fn features_fit(attention: &Attention, tables: &Tables) -> bool {
    let Shape { heads, head_dim, .. } = attention.shape;
    let inside = |range: &Range<usize>, end: usize| range.start <= range.end && range.end <= end;
    let each = attention.features.iter().all(|feature| {
        let width = feature.channels.len();
        let AngleTable { frequencies, places, .. } = tables.of(feature.angles);
        let kind_fits = match feature.kind {
            Kind::Rotary { .. } => width % 2 == 0 && *frequencies == width / 2,
            Kind::Polar { delta, .. } => {
                *frequencies == width
                    && delta.is_none_or(|delta| is_product(delta, &[heads, width]))
            }
        };
        let covers = |call: Range<usize>| {
            *frequencies == 0
                || call.is_empty()
                || places.start <= call.start && call.end <= places.end
        };
        inside(&feature.channels, head_dim)
            && inside(&feature.heads, heads)
            && kind_fits
            && covers(attention.query_places())
            && covers(attention.key_places())
    });
    let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
    let apart = attention.features.iter().enumerate().all(|(i, a)| {
        let others = &attention.features[..i];
        !others.iter().any(|b| meet(&a.channels, &b.channels) && meet(&a.heads, &b.heads))
    });
    each && apart
}

/// What random calls borrow.
struct Tables {
    numbers: Vec<f32>,
    angles: Vec<AngleTable>,
}

/// Angles, and what they were made for.
struct AngleTable {
    frequencies: usize,
    places: Range<usize>,
    angles: Angles,
}

impl Tables {
    fn new() -> Self {
        let make = |frequencies: usize, places: Range<usize>| AngleTable {
            angles: Angles::new(&vec![0.1; frequencies], places.clone(), 1.0),
            frequencies,
            places,
        };
        let angles = (0..5).flat_map(|count| [make(count, 0..20), make(count, 3..5)]);
        Self { numbers: numbers(1, LONGEST), angles: angles.collect() }
    }

    fn of(&self, angles: &Angles) -> &AngleTable {
        let mut tables = self.angles.iter();
        tables.find(|table| std::ptr::eq(&table.angles, angles)).expect("angles come from here")
    }
}

/// Longer than any slice that a call of small sizes needs.
const LONGEST: usize = 1 << 14;
/// Sizes near the ends of what machines count in.
const HUGE: [usize; 6] =
    [usize::MAX, usize::MAX / 2 + 1, 1 << 62, 1 << 40, 1 << 32, u32::MAX as usize];

/// Random choices, mostly right (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(x ^ (x >> 31)) * end as u128) >> 64) as usize
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

    fn call<'t>(&mut self, tables: &'t Tables) -> (Attention<'t>, Inputs<'t>) {
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

    fn score<'t>(&mut self, tables: &'t Tables, shape: &Shape) -> Score<'t> {
        match self.below(4) {
            0 => Score::Additive { weight: self.slice(tables, &[shape.heads, shape.head_dim]) },
            1 => Score::Cosine { scale: self.number() },
            _ => Score::Dot { scale: self.number() },
        }
    }

    fn feature<'t>(&mut self, tables: &'t Tables, shape: &Shape) -> Feature<'t> {
        let channels = self.range(shape.head_dim);
        let heads = self.range(shape.heads);
        let is_rotary = self.one_in(2);
        let wanted = if is_rotary { channels.len() / 2 } else { channels.len() };
        let fitting = tables.angles.iter().find(|table| table.frequencies == wanted);
        let any = &tables.angles[self.below(tables.angles.len())];
        let angles = &fitting.filter(|_| !self.one_in(10)).unwrap_or(any).angles;
        let kind = if is_rotary {
            Kind::Rotary { layout: Layout::HalfSplit }
        } else {
            let delta = self.maybe(|dice| dice.slice(tables, &[shape.heads, channels.len()]));
            Kind::Polar { magnitude: Magnitude::Softplus, delta }
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

    fn bias<'t>(&mut self, tables: &'t Tables, shape: &Shape) -> Bias<'t> {
        let Shape { batch, heads, queries, keys, head_dim, .. } = *shape;
        match self.below(5) {
            0 => Bias::Slopes { slopes: self.slice(tables, &[heads]) },
            1 => {
                let [count, max_distance] =
                    [self.size(), self.size()].map(|size| size.saturating_mul(2));
                let buckets = Buckets { count, max_distance, bidirectional: self.one_in(2) };
                Bias::Buckets { table: self.slice(tables, &[heads, count]), buckets }
            }
            2 => {
                let Relative { table, left, right, .. } = self.vectors(tables, heads, 1);
                Bias::Table { table, left, right }
            }
            3 => Bias::Relative {
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

    fn vectors<'t>(&mut self, tables: &'t Tables, heads: usize, width: usize) -> Relative<'t> {
        let (left, right, per_head) = (self.count(), self.count(), self.one_in(2));
        let count = left.saturating_add(right).saturating_add(1);
        let table = self.slice(tables, &[if per_head { heads } else { 1 }, count, width]);
        Relative { table, per_head, left, right }
    }
}
