use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_kernels::{
    attention::Shape,
    linear_attention::{FeatureMap, LinearAttention},
};
use whatwhere_settings::Refuses;

use super::MixingSettings;
use crate::{Error, heads::Heads};

/// Linear: weights are `φ(q)·φ(k)`, so that keys and values sum up in a state of constant size. Positions that rotate turn the
/// features of the numerator (RoFormer §3.3), and the denominator stays as it is; a polar feature takes φ as its magnitude.
/// Katharopoulos et al. 2020, <https://arxiv.org/abs/2006.16236>. Cost linear in the length; poor at sharp retrieval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {
    /// What makes features φ of queries and keys; default `elu`.
    pub feature_map: LinearFeatures,
    /// The factor of the output in place of a denominator; default none, which is the denominator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f32>,
}

/// What makes features of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinearFeatures {
    /// `elu(x) + 1`, the paper's.
    #[default]
    Elu,
    /// `max(x, 0)`.
    Relu,
    /// `eˣ`.
    Exp,
    /// `eˣ`, divided by its sum over the channels.
    Softmax,
    /// x itself, of either sign, hence with a `scale`.
    Identity,
}

impl From<LinearFeatures> for FeatureMap {
    fn from(features: LinearFeatures) -> Self {
        match features {
            LinearFeatures::Elu => Self::Elu,
            LinearFeatures::Relu => Self::Relu,
            LinearFeatures::Exp => Self::Exp,
            LinearFeatures::Softmax => Self::Softmax,
            LinearFeatures::Identity => Self::Identity,
        }
    }
}

impl Linear {
    /// The kernels' call of these settings.
    pub fn call(&self, shape: Shape, causal: bool) -> LinearAttention<'static> {
        let (map, scale) = (self.feature_map.into(), self.scale);
        LinearAttention { map, scale, ..LinearAttention::new(shape, causal) }
    }
}

impl MixingSettings for Linear {
    fn has_scores(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), Error> {
        match self.scale {
            Some(scale) if !scale.is_finite() || scale == 0.0 => {
                let reason = "a factor of the output is finite and not 0";
                Err(Error::setting("mixing.scale", scale, reason))
            }
            None if self.feature_map == LinearFeatures::Identity => {
                let reason = "features of both signs add up to any denominator, 0 too; set mixing.scale instead, such as 0.125";
                Err(Error::setting("mixing.feature_map", "identity", reason))
            }
            _ => Ok(()),
        }
    }

    fn makes_magnitudes(&self) -> bool {
        true
    }

    fn kernel(&self, shape: Shape, causal: bool) -> Option<LinearAttention<'static>> {
        Some(self.call(shape, causal))
    }

    /// A state of head_dim², or more under polar features, is updated and asked by every token.
    fn flops_per_token(&self, heads: &Heads, extra: usize) -> Option<f64> {
        let channels = heads.head_dim * heads.heads + extra;
        Some(4.0 * (channels * heads.head_dim) as f64)
    }
}

#[cfg(feature = "burn")]
pub use layer::LinearLayer;

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        tensor::{
            Device, Tensor,
            activation::{relu, softmax},
        },
    };
    use whatwhere_kernels::{
        Pooled,
        attention::{Inputs, Shape},
        linear_attention::{LinearAttention, LinearGradients, RotatedLinearAttention},
    };
    use whatwhere_settings::Refuses;

    use super::{Linear, LinearFeatures};
    use crate::{
        Error, Path,
        bridge::{Operand, operation},
        call::Call,
        composed,
        fused::Layout,
        heads::Heads,
        mixing::{Mix, MixingLayer, State},
        rotation,
    };

    /// Keeps the denominator from 0, as in the published code.
    const EPSILON: f32 = 1e-6;

    /// Linear mixing at work.
    ///
    /// On burn's CPU backend the kernels compute it in chunks, with their own backward; elsewhere it is composed of tensor
    /// operations with stored weights. Decoding keeps sums over the keys, a state of constant size.
    #[derive(Module, Debug)]
    pub struct LinearLayer {
        #[module(skip)]
        settings: Linear,
    }

    impl LinearLayer {
        pub(crate) fn new(settings: &Linear, _heads: &Heads, _device: &Device) -> Self {
            Self { settings: *settings }
        }

        fn features(&self, x: Tensor<4>) -> Tensor<4> {
            match self.settings.feature_map {
                LinearFeatures::Elu => {
                    let negative = x.clone() - relu(x.clone());
                    relu(x) + negative.exp()
                }
                LinearFeatures::Relu => relu(x),
                LinearFeatures::Exp => x.exp(),
                LinearFeatures::Softmax => softmax(x, 3),
                LinearFeatures::Identity => x,
            }
        }
    }

    impl MixingLayer for LinearLayer {
        fn attend(
            &self,
            mix: Mix,
            q: Tensor<4>,
            k: Tensor<4>,
            v: Tensor<4>,
        ) -> Result<Tensor<4>, Error> {
            let Mix { call, path, causal, key_lengths, .. } = mix;
            // The kernels' causal form is for equal lengths; a cache brings a state instead.
            let fits = !causal || q.dims()[2] == k.dims()[2];
            if path != Path::Composed && fits {
                let count = |end: &usize| end.saturating_sub(call.first_key);
                let key_lengths = key_lengths.map(|ends| ends.iter().map(count).collect());
                let settings = self.settings;
                let linear = LinearCall { settings, causal, key_lengths };
                if let Some(out) = linear.on_kernels(call, [q.clone(), k.clone(), v.clone()])? {
                    return Ok(out);
                }
            }
            if path == Path::Fused {
                let reason = if fits {
                    format!("needs the CPU backend, found {:?}", q.device())
                } else {
                    let (queries, keys) = (q.dims()[2], k.dims()[2]);
                    format!(
                        "causal linear mixing is for as many keys as queries, found {keys} and {queries}"
                    )
                };
                return Err(Error::setting("path", "fused", reason));
            }
            let [batch, heads, queries, _] = q.dims();
            if queries == 0 || k.dims()[2] == 0 {
                return Ok(Tensor::zeros([batch, heads, queries, v.dims()[3]], &q.device()));
            }
            let (k, v) = (composed::repeat_heads(k, heads), composed::repeat_heads(v, heads));
            let visible = composed::visible(call, &q, &k).float();
            let [q, k] = [q, k].map(|x| self.features(x));
            let [rotated_q, rotated_k] = rotation::composed(&rotation::magnitudes(call), &q, &k);
            let mixed = (rotated_q.matmul(rotated_k.transpose()) * visible.clone()).matmul(v);
            Ok(match self.settings.scale {
                Some(scale) => mixed * scale,
                None => mixed / ((q.matmul(k.transpose()) * visible).sum_dim(3) + EPSILON),
            })
        }

        fn keeps_state(&self) -> bool {
            true
        }

        fn step(
            &self,
            mix: Mix,
            state: &mut Option<State>,
            q: Tensor<4>,
            k: Tensor<4>,
            v: Tensor<4>,
        ) -> Result<Tensor<4>, Error> {
            let ([batch, heads, tokens, dim], width) = (q.dims(), v.dims()[3]);
            if tokens == 0 {
                return Ok(Tensor::zeros([batch, heads, 0, width], &q.device()));
            }
            let (k, v) = (composed::repeat_heads(k, heads), composed::repeat_heads(v, heads));
            let [q, k] = [q, k].map(|x| self.features(x));
            let [rotated_q, rotated_k] =
                rotation::composed(&rotation::magnitudes(mix.call), &q, &k);
            let zeros = |rows, width| Tensor::zeros([batch, heads, rows, width], &q.device());
            let (sums, total) = match state.take() {
                Some(State { sums, total }) => (sums, total),
                None => {
                    let total = self.settings.scale.is_none().then(|| zeros(dim, 1));
                    (zeros(rotated_k.dims()[3], width), total)
                }
            };
            let weights = rotated_q.clone().matmul(rotated_k.clone().transpose()).tril(0);
            let mixed = rotated_q.matmul(sums.clone()) + weights.matmul(v.clone());
            let sums = sums + rotated_k.transpose().matmul(v);
            let (out, total) = match (self.settings.scale, total) {
                (Some(scale), total) => (mixed * scale, total),
                (None, total) => {
                    let total = total.unwrap_or_else(|| zeros(dim, 1));
                    let weights = q.clone().matmul(k.clone().transpose()).tril(0);
                    let sum = q.matmul(total.clone()) + weights.sum_dim(3) + EPSILON;
                    (mixed / sum, Some(total + k.transpose().sum_dim(3)))
                }
            };
            *state = Some(State { sums, total });
            Ok(out)
        }
    }

    /// What a call needs besides q, k and v.
    #[derive(Clone, Debug)]
    struct LinearCall {
        settings: Linear,
        causal: bool,
        /// Keys that are not padding, for each sequence.
        key_lengths: Option<Vec<usize>>,
    }

    impl LinearCall {
        fn kernel(&self, shape: Shape) -> LinearAttention<'_> {
            let key_lengths = self.key_lengths.as_deref();
            LinearAttention { key_lengths, ..self.settings.call(shape, self.causal) }
        }

        fn on_kernels(
            self,
            call: &Call,
            [q, k, v]: [Tensor<4>; 3],
        ) -> Result<Option<Tensor<4>>, Error> {
            let ([batch, heads, queries, head_dim], [_, kv_heads, keys, _]) = (q.dims(), k.dims());
            let value_dim = v.dims()[3];
            let shape = Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim };
            let (layout, learned) = Layout::new(&rotation::alone(call), &q.device());
            let operands = [Operand::new(q), Operand::new(k), Operand::new(v)];
            let ([Some(q), Some(k), Some(v)], Some(learned)) = (operands, Operand::new(learned))
            else {
                return Ok(None);
            };
            let mut out = Pooled::zeros(shape.out_len());
            let mut normalizer = vec![0.0; shape.rows()];
            let inputs = Inputs { q: q.values(), k: k.values(), v: v.values() };
            let linear = self.kernel(shape);
            let turns = !call.features.is_empty();
            match turns {
                false => linear.forward_into(&inputs, &mut out, &mut normalizer)?,
                true => RotatedLinearAttention::new(linear, &layout.call(learned.values()))
                    .forward_into(&inputs, &mut out, &mut normalizer)?,
            }
            let sizes = [batch, heads, queries, value_dim];
            Ok(Some(operation([q, k, v, learned], sizes, out, move |seen| {
                const CHECKED: &str = "the forward pass has checked the same call";
                let [q, k, v, learned] = seen.operands;
                let (linear, inputs) = (self.kernel(shape), Inputs { q, k, v });
                if turns {
                    let made = RotatedLinearAttention::new(linear, &layout.call(learned))
                        .backward(&inputs, seen.out, &normalizer, seen.d_out)
                        .expect(CHECKED);
                    let deltas: Vec<f32> = made.deltas.concat();
                    return [made.q, made.k, made.v, deltas].map(Pooled::from);
                }
                let [q, k, v] = [q, k, v].map(|values| Pooled::zeros(values.len()).into());
                let mut made = LinearGradients { q, k, v };
                linear
                    .backward_into(&inputs, seen.out, &normalizer, seen.d_out, &mut made)
                    .expect(CHECKED);
                [made.q, made.k, made.v, Vec::new()].map(Pooled::from)
            })))
        }
    }
}
