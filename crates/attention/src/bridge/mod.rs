//! Between tensors and slices: any operation on f32 slices, with its own backward, as an operation on burn's CPU backend.
//!
//! What an operation makes comes from the kernels' pool and goes back to it when the last tensor that shares it is gone, so
//! that a training step finds the buffers of the one before.

#![expect(unsafe_code, reason = "the framework's buffers are bytes that may be uninitialised")]

mod mapped;

use std::{mem::MaybeUninit, sync::Arc};

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes, Shape};
use whatwhere_kernels::{
    Pooled,
    layer::{add_to, square_sum},
};

pub use mapped::{Mapped, mapped};

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

    /// The operand, or a copy on the CPU of a tensor that lives on another backend.
    pub fn copied<const D: usize>(tensor: Tensor<D>) -> Self {
        Self::new(tensor.clone()).unwrap_or_else(|| {
            let data = tensor.into_data().convert::<f32>();
            Self::new(Tensor::<D>::from_data(data, &Device::flex())).expect("a tensor on the CPU")
        })
    }

    /// Values of one's own, untracked.
    pub fn of(values: Pooled) -> Self {
        let length = values.len();
        Self { tracked: None, values: tensor(values, [length]) }
    }

    /// So many zeros, untracked.
    pub fn zeros(length: usize) -> Self {
        Self::of(Pooled::zeros(length))
    }

    /// The sum of the values' squares.
    pub fn square_sum(&self) -> f64 {
        square_sum(self.values())
    }

    /// Adds the values of another operand, as many, in place if nobody else holds these.
    ///
    /// # Panics
    /// If there are more or fewer.
    pub fn add(&mut self, more: &Self) {
        if self.values.try_storage_mut::<f32>().is_none() {
            *self = Self::of(Pooled::of(self.values()));
        }
        let sum = self.values.try_storage_mut().expect("a copy of one's own");
        add_to(sum, more.values()).expect("as many values");
    }

    /// An operand without values, where an operation has nothing in its place.
    pub fn nothing(device: &Device) -> Option<Self> {
        Self::new(Tensor::<1>::zeros([0], device))
    }

    /// The values, row-major.
    pub fn values(&self) -> &[f32] {
        values(&self.values)
    }
}

/// What the backward pass of an operation sees.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, const N: usize> {
    /// The operands' values.
    pub operands: [&'a [f32]; N],
    /// The result's values.
    pub out: &'a [f32],
    /// The gradient of the result.
    pub d_out: &'a [f32],
}

/// Gradients of the operands. Whatever else the forward pass leaves for it, it owns.
pub type Gradient<const N: usize> = dyn Fn(Saved<N>) -> [Pooled; N] + Send + Sync;

/// The result of an operation as a tensor of `shape`, with `gradient` as its backward.
///
/// # Panics
/// If `out` or a gradient has another number of values than its shape asks for.
pub fn operation<const N: usize, const D: usize>(
    operands: [Operand; N],
    shape: [usize; D],
    out: Pooled,
    gradient: impl Fn(Saved<N>) -> [Pooled; N] + Send + Sync + 'static,
) -> Tensor<D> {
    let out = tensor(out, shape);
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
            let state = Graph { operands, out: out.clone(), gradient: Arc::new(gradient) };
            prepared.finish(state, out)
        }
    };
    Tensor::from_primitive::<Autodiff<Flex>>(out)
}

/// Values as a tensor of `shape` that nothing is learned from.
///
/// # Panics
/// If there are more or fewer values than the shape asks for.
pub fn untracked<const D: usize>(values: Pooled, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_primitive::<Flex>(tensor(values, shape))
}

/// The result of reading parts of a parameter, whose gradient is added by `add` to what the parameter has already: its
/// table is large, and a second one of zeros would be most of the work. The operand must be a parameter itself.
///
/// # Panics
/// If `out` has another number of values than its shape asks for.
pub fn gather_into_gradient<const D: usize>(
    operand: Operand,
    shape: [usize; D],
    out: Pooled,
    add: impl Fn(&[f32], &mut [f32]) + Send + Sync + 'static,
) -> Tensor<D> {
    let out = tensor(out, shape);
    let Some(tracked) = operand.tracked else { return Tensor::from_primitive::<Flex>(out) };
    let prepared = Gathered.prepare::<NoCheckpointing>([tracked.node()]).compute_bound().stateful();
    let out = match prepared {
        OpsKind::UnTracked(prepared) => prepared.finish(out),
        OpsKind::Tracked(prepared) => {
            prepared.finish(Added { parameter: tracked, add: Arc::new(add) }, out)
        }
    };
    Tensor::from_primitive::<Autodiff<Flex>>(out)
}

/// Adds the gradient of a result to that of what it was read from.
type Addition = dyn Fn(&[f32], &mut [f32]) + Send + Sync;

#[derive(Debug)]
struct Gathered;

#[derive(Clone)]
struct Added {
    /// A leaf, which its module holds anyway.
    parameter: FloatTensor<Autodiff<Flex>>,
    add: Arc<Addition>,
}

impl std::fmt::Debug for Added {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Added").field("parameter", &self.parameter).finish_non_exhaustive()
    }
}

impl Backward<Flex, 1> for Gathered {
    type State = Added;

    fn backward(self, ops: Ops<Added, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Added { parameter, add } = ops.state;
        let d_out = grads.consume::<Flex>(&ops.node).to_contiguous();
        let [Some(parent)] = ops.parents else { return };
        let shape = parameter.primitive().layout().shape().clone();
        let mut sum = match grads.remove::<Flex>(&parameter) {
            Some(sum) => sum.to_contiguous(),
            None => tensor(Pooled::zeros(shape.num_elements()), shape),
        };
        add(values(&d_out), sum.storage_mut());
        grads.register::<Flex>(parent.id, sum);
    }
}

#[derive(Debug)]
struct Operation<const N: usize>;

#[derive(Clone)]
struct Graph<const N: usize> {
    operands: [FlexTensor; N],
    out: FlexTensor,
    gradient: Arc<Gradient<N>>,
}

impl<const N: usize> std::fmt::Debug for Graph<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Graph").field("operands", &self.operands).finish_non_exhaustive()
    }
}

impl<const N: usize> Backward<Flex, N> for Operation<N> {
    type State = Graph<N>;

    fn backward(self, ops: Ops<Graph<N>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Graph { operands, out, gradient } = ops.state;
        let d_out = grads.consume::<Flex>(&ops.node).to_contiguous();
        let slices = operands.each_ref().map(values);
        let made = gradient(Saved { operands: slices, out: values(&out), d_out: values(&d_out) });
        for ((parent, operand), made) in ops.parents.into_iter().zip(&operands).zip(made) {
            if let Some(parent) = parent {
                let gradient = tensor(made, operand.layout().shape().clone());
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// A contiguous tensor's values.
fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("a contiguous f32 tensor")
}

/// Values as a tensor, without a copy.
fn tensor(values: Pooled, shape: impl Into<Shape>) -> FlexTensor {
    let length = size_of_val(&*values);
    // SAFETY: all values of a pooled buffer are initialised, so `length` bytes of it are.
    let bytes = unsafe { Bytes::from_controller(Box::new(PooledBytes(values)), length) };
    FlexTensor::from_data(TensorData::from_bytes(bytes, shape, DType::F32))
}

/// A pooled buffer behind a tensor.
struct PooledBytes(Pooled);

impl AllocationController for PooledBytes {
    fn alloc_align(&self) -> usize {
        align_of::<f32>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(
        &mut self,
        _: AccessPolicy,
    ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let values: &mut [f32] = &mut self.0;
        let length = size_of_val(values);
        // SAFETY: the bytes are those of the slice, borrowed as long; the caller writes initialised bytes only, and any
        // such bytes are f32 values.
        Ok(unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), length) })
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let values: &[f32] = &self.0;
        // SAFETY: the bytes are those of the slice, borrowed as long.
        Ok(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) })
    }

    fn capacity(&self) -> usize {
        size_of_val(&*self.0)
    }
}
