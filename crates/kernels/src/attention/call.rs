//! What one attention call computes: the choices, gathered in one value.
//!
//! [`Call`] is generic over what it holds of each thing that can learn. Over slices it is an [`Attention`], which computes;
//! over vectors it is what the backward pass makes, over f64 what the reference reads, and elsewhere ranges of one flat
//! tensor, or tensors. [`Call::map`] goes from one to the other, so nothing learned can be forgotten on the way.

use std::ops::Range;

use crate::{
    Error, Precision,
    attention::{Arrangement, Bias, Feature, Relative, Score, Shape, pattern::Pattern},
    error::{expect_len, expect_range},
    simd::{Simd, matmul::Matmul},
};

/// A call that can be computed: over slices, checked when it is used.
pub type Attention<'a> = Call<&'a [f32], &'a dyn Pattern>;

/// One attention call: every choice, over values `T` and a pattern `P`.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<T, P> {
    /// The sizes.
    pub shape: Shape,
    /// Position of the first query; in decoding, the number of tokens before it.
    pub first_query: usize,
    /// Position of the first key; above 0 when a cache has dropped the oldest.
    pub first_key: usize,
    /// Keys for which each head of `k` and `v` has space, of which the first `shape.keys` are present; `shape.keys` if
    /// absent. A cache that grows in place has more capacity than keys. The forward pass alone takes it.
    pub capacity: Option<usize>,
    /// Added to every query before its features, `[heads, head_dim]` (Transformer-XL's `u`).
    pub query_bias: Option<T>,
    /// What positions do to queries and keys.
    pub features: Vec<Feature<T>>,
    /// How queries and keys are compared.
    pub score: Score<T>,
    /// `cap · tanh(score / cap)` bounds the compared score.
    pub soft_cap: Option<f32>,
    /// What is added to the scores.
    pub biases: Vec<Bias<T>>,
    /// Which keys a query may see.
    pub pattern: P,
    /// Luong's Gaussian on the weights.
    pub focus: Option<Focus<T>>,
    /// Random loss of weights in training.
    pub dropout: Option<Dropout>,
    /// Shaw's values: `Σ_key weight · table[clipped distance]` joins the output; as wide as a value.
    pub relative_values: Option<Relative<T>>,
    /// The instruction set to run on; [`Simd::detect`] unless a test or benchmark forces another.
    pub simd: Simd,
    /// What products over channels, queries and keys are computed in; those of tables by distance are in f32.
    pub precision: Precision,
    /// How pairs are brought into tiles; as costs less unless a test or benchmark forces another.
    pub arrangement: Arrangement,
}

/// Luong's local-p: weights are multiplied by `exp(−(key − center)² / (2 deviation²))` and not renormalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Focus<T> {
    /// Predicted position for each query, `[batch, heads, queries]`.
    pub centers: T,
    /// Standard deviation, in positions; the paper uses half the window's radius.
    pub deviation: f32,
}

/// Dropout on the weights. The mask is a function of seed, batch, head and the two positions,
/// so the backward pass, any number of threads and any tiling see the same one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Share of weights set to 0; the others grow by `1/(1 − rate)`.
    pub rate: f32,
    /// Selects the mask.
    pub seed: u64,
}

/// The tensors of a call, in the layout of [`Shape`].
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries.
    pub q: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
}

/// What the forward pass makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// `[batch, heads, queries, value_dim]`.
    pub out: Vec<f32>,
    /// Natural logarithm of each row's sum of `exp(score)`, `[batch, heads, queries]`; −∞ where a row sees nothing.
    pub lse: Vec<f32>,
}

impl<T, P> Call<T, P> {
    /// Plain scaled dot attention under a pattern; the other choices are fields to set.
    pub fn new(shape: Shape, pattern: P) -> Self {
        Self {
            shape,
            first_query: 0,
            first_key: 0,
            capacity: None,
            query_bias: None,
            features: Vec::new(),
            score: Score::scaled_dot(shape.head_dim),
            soft_cap: None,
            biases: Vec::new(),
            pattern,
            focus: None,
            dropout: None,
            relative_values: None,
            simd: Simd::detect(),
            precision: Precision::F32,
            arrangement: Arrangement::default(),
        }
    }

    /// Positions of the queries.
    pub fn query_positions(&self) -> Range<usize> {
        self.first_query..self.first_query.saturating_add(self.shape.queries)
    }

    /// Positions of the keys.
    pub fn key_positions(&self) -> Range<usize> {
        self.first_key..self.first_key.saturating_add(self.shape.keys)
    }

    /// Positions from the first to the last of queries and keys.
    pub fn positions(&self) -> Range<usize> {
        let (queries, keys) = (self.query_positions(), self.key_positions());
        queries.start.min(keys.start)..queries.end.max(keys.end)
    }

    /// How far the farthest key stands to the left and to the right of a query.
    pub fn reach(&self) -> (usize, usize) {
        let (queries, keys) = (self.query_positions(), self.key_positions());
        let before = |end: usize, start: usize| end.saturating_sub(start).saturating_sub(1);
        (before(queries.end, keys.start), before(keys.end, queries.start))
    }

    /// The same call over other values, under another pattern.
    pub fn map<'t, U, Q>(&'t self, pattern: Q, mut f: impl FnMut(&'t T) -> U) -> Call<U, Q> {
        self.map_named(pattern, |_, value| f(value))
    }

    /// Everything that can learn, in the order of [`Self::map`].
    pub fn values(&self) -> Vec<&T> {
        let mut values = Vec::new();
        self.map((), |value| values.push(value));
        values
    }

    /// [`Self::map`], with the name of each value.
    pub fn map_named<'t, U, Q>(
        &'t self,
        pattern: Q,
        mut f: impl FnMut(Name, &'t T) -> U,
    ) -> Call<U, Q> {
        let f = &mut f;
        let score = self.score.map(&mut |value, x| f(Name::new("score", value), x));
        let query_bias = self.query_bias.as_ref().map(|u| f(Name::new("query_bias", "u"), u));
        let features = self.features.iter().enumerate().map(|(i, feature)| {
            feature.map(&mut |value, x| f(Name::new("features", value).at(i), x))
        });
        let features = features.collect();
        let biases = self
            .biases
            .iter()
            .enumerate()
            .map(|(i, bias)| bias.map(&mut |value, x| f(Name::new("biases", value).at(i), x)));
        let biases = biases.collect();
        let relative_values = self
            .relative_values
            .as_ref()
            .map(|vectors| vectors.map(&mut |value, x| f(Name::new("relative_values", value), x)));
        let focus = self.focus.as_ref().map(|Focus { centers, deviation }| Focus {
            centers: f(Name::new("focus", "centers"), centers),
            deviation: *deviation,
        });
        let Self {
            shape,
            first_query,
            first_key,
            capacity,
            soft_cap,
            dropout,
            simd,
            precision,
            arrangement,
            ..
        } = *self;
        Call {
            shape,
            first_query,
            first_key,
            capacity,
            query_bias,
            features,
            score,
            soft_cap,
            biases,
            pattern,
            focus,
            dropout,
            relative_values,
            simd,
            precision,
            arrangement,
        }
    }

    /// A product of a tile's queries, keys, values or scores.
    pub(crate) fn product(&self, product: Matmul) {
        self.precision.small_product(self.simd, product);
    }

    /// Width of a compared query or key of `head`: `head_dim`, and one more for each polar channel.
    pub(crate) fn width(&self, head: usize) -> usize {
        self.shape.head_dim + self.features.iter().map(|f| f.widening(head)).sum::<usize>()
    }
}

/// Names a value of a call, as in `biases[0].table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    field: &'static str,
    index: Option<usize>,
    value: &'static str,
}

impl Name {
    fn new(field: &'static str, value: &'static str) -> Self {
        Self { field, index: None, value }
    }

    fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self { field, index, value } = self;
        match index {
            Some(index) => write!(f, "{field}[{index}].{value}"),
            None => write!(f, "{field}.{value}"),
        }
    }
}

impl Attention<'_> {
    /// Checks the choices; every entry point does so first.
    pub fn check(&self) -> Result<(), Error> {
        self.shape.check()?;
        let Shape { batch, heads, queries, keys, head_dim, value_dim, .. } = self.shape;
        for (what, first, length) in
            [("first_query", self.first_query, queries), ("first_key", self.first_key, keys)]
        {
            // Positions are handled as f32 in the focus and as isize in distances.
            let end = first.saturating_add(length);
            expect_range(what, first, end <= u32::MAX as usize, "positions below 2³²")?;
        }
        if let Some(u) = self.query_bias {
            expect_len("query bias", u.len(), heads * head_dim)?;
        }
        self.check_features()?;
        self.score.check(&self.shape, !self.features.is_empty())?;
        if let Some(cap) = self.soft_cap {
            expect_range("soft_cap", cap, cap > 0.0 && cap.is_finite(), "(0, ∞)")?;
        }
        self.pattern.check(&self.shape)?;
        for bias in &self.biases {
            bias.check(&self.shape)?;
        }
        if let Some(Focus { centers, deviation }) = self.focus {
            expect_len("focus centers", centers.len(), batch * heads * queries)?;
            let allowed = deviation > 0.0 && deviation.is_finite();
            expect_range("focus deviation", deviation, allowed, "(0, ∞)")?;
        }
        if let Some(Dropout { rate, .. }) = self.dropout {
            expect_range("dropout rate", rate, (0.0..1.0).contains(&rate), "[0, 1)")?;
        }
        match &self.relative_values {
            Some(vectors) => vectors.check("relative values", heads, value_dim),
            None => Ok(()),
        }
    }

    fn check_features(&self) -> Result<(), Error> {
        for (i, feature) in self.features.iter().enumerate() {
            feature.check(&self.shape, self.query_positions(), self.key_positions())?;
            let overlaps = self.features[..i].iter().any(|other| {
                overlap(&feature.channels, &other.channels) && overlap(&feature.heads, &other.heads)
            });
            if overlaps {
                return Err(Error::Combination {
                    what: "features",
                    reason: "two of them claim the same channels of the same heads",
                });
            }
        }
        Ok(())
    }

    /// Checks a call whose keys fill their slices.
    pub(crate) fn check_inputs(&self, inputs: &Inputs) -> Result<(), Error> {
        if self.capacity.is_some_and(|capacity| capacity != self.shape.keys) {
            return Err(Error::Combination {
                what: "capacity for more keys",
                reason: "only the forward pass skips what is not present yet",
            });
        }
        self.check_forward(inputs)
    }

    /// Checks a call whose slices may have capacity for more keys.
    pub(crate) fn check_forward(&self, inputs: &Inputs) -> Result<(), Error> {
        self.check()?;
        let held = self.held();
        held.check()?;
        let enough = held.keys >= self.shape.keys;
        expect_range("capacity", held.keys, enough, "at least the number of keys")?;
        expect_len("q", inputs.q.len(), self.shape.q_len())?;
        expect_len("k", inputs.k.len(), held.k_len())?;
        expect_len("v", inputs.v.len(), held.v_len())
    }

    /// The shape with as many keys as there is capacity for.
    fn held(&self) -> Shape {
        Shape { keys: self.capacity.unwrap_or(self.shape.keys), ..self.shape }
    }

    /// The keys of a head, and its values.
    pub(crate) fn keys_and_values<'i>(
        &self,
        inputs: &Inputs<'i>,
        batch: usize,
        kv_head: usize,
    ) -> (&'i [f32], &'i [f32]) {
        let (held, Shape { keys, head_dim, value_dim, .. }) = (self.held(), self.shape);
        let k = &inputs.k[held.k_head(batch, kv_head)][..keys * head_dim];
        let v = &inputs.v[held.v_head(batch, kv_head)][..keys * value_dim];
        (k, v)
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}
