//! One direction of one layer: what inputs ask of the gates, and the recurrence over it.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{
        Device, Tensor, TensorData,
        activation::{sigmoid, tanh},
    },
};
use whatwhere_attention::{
    Path,
    bridge::{Operand, operation},
};
use whatwhere_kernels::layer::{Cell, Recurrence};

/// A GRU or an LSTM over a sequence, in one direction.
#[derive(Module, Debug)]
pub struct RecurrentLayer {
    /// Of the tokens, `[from, gates · width]`, with the gates' biases.
    pub input: Linear,
    /// Of the state, `[width, gates · width]`.
    pub state: Linear,
    #[module(skip)]
    cell: Cell,
    #[module(skip)]
    is_reversed: bool,
}

/// What a recurrence over some tokens gives.
pub(crate) struct Run {
    /// After each token, `[batch, length, width]`.
    pub(crate) out: Tensor<3>,
    /// After the last, `[batch, states, width]`: the next tokens go on from it.
    pub(crate) last: Tensor<3>,
}

impl RecurrentLayer {
    pub(crate) fn new(
        cell: Cell,
        from: usize,
        width: usize,
        is_reversed: bool,
        device: &Device,
    ) -> Self {
        let wide = cell.gates() * width;
        Self {
            input: LinearConfig::new(from, wide).init(device),
            state: LinearConfig::new(width, wide).with_bias(false).init(device),
            cell,
            is_reversed,
        }
    }

    /// Channels of the state.
    pub(crate) fn width(&self) -> usize {
        self.state.weight.lazy_shape()[0]
    }

    /// Over what inputs ask, `[batch, length, gates · width]`, from a state before or from zeros. Beyond the lengths the
    /// state stays as it is.
    pub(crate) fn run(
        &self,
        gates: Tensor<3>,
        first: Option<Tensor<3>>,
        lengths: Option<&[usize]>,
        path: Path,
    ) -> Run {
        let length = gates.dims()[1];
        let states = self.cell.states();
        let all = match path {
            Path::Composed => None,
            Path::Auto | Path::Fused => self.fused(gates.clone(), first.clone(), lengths),
        };
        let all = all.unwrap_or_else(|| self.composed(gates, first, lengths));
        Run { out: all.clone().narrow(1, 0, length), last: all.narrow(1, length, states) }
    }

    /// `[batch, length + states, width]` by the kernels; nothing on another backend.
    fn fused(
        &self,
        gates: Tensor<3>,
        first: Option<Tensor<3>>,
        lengths: Option<&[usize]>,
    ) -> Option<Tensor<3>> {
        const CHECKED: &str = "the forward pass has checked the same call";
        let [batch, length, _] = gates.dims();
        let sizes = Sizes {
            cell: self.cell,
            batch,
            length,
            width: self.width(),
            is_reversed: self.is_reversed,
            lengths: lengths.map(<[_]>::to_vec),
        };
        let first = match first {
            Some(first) => Operand::new(first)?,
            None => Operand::nothing(&gates.device())?,
        };
        let operands = [Operand::new(gates)?, first, Operand::new(self.state.weight.val())?];
        let [gates, first, weight] = operands.each_ref().map(Operand::values);
        let (out, steps) = sizes.call(weight).forward(gates, first).ok()?;
        let shape = [batch, length + sizes.cell.states(), sizes.width];
        Some(operation(operands, shape, out, move |seen| {
            let [_, first, weight] = seen.operands;
            let call = sizes.call(weight);
            let made = call.backward(first, seen.out, &steps, seen.d_out).expect(CHECKED);
            [made.gates, made.first, made.weight]
        }))
    }

    /// The same by the framework's operations.
    fn composed(
        &self,
        gates: Tensor<3>,
        first: Option<Tensor<3>>,
        lengths: Option<&[usize]>,
    ) -> Tensor<3> {
        let ([batch, length, _], width, device) = (gates.dims(), self.width(), gates.device());
        let zeros = || Tensor::zeros([batch, self.cell.states(), width], &device);
        let first = first.unwrap_or_else(zeros);
        let part = |x: &Tensor<2>, gate: usize| x.clone().narrow(1, gate * width, width);
        let state = |at: usize| first.clone().narrow(1, at, 1).squeeze_dim::<2>(1);
        let mut h = state(0);
        let mut c = (self.cell == Cell::Lstm).then(|| state(1));
        let mut out = vec![None; length];
        for step in 0..length {
            let token = if self.is_reversed { length - 1 - step } else { step };
            let x = gates.clone().narrow(1, token, 1).squeeze_dim::<2>(1); // [batch, gates · width]
            let asked = h.clone().matmul(self.state.weight.val());
            let both = |gate: usize| part(&x, gate) + part(&asked, gate);
            let (next, cell) = match &c {
                None => {
                    let (z, r) = (sigmoid(both(0)), sigmoid(both(1)));
                    let candidate = tanh(part(&x, 2) + r * part(&asked, 2));
                    (h.clone() + z * (candidate - h.clone()), None)
                }
                Some(c) => {
                    let forget = sigmoid(both(1) + 1.0);
                    let cell = forget * c.clone() + sigmoid(both(0)) * tanh(both(3));
                    (sigmoid(both(2)) * tanh(cell.clone()), Some(cell))
                }
            };
            let there = lengths.map(|lengths| {
                let there = lengths.iter().map(|length| f32::from(u8::from(token < *length)));
                let there = TensorData::new(there.collect::<Vec<f32>>(), [batch, 1]);
                Tensor::<2>::from_data(there, &device)
            });
            let kept = |next: Tensor<2>, before: Tensor<2>| match &there {
                None => next,
                Some(there) => before.clone() + there.clone() * (next - before),
            };
            h = kept(next, h);
            c = c.zip(cell).map(|(before, cell)| kept(cell, before));
            out[token] = Some(h.clone());
        }
        let rows = out.into_iter().flatten().chain([h]).chain(c);
        Tensor::cat(rows.map(|row| row.unsqueeze_dim::<3>(1)).collect(), 1)
    }
}

/// A recurrence but for its weight.
struct Sizes {
    cell: Cell,
    batch: usize,
    length: usize,
    width: usize,
    is_reversed: bool,
    lengths: Option<Vec<usize>>,
}

impl Sizes {
    fn call<'a>(&'a self, weight: &'a [f32]) -> Recurrence<'a> {
        let Self { cell, batch, length, width, is_reversed, ref lengths } = *self;
        let lengths = lengths.as_deref();
        Recurrence { cell, batch, length, width, is_reversed, lengths, weight }
    }
}
