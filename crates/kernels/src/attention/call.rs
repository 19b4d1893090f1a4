//! What one attention call computes: the choices, gathered in one value.

use std::ops::Range;

use crate::{
    Error, Pooled,
    attention::{Bias, Feature, Relative, Score, Shape, pattern::Pattern},
    error::{expect_len, expect_range},
    simd::Simd,
};

/// One attention call: every choice, checked when it is used.
#[derive(Clone)]
pub struct Attention<'a> {
    /// The sizes.
    pub shape: Shape,
    /// Place of the first query; in decoding, the number of tokens before it.
    pub first_query: usize,
    /// Place of the first key; above 0 when a cache has dropped the oldest.
    pub first_key: usize,
    /// Keys for which each head of `k` and `v` has space, of which the first `shape.keys` are present; `shape.keys` if
    /// absent. A cache that grows in place has more capacity than keys. The forward pass alone takes it.
    pub capacity: Option<usize>,
    /// Added to every query before its features, `[heads, head_dim]`, learned (Transformer-XL's `u`).
    pub query_bias: Option<&'a [f32]>,
    /// What places do to queries and keys.
    pub features: Vec<Feature<'a>>,
    /// How queries and keys are compared.
    pub score: Score<'a>,
    /// `cap · tanh(score / cap)` bounds the compared score.
    pub soft_cap: Option<f32>,
    /// What is added to the scores.
    pub biases: Vec<Bias<'a>>,
    /// Which keys a query may see.
    pub pattern: &'a dyn Pattern,
    /// Luong's Gaussian on the weights.
    pub focus: Option<Focus<'a>>,
    /// Random loss of weights in training.
    pub dropout: Option<Dropout>,
    /// Shaw's values: `Σ_key weight · table[clipped distance]` joins the output; as wide as a value.
    pub relative_values: Option<Relative<'a>>,
    /// The instruction set to run on; [`Simd::detect`] unless a test or benchmark forces another.
    pub simd: Simd,
}

/// Luong's local-p: weights are multiplied by `exp(−(key − center)² / (2 deviation²))` and not renormalised.
#[derive(Clone, Copy, Debug)]
pub struct Focus<'a> {
    /// Predicted place for each query, `[batch, heads, queries]`, learned.
    pub centers: &'a [f32],
    /// Standard deviation, in places; the paper uses half the window's radius.
    pub deviation: f32,
}

/// Dropout on the weights. The mask is a function of seed, batch, head and the two places,
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

/// What the backward pass makes, one slice for each thing that can learn. Empty where a call has no such thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys.
    pub k: Vec<f32>,
    /// Of the values.
    pub v: Vec<f32>,
    /// Of the additive score's weight.
    pub score: Vec<f32>,
    /// Of the query bias.
    pub query_bias: Vec<f32>,
    /// Of each feature's δ.
    pub features: Vec<Vec<f32>>,
    /// Of each bias.
    pub biases: Vec<BiasGradient>,
    /// Of the relative values' table.
    pub relative_values: Vec<f32>,
    /// Of the focus centers.
    pub centers: Vec<f32>,
}

/// Gradient of one bias.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BiasGradient {
    /// Of the slopes, the table or the dense values.
    pub table: Vec<f32>,
    /// Of a relative bias's query bias.
    pub query_bias: Vec<f32>,
}

impl Gradients {
    /// Zeros of the right lengths.
    pub fn zeros(attention: &Attention) -> Self {
        let shape = &attention.shape;
        Self {
            q: touched(shape.q_len()),
            k: touched(shape.k_len()),
            v: touched(shape.v_len()),
            ..Self::zeros_of_learned(attention)
        }
    }

    /// The same with those of q, k and v from the pool, and of any values: for [`Attention::backward_into`], which
    /// overwrites them. As a [`Pooled`] each goes back to it.
    pub fn pooled(attention: &Attention) -> Self {
        let shape = &attention.shape;
        Self {
            q: Pooled::uncleared(shape.q_len()).into(),
            k: Pooled::uncleared(shape.k_len()).into(),
            v: Pooled::uncleared(shape.v_len()).into(),
            ..Self::zeros_of_learned(attention)
        }
    }

    /// Zeros for everything but q, k and v.
    pub(crate) fn zeros_of_learned(attention: &Attention) -> Self {
        let zeros = |len: Option<usize>| vec![0.0; len.unwrap_or(0)];
        Self {
            q: Vec::new(),
            k: Vec::new(),
            v: Vec::new(),
            score: match attention.score {
                Score::Additive { weight } => vec![0.0; weight.len()],
                Score::Dot { .. } | Score::Cosine { .. } => Vec::new(),
            },
            query_bias: zeros(attention.query_bias.map(<[f32]>::len)),
            features: attention.features.iter().map(|f| vec![0.0; f.gradient_len()]).collect(),
            biases: attention
                .biases
                .iter()
                .map(|bias| BiasGradient {
                    table: vec![0.0; bias.gradient_len()],
                    query_bias: match bias {
                        Bias::Relative { query_bias: Some(v), .. } => vec![0.0; v.len()],
                        _ => Vec::new(),
                    },
                })
                .collect(),
            relative_values: zeros(attention.relative_values.map(|r| r.table.len())),
            centers: zeros(attention.focus.map(|f| f.centers.len())),
        }
    }
}

impl<'a> Attention<'a> {
    /// Plain scaled dot attention under a pattern; the other choices are fields to set.
    pub fn new(shape: Shape, pattern: &'a dyn Pattern) -> Self {
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
        }
    }

    /// Places of the queries.
    pub fn query_places(&self) -> Range<usize> {
        self.first_query..self.first_query + self.shape.queries
    }

    /// Places of the keys.
    pub fn key_places(&self) -> Range<usize> {
        self.first_key..self.first_key + self.shape.keys
    }

    /// Checks the choices; every entry point does so first.
    pub fn check(&self) -> Result<(), Error> {
        self.shape.check()?;
        let Shape { batch, heads, queries, keys, head_dim, value_dim, .. } = self.shape;
        for (what, first, length) in
            [("first_query", self.first_query, queries), ("first_key", self.first_key, keys)]
        {
            // Places are handled as f32 in the focus and as isize in distances.
            let end = first.saturating_add(length);
            expect_range(what, first, end <= u32::MAX as usize, "places below 2³²")?;
        }
        if let Some(u) = self.query_bias {
            expect_len("query bias", u.len(), heads * head_dim)?;
        }
        self.check_features()?;
        match self.score {
            Score::Dot { scale } | Score::Cosine { scale } => {
                expect_range("scale", scale, scale.is_finite(), "the finite numbers")?;
            }
            Score::Additive { weight } => {
                expect_len("additive weight", weight.len(), heads * head_dim)?;
                if !self.features.is_empty() {
                    return Err(Error::Combination {
                        what: "additive score with rotary or polar features",
                        reason: "tanh(q + k) does not depend on the distance after a rotation",
                    });
                }
            }
        }
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
            feature.check(&self.shape, self.query_places(), self.key_places())?;
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

    /// Width of a compared query or key of `head`: `head_dim`, and one more for each polar channel.
    pub(crate) fn width(&self, head: usize) -> usize {
        self.shape.head_dim + self.features.iter().map(|f| f.widening(head)).sum::<usize>()
    }
}

/// Zeros whose pages exist already. Memory that several threads touch first at the same time costs several times as
/// much as memory touched by one (measured: 10 ms against 2 ms for the gradients of a 4 ms backward pass).
pub(crate) fn touched(len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len);
    values.resize(len, 0.0);
    values
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}
