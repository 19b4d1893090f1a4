use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MixingSettings;
use crate::heads::Heads;

/// Linear: weights are `φ(q)·φ(k)` with φ = elu + 1, so that keys and values sum up in a state of constant size.
/// Katharopoulos et al. 2020, <https://arxiv.org/abs/2006.16236>. Cost linear in the length; poor at sharp retrieval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Linear {}

impl MixingSettings for Linear {
    fn has_scores(&self) -> bool {
        false
    }

    /// A state of head_dim² is updated and asked by every token.
    fn flops_per_token(&self, heads: &Heads) -> Option<f64> {
        Some(4.0 * (heads.head_dim * heads.head_dim * heads.heads) as f64)
    }
}

#[cfg(feature = "burn")]
pub use layer::LinearLayer;
#[cfg(feature = "burn")]
pub(crate) use layer::{DecodeSums, State};

#[cfg(feature = "burn")]
mod layer {
    use burn::{
        module::Module,
        tensor::{Device, Tensor, activation::relu},
    };
    use whatwhere_kernels::{
        Pooled,
        attention::{Inputs, Shape},
        linear_attention::{LinearAttention, LinearGradients},
    };
    use whatwhere_settings::Refuses;

    use super::Linear;
    use crate::{
        Error, Path,
        bridge::{Operand, operation},
        composed,
        heads::Heads,
        mixing::{Mix, MixingLayer},
    };

    /// Keeps the denominator from 0, as in the published code.
    const EPSILON: f32 = 1e-6;

    /// What a call needs besides q, k and v.
    #[derive(Clone, Debug)]
    struct LinearCall {
        causal: bool,
        /// Keys that are not padding, for each sequence.
        key_lengths: Option<Vec<usize>>,
    }

    /// Linear mixing at work.
    ///
    /// On burn's CPU backend the kernels compute it in chunks, with their own backward; elsewhere it is composed of tensor
    /// operations with stored weights. Decoding keeps sums over the keys, a state of constant size.
    #[derive(Module, Debug)]
    pub struct LinearLayer {}

    impl LinearLayer {
        pub(crate) fn new(_settings: &Linear, _heads: &Heads, _device: &Device) -> Self {
            Self {}
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
            let Mix { call, path, causal, key_lengths } = mix;
            let count = |end: &usize| end.saturating_sub(call.first_key);
            let key_lengths = key_lengths.map(|ends| ends.iter().map(count).collect());
            let linear = &LinearCall { causal, key_lengths };
            // The kernels' causal form is for equal lengths; a cache brings a state instead.
            let fits = !linear.causal || q.dims()[2] == k.dims()[2];
            if path != Path::Composed
                && fits
                && let Some(out) = on_kernels(linear, q.clone(), k.clone(), v.clone())?
            {
                return Ok(out);
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
            let weights = feature(q).matmul(feature(k).transpose()) * visible;
            let sum = weights.clone().sum_dim(3) + EPSILON;
            Ok(weights.matmul(v) / sum)
        }

        fn decode(&self) -> Option<DecodeSums> {
            Some(decode)
        }
    }

    /// `elu(x) + 1`: x + 1 above 0, eˣ below.
    fn feature(x: Tensor<4>) -> Tensor<4> {
        let negative = x.clone() - relu(x.clone());
        relu(x) + negative.exp()
    }

    /// How new tokens meet the sums over those before, which take them up.
    pub(crate) type DecodeSums =
        fn(&mut Option<State>, Tensor<4>, Tensor<4>, Tensor<4>) -> Tensor<4>;

    /// Sums over the keys seen so far.
    #[derive(Clone, Debug)]
    pub(crate) struct State {
        /// `Σ φ(k) vᵀ`, `[batch, heads, head_dim, head_dim]`.
        pub(crate) sums: Tensor<4>,
        /// `Σ φ(k)`, `[batch, heads, head_dim, 1]`.
        pub(crate) total: Tensor<4>,
    }

    /// The next tokens against the state of those before, which takes them up.
    fn decode(state: &mut Option<State>, q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
        let ([batch, heads, _, dim], width) = (q.dims(), v.dims()[3]);
        let (k, v) = (composed::repeat_heads(k, heads), composed::repeat_heads(v, heads));
        let (q, k) = (feature(q), feature(k));
        let State { sums, total } = state.take().unwrap_or_else(|| State {
            sums: Tensor::zeros([batch, heads, dim, width], &q.device()),
            total: Tensor::zeros([batch, heads, dim, 1], &q.device()),
        });
        let weights = q.clone().matmul(k.clone().transpose()).tril(0);
        let numerator = q.clone().matmul(sums.clone()) + weights.clone().matmul(v.clone());
        let denominator = q.matmul(total.clone()) + weights.sum_dim(3) + EPSILON;
        let keys = k.transpose(); // [batch, heads, head_dim, keys]
        *state =
            Some(State { sums: sums + keys.clone().matmul(v), total: total + keys.sum_dim(3) });
        numerator / denominator
    }

    fn on_kernels(
        linear: &LinearCall,
        q: Tensor<4>,
        k: Tensor<4>,
        v: Tensor<4>,
    ) -> Result<Option<Tensor<4>>, Error> {
        let ([batch, heads, queries, head_dim], [_, kv_heads, keys, _]) = (q.dims(), k.dims());
        let shape =
            Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim: v.dims()[3] };
        let (q, k, v) = (Operand::new(q), Operand::new(k), Operand::new(v));
        let (Some(q), Some(k), Some(v)) = (q, k, v) else { return Ok(None) };
        let (mut out, mut normalizer) = (Pooled::zeros(shape.out_len()), vec![0.0; shape.rows()]);
        let inputs = Inputs { q: q.values(), k: k.values(), v: v.values() };
        linear.kernel(shape).forward_into(&inputs, &mut out, &mut normalizer)?;
        let linear = linear.clone();
        let sizes = [batch, heads, queries, shape.value_dim];
        Ok(Some(operation([q, k, v], sizes, out, move |seen| {
            let [q, k, v] = seen.operands;
            let [d_q, d_k, d_v] = seen.operands.map(|values| Pooled::zeros(values.len()).into());
            let mut made = LinearGradients { q: d_q, k: d_k, v: d_v };
            linear
                .kernel(shape)
                .backward_into(&Inputs { q, k, v }, seen.out, &normalizer, seen.d_out, &mut made)
                .expect("the forward pass has checked the same call");
            [made.q, made.k, made.v].map(Pooled::from)
        })))
    }

    impl LinearCall {
        fn kernel(&self, shape: Shape) -> LinearAttention<'_> {
            LinearAttention {
                key_lengths: self.key_lengths.as_deref(),
                ..LinearAttention::new(shape, self.causal)
            }
        }
    }
}
