//! Linear attention with positions, RoFormer §3.3: features are rotated in the numerator, and the denominator stays as it is,
//! `out_i = Σ_j T(φ(q_i))·T(φ(k_j)) v_j / (Σ_j φ(q_i)·φ(k_j) + ε)`.
//! Su et al. 2021, <https://arxiv.org/abs/2104.09864>. Features are magnitudes already, so a polar feature takes them as they are.
//! Weights may be negative, and do not add up to 1.

use super::{FeatureMap, LinearAttention, Rotation, inverse};
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
    /// The same for every query head.
    wide_fk: Pooled,
    q: Pooled,
    k: Pooled,
    v: Pooled,
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
        let rotated = Inputs { q: &formed.q, k: &formed.k, v: &formed.v };
        self.numerator().forward_into(&rotated, out, normalizer)?;
        if scale.is_some() {
            return Ok(());
        }
        let ones = self.ones();
        let sums = Inputs { q: &formed.fq, k: &formed.fk, v: &ones };
        let mut unused = Pooled::uncleared(shape.rows());
        self.denominator().forward_into(&sums, normalizer, &mut unused)?;
        normalizer.iter_mut().for_each(|sum| *sum += epsilon);
        let factors: Vec<f32> = normalizer.iter().map(|sum| inverse(*sum)).collect();
        simd.run(ScaleRows { values: out, width: shape.value_dim, factors: &factors });
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
        let mut d_numerator = Pooled::of(d_out);
        let mut d_sums = Pooled::zeros(shape.rows());
        if scale.is_none() {
            let factors: Vec<f32> = normalizer.iter().map(|sum| inverse(*sum)).collect();
            let (a, b, width) = (d_out, out, shape.value_dim);
            simd.run(DotRows { a, b, width, dots: &mut d_sums });
            d_sums.iter_mut().zip(&factors).for_each(|(d, factor)| *d *= -factor);
            simd.run(ScaleRows { values: &mut d_numerator, width, factors: &factors });
        }
        let rotated = Inputs { q: &formed.q, k: &formed.k, v: &formed.v };
        // Without a denominator the output and the normalizer are not asked.
        let numerator = self.numerator();
        let mut d = super::LinearGradients::uncleared(&numerator.shape);
        numerator.backward_into(&rotated, out, normalizer, &d_numerator, &mut d)?;
        let v = self.gathered(d.v, shape.value_dim);
        let queries = self.rotation.queries_backward(&formed.fq, &d.q)?;
        let keys = self.rotation.keys_backward(&formed.wide_fk, &d.k)?;
        let (mut q, mut k) = (queries.x, self.gathered(keys.x, shape.head_dim));
        if scale.is_none() {
            let ones = self.ones();
            let sums = Inputs { q: &formed.fq, k: &formed.fk, v: &ones };
            let denominator = self.denominator();
            let mut d = super::LinearGradients::uncleared(&denominator.shape);
            denominator.backward_into(&sums, normalizer, normalizer, &d_sums, &mut d)?;
            for (to, more) in [(&mut q, d.q), (&mut k, d.k)] {
                to.iter_mut().zip(&more).for_each(|(sum, d)| *sum += d);
            }
        }
        self.features_backward(&formed.fq, &mut q);
        self.features_backward(&formed.fk, &mut k);
        Ok(RotatedGradients { q, k, v, deltas: keys.deltas })
    }

    fn form(&self, inputs: &Inputs) -> Result<Formed, Error> {
        let shape = self.linear.shape;
        let (fq, fk) = (self.features(inputs.q), self.features(inputs.k));
        let wide_fk = self.spread(&fk, shape.head_dim);
        let (q, k) = (self.rotation.queries(&fq)?, self.rotation.keys(&wide_fk)?);
        Ok(Formed { fq, fk, wide_fk, q, k, v: self.spread(inputs.v, shape.value_dim) })
    }

    /// What is summed with values: every query head by itself.
    fn numerator(&self) -> LinearAttention<'a> {
        let Shape { heads, .. } = self.linear.shape;
        let shape = Shape { kv_heads: heads, head_dim: self.rotation.width(), ..self.linear.shape };
        let scale = Some(self.linear.scale.unwrap_or(1.0));
        LinearAttention { shape, map: FeatureMap::Identity, scale, ..self.linear }
    }

    /// The sum of a row's weights, with ones for values.
    fn denominator(&self) -> LinearAttention<'a> {
        let shape = Shape { value_dim: 1, ..self.linear.shape };
        LinearAttention { shape, map: FeatureMap::Identity, scale: Some(1.0), ..self.linear }
    }

    fn ones(&self) -> Vec<f32> {
        vec![1.0; self.denominator().shape.v_len()]
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
        if group == 1 || x.is_empty() {
            return Pooled::of(x);
        }
        let mut spread = Pooled::uncleared(x.len() * group);
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
