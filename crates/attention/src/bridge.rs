//! Between tensors and slices: any operation on f32 slices, with its own backward, as an operation on burn's CPU backend.

use std::sync::Arc;

use burn::tensor::{DType, Tensor, TensorData};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};

/// A tensor on the CPU, tracked or not, ready to be read as a slice.
pub struct Operand {
    /// On a backend with autodiff.
    tracked: Option<FloatTensor<Autodiff<Flex>>>,
    values: FlexTensor,
}

impl Operand {
    /// The operand, or nothing if the tensor lives on another backend.
    pub fn new<const D: usize>(tensor: Tensor<D>) -> Option<Self> {
        if tensor.dtype() != DType::F32 {
            return None;
        }
        if tensor.is_autodiff() {
            let tensor = tensor.try_into_primitive::<Autodiff<Flex>>().ok()?;
            let values = tensor.primitive().to_contiguous();
            return Some(Self { tracked: Some(tensor), values });
        }
        let values = tensor.try_into_primitive::<Flex>().ok()?.to_contiguous();
        Some(Self { tracked: None, values })
    }

    /// The values, row-major.
    pub fn values(&self) -> &[f32] {
        values(&self.values)
    }
}

/// Gradients of the operands, from what they were, what was kept, and the gradient of the result.
pub type Gradient<const N: usize> =
    dyn Fn(&[&[f32]; N], &[f32], &[f32]) -> [Vec<f32>; N] + Send + Sync;

/// The result of an operation as a tensor of `shape`, with `gradient` as its backward. `kept` is what the forward pass
/// leaves for it.
///
/// # Panics
/// If `out` or a gradient has another number of values than its shape asks for.
pub fn operation<const N: usize, const D: usize>(
    operands: [Operand; N],
    shape: [usize; D],
    out: Vec<f32>,
    kept: Vec<f32>,
    gradient: Arc<Gradient<N>>,
) -> Tensor<D> {
    let out = FlexTensor::from_data(TensorData::new(out, shape));
    if operands.iter().any(|operand| operand.tracked.is_none()) {
        return Tensor::from_primitive::<Flex>(out);
    }
    let nodes = operands
        .each_ref()
        .map(|operand| operand.tracked.as_ref().expect("all operands are tracked").node());
    let prepared = Operation::<N>.prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    let out = match prepared {
        OpsKind::UnTracked(prepared) => prepared.finish(out),
        OpsKind::Tracked(prepared) => {
            let operands = operands.map(|operand| operand.values);
            prepared.finish(Kept { operands, kept: kept.into(), gradient }, out)
        }
    };
    Tensor::from_primitive::<Autodiff<Flex>>(out)
}

#[derive(Debug)]
struct Operation<const N: usize>;

#[derive(Clone)]
struct Kept<const N: usize> {
    operands: [FlexTensor; N],
    kept: Arc<[f32]>,
    gradient: Arc<Gradient<N>>,
}

impl<const N: usize> std::fmt::Debug for Kept<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Kept").field("operands", &self.operands).finish_non_exhaustive()
    }
}

impl<const N: usize> Backward<Flex, N> for Operation<N> {
    type State = Kept<N>;

    fn backward(self, ops: Ops<Kept<N>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Kept { operands, kept, gradient } = ops.state;
        let d_out = grads.consume::<Flex>(&ops.node).to_contiguous();
        let made = gradient(&operands.each_ref().map(values), &kept, values(&d_out));
        for ((parent, operand), made) in ops.parents.into_iter().zip(&operands).zip(made) {
            if let Some(parent) = parent {
                let shape = operand.layout().shape().clone();
                let gradient = FlexTensor::from_data(TensorData::new(made, shape));
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// A contiguous tensor's values.
pub(crate) fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("a contiguous f32 tensor")
}
