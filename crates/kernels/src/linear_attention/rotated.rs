//! Linear attention with positions, RoFormer §3.3: features are rotated in the numerator, and the denominator stays as it is,
//! `out_i = Σ_j T(φ(q_i))·T(φ(k_j)) v_j / (Σ_j φ(q_i)·φ(k_j) + ε)`.
//! Su et al. 2021, <https://arxiv.org/abs/2104.09864>. Features are magnitudes already, so a polar feature takes them as they are.
//! Weights may be negative, and do not add up to 1.

use super::{FeatureMap, LinearAttention, Rotation, denominator::Denominator, inverse};
use crate::{
    Error, Pooled,
    attention::{Attention, FeatureKind, Inputs, Magnitude, Shape},
    error::expect_len,
    parallel,
    simd::{
        feature_map::{Features, FeaturesBackward},
        rows::{DotRows, ScaleRows},
    },
};

/// One call: linear attention, and the features of another call of the same sizes.
#[derive(Clone)]
pub struct RotatedLinearAttention<'a> {
    linear: LinearAttention<'a>,
    rotation: Rotation<'a>,
}

/// What the backward pass makes.
#[derive(Clone, Debug, PartialEq)]
pub struct RotatedGradients {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys; zeros for padding.
    pub k: Vec<f32>,
    /// Of the values; zeros for padding.
    pub v: Vec<f32>,
    /// Of each feature's δ that has one, `[heads, channels]`, in the order of the features.
    pub deltas: Vec<Vec<f32>>,
}

/// Features of queries and of every query head's keys, before and after they are rotated, and those heads' values.
struct Formed {
    fq: Pooled,
    /// Of key heads.
    fk: Pooled,
    /// The same for every query head, and values, where several heads read one key head.
    spread: Option<Spread>,
    q: Pooled,
    k: Pooled,
}

struct Spread {
    fk: Pooled,
    v: Pooled,
}

impl Formed {
    /// Features of every query head's keys.
    fn wide_fk(&self) -> &[f32] {
        self.spread.as_ref().map_or(&self.fk, |spread| &spread.fk)
    }

    /// What is summed.
    fn rotated<'f>(&'f self, inputs: &Inputs<'f>) -> Inputs<'f> {
        let v = self.spread.as_ref().map_or(inputs.v, |spread| &spread.v);
        Inputs { q: &self.q, k: &self.k, v }
    }
}

impl<'a> RotatedLinearAttention<'a> {
    /// Linear attention with the features of a call; scores and whatever else a call has are not asked.
    pub fn new(linear: LinearAttention<'a>, call: &Attention<'a>) -> Self {
        let mut call = Attention { shape: linear.shape, simd: linear.simd, ..call.clone() };
        for feature in &mut call.features {
            if let FeatureKind::Polar { magnitude, .. } = &mut feature.kind {
                *magnitude = Magnitude::Identity;
            }
        }
        Self { linear, rotation: Rotation::new(&call) }
    }

    /// Checks the choices; every entry point does so first.
    pub fn check(&self) -> Result<(), Error> {
        self.linear.check()?;
        self.rotation.check()
    }

    /// The output and each row's denominator, or 1 where there is none.
    pub fn forward_into(
        &self,
        inputs: &Inputs,
        out: &mut [f32],
        normalizer: &mut [f32],
    ) -> Result<(), Error> {
        self.check()?;
        self.linear.check_inputs(inputs)?;
        let LinearAttention { shape, simd, epsilon, scale, .. } = self.linear;
        expect_len("out", out.len(), shape.out_len())?;
        expect_len("normalizer", normalizer.len(), shape.rows())?;
        let formed = self.form(inputs)?;
        self.numerator().forward_into(&formed.rotated(inputs), out, normalizer)?;
        if scale.is_some() {
            return Ok(());
        }
        self.denominator(&formed).forward(normalizer);
        let width = shape.value_dim;
        let tasks = normalizer.chunks_mut(ROWS).zip(out.chunks_mut(ROWS * width)).collect();
        parallel::run(tasks, |(sums, values): (&mut [f32], &mut [f32]), scratch| {
            let factors = scratch.row.sized(sums.len());
            for (sum, factor) in sums.iter_mut().zip(factors.iter_mut()) {
                *sum += epsilon;
                *factor = inverse(*sum);
            }
            simd.run(ScaleRows { values, width, factors });
        });
        Ok(())
    }

    /// The gradients of a scalar whose gradient with respect to `out` is `d_out`; `out` and `normalizer` are what the forward
    /// pass left for the same inputs.
    pub fn backward(
        &self,
        inputs: &Inputs,
        out: &[f32],
        normalizer: &[f32],
        d_out: &[f32],
    ) -> Result<RotatedGradients, Error> {
        self.check()?;
        self.linear.check_inputs(inputs)?;
        let LinearAttention { shape, simd, scale, .. } = self.linear;
        expect_len("out", out.len(), shape.out_len())?;
        expect_len("normalizer", normalizer.len(), shape.rows())?;
        expect_len("d_out", d_out.len(), shape.out_len())?;
        let formed = self.form(inputs)?;
        let mut scaled = None;
        let mut d_sums = Pooled::zeros(shape.rows());
        if scale.is_none() {
            let mut d = Pooled::of(d_out);
            let (size, width) = (ROWS * shape.value_dim, shape.value_dim);
            let given = normalizer.chunks(ROWS).zip(out.chunks(size));
            let made = d_sums.chunks_mut(ROWS).zip(d.chunks_mut(size));
            let tasks: Vec<_> = given.zip(made).collect();
            parallel::run(tasks, |((sums, out), (dots, values)), scratch| {
                let factors = scratch.row.sized(sums.len());
                factors.iter_mut().zip(sums).for_each(|(factor, sum)| *factor = inverse(*sum));
                simd.run(DotRows { a: values, b: out, width, dots });
                dots.iter_mut().zip(&*factors).for_each(|(d, factor)| *d *= -factor);
                simd.run(ScaleRows { values, width, factors });
            });
            scaled = Some(d);
        }
        let d_numerator = scaled.as_deref().unwrap_or(d_out);
        let rotated = formed.rotated(inputs);
        // Without a denominator the output and the normalizer are not asked.
        let numerator = self.numerator();
        let mut d = super::LinearGradients::uncleared(&numerator.shape);
        numerator.backward_into(&rotated, out, normalizer, d_numerator, &mut d)?;
        let v = self.gathered(d.v, shape.value_dim);
        let queries = self.rotation.queries_backward(&formed.fq, &d.q)?;
        let keys = self.rotation.keys_backward(formed.wide_fk(), &d.k)?;
        let (mut q, mut k) = (queries.x, self.gathered(keys.x, shape.head_dim));
        if scale.is_none() {
            self.denominator(&formed).backward(&d_sums, &mut q, &mut k);
        }
        self.features_backward(&formed.fq, &mut q);
        self.features_backward(&formed.fk, &mut k);
        Ok(RotatedGradients { q, k, v, deltas: keys.deltas })
    }

    fn form(&self, inputs: &Inputs) -> Result<Formed, Error> {
        let shape = self.linear.shape;
        let (fq, fk) = (self.features(inputs.q), self.features(inputs.k));
        let spread = (shape.group() > 1).then(|| Spread {
            fk: self.spread(&fk, shape.head_dim),
            v: self.spread(inputs.v, shape.value_dim),
        });
        let wide_fk = spread.as_ref().map_or(&fk, |spread| &spread.fk);
        let (q, k) = (self.rotation.queries(&fq)?, self.rotation.keys(wide_fk)?);
        Ok(Formed { fq, fk, spread, q, k })
    }

    /// What is summed with values: every query head by itself.
    fn numerator(&self) -> LinearAttention<'a> {
        let Shape { heads, .. } = self.linear.shape;
        let shape = Shape { kv_heads: heads, head_dim: self.rotation.width(), ..self.linear.shape };
        let scale = Some(self.linear.scale.unwrap_or(1.0));
        LinearAttention { shape, map: FeatureMap::Identity, scale, ..self.linear }
    }

    /// The sums of rows' weights, of features that are not rotated.
    fn denominator<'f>(&'f self, formed: &'f Formed) -> Denominator<'f> {
        Denominator { linear: &self.linear, fq: &formed.fq, fk: &formed.fk }
    }

    fn features(&self, raw: &[f32]) -> Pooled {
        let LinearAttention { map, simd, shape, .. } = self.linear;
        let mut features = Pooled::uncleared(raw.len());
        let size = ROWS * shape.head_dim;
        let tasks = raw.chunks(size).zip(features.chunks_mut(size)).collect();
        parallel::run(tasks, |(raw, features): (&[f32], &mut [f32]), _| {
            simd.run(Features { map, raw, width: shape.head_dim, features });
        });
        features
    }

    fn features_backward(&self, features: &[f32], d: &mut [f32]) {
        let LinearAttention { map, simd, shape, .. } = self.linear;
        let size = ROWS * shape.head_dim;
        let tasks = features.chunks(size).zip(d.chunks_mut(size)).collect();
        parallel::run(tasks, |(features, d): (&[f32], &mut [f32]), _| {
            simd.run(FeaturesBackward { map, features, width: shape.head_dim, d });
        });
    }

    /// Rows of key heads once for every query head that reads them.
    fn spread(&self, x: &[f32], width: usize) -> Pooled {
        let (group, size) = (self.linear.shape.group(), self.linear.shape.keys * width);
        let mut spread = Pooled::uncleared(x.len() * group);
        if x.is_empty() {
            return spread;
        }
        for (to, from) in spread.chunks_exact_mut(group * size).zip(x.chunks_exact(size)) {
            to.chunks_exact_mut(size).for_each(|to| to.copy_from_slice(from));
        }
        spread
    }

    /// The other way: the sum over query heads.
    fn gathered(&self, d: Vec<f32>, width: usize) -> Vec<f32> {
        let (group, size) = (self.linear.shape.group(), self.linear.shape.keys * width);
        if group == 1 || d.is_empty() {
            return d;
        }
        let mut sums = vec![0.0; d.len() / group];
        for (to, from) in sums.chunks_exact_mut(size).zip(d.chunks_exact(group * size)) {
            for from in from.chunks_exact(size) {
                to.iter_mut().zip(from).for_each(|(sum, d)| *sum += d);
            }
        }
        sums
    }
}

/// Rows of a task: a few hundred kB of features.
const ROWS: usize = 1024;
