//! A recurrence over the tokens of several sequences, GRU or LSTM, and its gradients through time.
//!
//! What inputs ask of the gates is made before, for all tokens in one product, by a [`Linear`]; a step adds what the state
//! asks, one product over all sequences, and forms the next state:
//!
//! | cell | gates | step |
//! |---|---|---|
//! | GRU | update z, reset r, candidate n | `h = (1 − z) ∘ h + z ∘ n`, `n = tanh(xₙ + r ∘ (h U)ₙ)` |
//! | LSTM | input i, forget f, output o, candidate g | `c = f ∘ c + i ∘ g`, `h = o ∘ tanh(c)`, `f = σ(x_f + (h U)_f + 1)` |
//!
//! Gates but candidates are σ. GRU: Cho et al. 2014, <https://arxiv.org/abs/1406.1078>, with the reset after the product, as
//! torch and cuDNN have it: one product a step instead of two. LSTM: Hochreiter and Schmidhuber 1997; a forget gate that
//! starts open by 1 is Gers et al. 2000's, measured in Jozefowicz et al. 2015.

mod cell;

use rayon::prelude::*;

use crate::{
    Error, Pooled, Precision,
    error::{expect_len, expect_lens, expect_nonzero},
    layer::Linear,
    simd::gemm::{Matrix, product},
};

pub use cell::Cell;

/// A recurrence of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Recurrence<'a> {
    /// How a state follows from the one before.
    pub cell: Cell,
    /// Sequences.
    pub batch: usize,
    /// Tokens of each.
    pub length: usize,
    /// Channels of the state.
    pub width: usize,
    /// Whether it goes from the last token to the first.
    pub is_reversed: bool,
    /// Tokens that are not padding, one number for each sequence; all if absent. Padding passes the state on as it is.
    pub lengths: Option<&'a [usize]>,
    /// Of the state, `[width, gates · width]`.
    pub weight: &'a [f32],
}

/// What the backward pass needs besides the output.
#[derive(Debug)]
pub struct Steps {
    /// Gates as they were, `[batch, length, gates · width]`.
    gates: Pooled,
    /// `[batch, length, width]`: of a GRU what the state asks of the candidate, of an LSTM the cell.
    beside: Pooled,
}

/// Gradients, each as long as what it belongs to.
#[derive(Debug)]
pub struct RecurrenceGradients {
    /// Of what inputs ask of the gates.
    pub gates: Pooled,
    /// Of the first state; empty where it was.
    pub first: Pooled,
    /// Of the weight.
    pub weight: Pooled,
}

impl Recurrence<'_> {
    /// Values of `gates`: what inputs ask, `[batch, length, gates · width]`.
    pub fn gates_len(&self) -> usize {
        self.batch * self.length * self.wide()
    }

    /// Values of the output, `[batch, length + states, width]`: the states after each token, then the last state and, of an
    /// LSTM, the last cell, in the order of the recurrence.
    pub fn out_len(&self) -> usize {
        self.batch * self.per_sequence()
    }

    /// The states, and what the backward pass needs. `first` is the state before, `[batch, states, width]`, or empty for
    /// zeros.
    pub fn forward(&self, gates: &[f32], first: &[f32]) -> Result<(Pooled, Steps), Error> {
        self.check(gates.len(), first.len())?;
        let Self { batch, length, width, cell, .. } = *self;
        let wide = self.wide();
        let mut out = Pooled::uncleared(self.out_len());
        let mut steps =
            Steps { gates: Pooled::of(gates), beside: Pooled::uncleared(batch * length * width) };
        let mut states = Pooled::zeros(batch * width);
        let mut cells = Pooled::zeros(if cell == Cell::Lstm { batch * width } else { 0 });
        for (i, first) in first.chunks_exact(cell.states() * width).enumerate() {
            states[i * width..][..width].copy_from_slice(&first[..width]);
            if cell == Cell::Lstm {
                cells[i * width..][..width].copy_from_slice(&first[width..]);
            }
        }
        let mut asked = Pooled::uncleared(batch * wide);
        let of_state = Linear {
            from: width,
            to: wide,
            weight: self.weight,
            bias: None,
            precision: Precision::F32,
        };
        let per_gates = (length * wide).max(1);
        let per_beside = (length * width).max(1);
        for token in self.order() {
            of_state.forward(&states, &mut asked)?;
            let rows = asked.par_chunks(wide).zip(states.par_chunks_mut(width));
            let rows = rows.zip(out.par_chunks_mut(self.per_sequence()));
            let kept = steps.gates.par_chunks_mut(per_gates);
            let rows = rows.zip(kept.zip(steps.beside.par_chunks_mut(per_beside)));
            let row = |i: usize, asked: &[f32], state: &mut [f32], kept: [&mut [f32]; 3]| {
                let [gates, beside, cells] = kept;
                let own = &mut beside[token * width..][..width];
                if self.is_padding(i, token) {
                    own.copy_from_slice(if cells.is_empty() { &asked[..width] } else { cells });
                    return;
                }
                cell.step(&mut gates[token * wide..][..wide], asked, state, cells, own);
            };
            match cell {
                Cell::Gru => rows.enumerate().for_each(|(i, (((asked, state), out), kept))| {
                    row(i, asked, state, [kept.0, kept.1, &mut []]);
                    out[token * width..][..width].copy_from_slice(state);
                }),
                Cell::Lstm => rows.zip(cells.par_chunks_mut(width)).enumerate().for_each(
                    |(i, ((((asked, state), out), kept), cells))| {
                        row(i, asked, state, [kept.0, kept.1, cells]);
                        out[token * width..][..width].copy_from_slice(state);
                    },
                ),
            }
        }
        for (i, out) in out.chunks_exact_mut(self.per_sequence()).enumerate() {
            let last = &mut out[length * width..];
            last[..width].copy_from_slice(&states[i * width..][..width]);
            if cell == Cell::Lstm {
                last[width..].copy_from_slice(&cells[i * width..][..width]);
            }
        }
        Ok((out, steps))
    }

    /// The gradients of everything, from that of the output.
    pub fn backward(
        &self,
        first: &[f32],
        out: &[f32],
        steps: &Steps,
        d_out: &[f32],
    ) -> Result<RecurrenceGradients, Error> {
        self.check(steps.gates.len(), first.len())?;
        expect_lens([
            ("out", out.len(), self.out_len()),
            ("d_out", d_out.len(), self.out_len()),
            ("beside", steps.beside.len(), self.batch * self.length * self.width),
        ])?;
        let Self { batch, length, width, cell, .. } = *self;
        let (wide, each) = (self.wide(), self.per_sequence());
        let mut d_gates = Pooled::uncleared(self.gates_len());
        // What reaches the product of the state; of an LSTM the same as what reaches the gates.
        let mut d_asked = Pooled::uncleared(if cell == Cell::Gru { self.gates_len() } else { 0 });
        let mut d_step = Pooled::uncleared(batch * wide);
        let last = |state: usize| {
            let mut carried = Pooled::uncleared(batch * width);
            for (d, d_out) in carried.chunks_exact_mut(width).zip(d_out.chunks_exact(each)) {
                d.copy_from_slice(&d_out[(length + state) * width..][..width]);
            }
            carried
        };
        let mut d_states = last(0);
        let mut d_cells = if cell == Cell::Lstm { last(1) } else { Pooled::default() };
        let zeros = vec![0.0; cell.states() * width];
        for token in self.order().rev() {
            let before = self.before(token);
            let per_gates = length * wide;
            let rows = d_states.par_chunks_mut(width).zip(d_step.par_chunks_mut(wide));
            let rows = rows.zip(d_gates.par_chunks_mut(per_gates)).enumerate();
            let row = |i: usize, grads: [&mut [f32]; 5]| {
                let [d_state, d_step, d_gates, d_asked, d_cells] = grads;
                let d_out = &d_out[i * each + token * width..][..width];
                d_state.iter_mut().zip(d_out).for_each(|(d, more)| *d += more);
                let d_gates = &mut d_gates[token * wide..][..wide];
                if self.is_padding(i, token) {
                    d_gates.fill(0.0);
                    d_step.fill(0.0);
                } else {
                    let first = match first.is_empty() {
                        true => &zeros[..],
                        false => &first[i * cell.states() * width..][..cell.states() * width],
                    };
                    let own = (i * length + token) * width;
                    let state = match before {
                        None => &first[..width],
                        Some(at) => &out[i * each + at * width..][..width],
                    };
                    let cells = match (cell, before) {
                        (Cell::Gru, _) => &[][..],
                        (Cell::Lstm, None) => &first[width..],
                        (Cell::Lstm, Some(at)) => {
                            &steps.beside[(i * length + at) * width..][..width]
                        }
                    };
                    cell.back(cell::Back {
                        gates: &steps.gates[(i * length + token) * wide..][..wide],
                        beside: &steps.beside[own..][..width],
                        state,
                        cells,
                        d_state,
                        d_cells,
                        d_gates,
                        d_asked: d_step,
                    });
                }
                if !d_asked.is_empty() {
                    d_asked[token * wide..][..wide].copy_from_slice(d_step);
                }
            };
            match cell {
                Cell::Gru => rows.zip(d_asked.par_chunks_mut(per_gates)).for_each(
                    |((i, ((d_state, d_step), d_gates)), d_asked)| {
                        row(i, [d_state, d_step, d_gates, d_asked, &mut []]);
                    },
                ),
                Cell::Lstm => rows.zip(d_cells.par_chunks_mut(width)).for_each(
                    |((i, ((d_state, d_step), d_gates)), d_cells)| {
                        row(i, [d_state, d_step, d_gates, &mut [], d_cells]);
                    },
                ),
            }
            let weight = Matrix::new(self.weight, width, wide).transposed();
            product(&mut d_states, true, Matrix::new(&d_step, batch, wide), weight);
        }
        let states = self.states_before(first, out);
        let asked = if cell == Cell::Gru { &d_asked } else { &d_gates };
        let mut weight = Pooled::uncleared(self.weight.len());
        let rows = batch * length;
        let states = Matrix::new(&states, rows, width).transposed();
        product(&mut weight, false, states, Matrix::new(asked, rows, wide));
        let mut d_first = Pooled::uncleared(first.len());
        for (i, d) in d_first.chunks_exact_mut(cell.states() * width).enumerate() {
            d[..width].copy_from_slice(&d_states[i * width..][..width]);
            if cell == Cell::Lstm {
                d[width..].copy_from_slice(&d_cells[i * width..][..width]);
            }
        }
        Ok(RecurrenceGradients { gates: d_gates, first: d_first, weight })
    }

    /// The state before each token, `[batch, length, width]`.
    fn states_before(&self, first: &[f32], out: &[f32]) -> Pooled {
        let Self { batch, length, width, cell, .. } = *self;
        let mut states = Pooled::zeros(batch * length * width);
        for i in 0..batch {
            for token in 0..length {
                let from = match self.before(token) {
                    Some(at) => &out[i * self.per_sequence() + at * width..][..width],
                    None if first.is_empty() => continue,
                    None => &first[i * cell.states() * width..][..width],
                };
                states[(i * length + token) * width..][..width].copy_from_slice(from);
            }
        }
        states
    }

    /// Tokens in the order of the recurrence.
    fn order(&self) -> impl DoubleEndedIterator<Item = usize> {
        let (length, is_reversed) = (self.length, self.is_reversed);
        (0..length).map(move |step| if is_reversed { length - 1 - step } else { step })
    }

    /// The token before in that order.
    fn before(&self, token: usize) -> Option<usize> {
        match self.is_reversed {
            false => token.checked_sub(1),
            true => Some(token + 1).filter(|next| *next < self.length),
        }
    }

    fn is_padding(&self, sequence: usize, token: usize) -> bool {
        self.lengths.is_some_and(|lengths| token >= lengths[sequence])
    }

    fn wide(&self) -> usize {
        self.cell.gates() * self.width
    }

    fn per_sequence(&self) -> usize {
        (self.length + self.cell.states()) * self.width
    }

    fn check(&self, gates: usize, first: usize) -> Result<(), Error> {
        expect_nonzero([("width", self.width), ("batch", self.batch), ("length", self.length)])?;
        expect_lens([
            ("gates", gates, self.gates_len()),
            ("weight", self.weight.len(), self.width * self.wide()),
        ])?;
        if first > 0 {
            expect_len("first state", first, self.batch * self.cell.states() * self.width)?;
        }
        let Some(lengths) = self.lengths else { return Ok(()) };
        expect_len("list of lengths", lengths.len(), self.batch)?;
        match lengths.iter().find(|length| **length > self.length) {
            None => Ok(()),
            Some(found) => {
                let allowed = "what a sequence has tokens";
                Err(Error::Range { what: "length", found: found.to_string(), allowed })
            }
        }
    }
}

#[cfg(test)]
mod tests;
