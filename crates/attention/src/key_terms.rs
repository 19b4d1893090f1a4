//! What distances ask of keys, `k · vectors[distance]`, formed between the projections.
//!
//! The kernels' vectors by distance are asked by queries; this term is a bias as large as the scores, made by the framework's
//! operations on every backend.

use burn::tensor::{Int, Tensor, TensorData};
use whatwhere_kernels::attention::Shape;

use crate::{
    call::{Bias, Call, flat},
    composed::repeat_heads,
};

/// Adds the term of vectors `[heads or 1, left + 1 + right, head_dim]` by clipped distance, for keys
/// `[batch, kv_heads, keys or more, head_dim]`.
pub(crate) fn add_key_terms(
    call: &mut Call,
    k: &Tensor<4>,
    vectors: Tensor<3>,
    [left, right]: [usize; 2],
) {
    let Shape { batch, heads, queries, keys, .. } = call.shape;
    if batch * queries * keys == 0 {
        return;
    }
    let k = repeat_heads(k.clone().narrow(2, 0, keys), heads);
    let terms = k.matmul(vectors.unsqueeze::<4>().transpose()) * call.score.scale();
    let (first_query, first_key) = (call.first_query, call.first_key);
    let entries = (0..keys).flat_map(|key| (0..queries).map(move |query| (key, query)));
    let entries = entries.map(|(key, query)| {
        let distance = (first_key + key) as i64 - (first_query + query) as i64;
        distance.clamp(-(left as i64), right as i64) + left as i64
    });
    let entries = TensorData::new(entries.collect::<Vec<i64>>(), [1, 1, keys, queries]);
    let entries = Tensor::<4, Int>::from_data(entries, &terms.device());
    let entries = entries.expand([batch, heads, keys, queries]);
    let values = terms.gather(3, entries).swap_dims(2, 3);
    let shape = values.dims();
    call.biases.push(Bias::Dense { values: flat(values), shape, learned: true });
}
