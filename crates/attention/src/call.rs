//! One attention call on tensors: what scores and encodings ask for, in terms both paths understand.
//!
//! A score or an encoding never knows how it is computed. It adds terms to a [`Call`], the kernels' own description of a
//! call over flat tensors; the fused path hands them to the kernels as slices, the composed path turns them into tensor
//! operations. The formula and its order are those of [`whatwhere_kernels`].

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};
use whatwhere_kernels::attention::{self as kernels, pattern::Pattern};

use crate::slot::Slot;

/// Everything a call computes besides q, k and v.
pub type Call = kernels::Call<Tensor<1>, Arc<dyn Pattern>>;
/// How queries and keys are compared.
pub type Score = kernels::Score<Tensor<1>>;
/// What a position does to some channels of some heads.
pub type Feature = kernels::Feature<Tensor<1>>;
/// The kinds of feature.
pub type FeatureKind = kernels::FeatureKind<Tensor<1>>;
/// What is added to the scores.
pub type Bias = kernels::Bias<Tensor<1>>;
/// Vectors by clipped distance.
pub type Relative = kernels::Relative<Tensor<1>>;
/// Luong's local-p.
pub type Focus = kernels::Focus<Tensor<1>>;

/// A tensor as a call holds it; the call itself says its sizes.
pub fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// What a call over `heads` heads has for a slot, made of its array by operations that have a gradient.
pub fn value(slot: &Slot, array: Tensor<1>, heads: usize) -> Tensor<1> {
    let Some(columns) = &slot.columns else { return array };
    let (device, rows) = (array.device(), array.dims()[0] / columns.width);
    let distances = [columns.of.len()];
    let (of, factors): (Vec<i64>, Vec<f32>) =
        columns.of.iter().map(|(column, factor)| (*column as i64, *factor)).unzip();
    let mut table = array.reshape([rows, columns.width]);
    if columns.width > 1 {
        let of = Tensor::<1, Int>::from_data(TensorData::new(of, distances), &device);
        table = table.select(1, of); // [rows, distances]
    }
    if columns.width == 1 || factors.iter().any(|factor| *factor != 1.0) {
        let factors = Tensor::<1>::from_data(TensorData::new(factors, distances), &device);
        table = table * factors.unsqueeze_dim::<2>(0);
    }
    if rows < heads {
        let others = [columns.first, heads - rows - columns.first];
        let [before, after] = others.map(|n| Tensor::zeros([n, distances[0]], &device));
        let parts = [before, table, after].into_iter().filter(|part| part.dims()[0] > 0);
        table = Tensor::cat(parts.collect(), 0);
    }
    flat(table)
}

/// k and v without the capacity for more keys.
pub(crate) fn present(call: &Call, k: Tensor<4>, v: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
    let keys = call.shape.keys;
    if keys < k.dims()[2] { (k.narrow(2, 0, keys), v.narrow(2, 0, keys)) } else { (k, v) }
}
