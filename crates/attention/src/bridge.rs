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
#[derive(Debug)]
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

/// What the backward pass of an operation sees.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a, const N: usize> {
    /// The operands' values.
    pub operands: [&'a [f32]; N],
    /// The result's values.
    pub out: &'a [f32],
    /// The gradient of the result.
    pub d_out: &'a [f32],
}

/// Gradients of the operands. Whatever else the forward pass leaves for it, it owns.
pub type Gradient<const N: usize> = dyn Fn(Seen<N>) -> [Vec<f32>; N] + Send + Sync;

/// The result of an operation as a tensor of `shape`, with `gradient` as its backward.
///
/// # Panics
/// If `out` or a gradient has another number of values than its shape asks for.
pub fn operation<const N: usize, const D: usize>(
    operands: [Operand; N],
    shape: [usize; D],
    out: Vec<f32>,
    gradient: impl Fn(Seen<N>) -> [Vec<f32>; N] + Send + Sync + 'static,
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
            let state = Kept { operands, out: out.clone(), gradient: Arc::new(gradient) };
            prepared.finish(state, out)
        }
    };
    Tensor::from_primitive::<Autodiff<Flex>>(out)
}

#[derive(Debug)]
struct Operation<const N: usize>;

#[derive(Clone)]
struct Kept<const N: usize> {
    operands: [FlexTensor; N],
    out: FlexTensor,
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
        let Kept { operands, out, gradient } = ops.state;
        let d_out = grads.consume::<Flex>(&ops.node).to_contiguous();
        let slices = operands.each_ref().map(values);
        let made = gradient(Seen { operands: slices, out: values(&out), d_out: values(&d_out) });
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
fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("a contiguous f32 tensor")
}
