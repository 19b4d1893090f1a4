//! One step of one sequence, and the step back.

use crate::{Simd, simd::math::exp_scalar as exp};

/// Added to what is asked of an LSTM's forget gate, so that it starts open.
const FORGET: f32 = 1.0;

/// How a state follows from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Update and reset gate, candidate.
    Gru,
    /// Input, forget and output gate, candidate; a cell beside the state.
    Lstm,
}

/// What the step back reads and writes.
pub(super) struct Back<'a> {
    /// As they were.
    pub(super) gates: &'a [f32],
    /// Of a GRU what the state asked of the candidate, of an LSTM the cell.
    pub(super) beside: &'a [f32],
    /// The state before, and the cell before.
    pub(super) state: &'a [f32],
    pub(super) cells: &'a [f32],
    /// Of the state after; becomes that of the state before, but for what comes through the product.
    pub(super) d_state: &'a mut [f32],
    pub(super) d_cells: &'a mut [f32],
    /// Of what inputs asked, and of what the state asked.
    pub(super) d_gates: &'a mut [f32],
    pub(super) d_asked: &'a mut [f32],
}

impl Cell {
    /// Every cell.
    pub const ALL: [Self; 2] = [Self::Gru, Self::Lstm];

    /// Gates, the candidate among them.
    pub fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Vectors that go from token to token.
    pub fn states(self) -> usize {
        match self {
            Self::Gru => 1,
            Self::Lstm => 2,
        }
    }

    /// From what inputs and state ask to gates, in place, and to the next state and cell. What the backward pass needs
    /// besides goes into `beside`.
    pub(super) fn step(
        self,
        gates: &mut [f32],
        asked: &[f32],
        state: &mut [f32],
        cells: &mut [f32],
        beside: &mut [f32],
    ) {
        let width = state.len();
        let simd = Simd::detect();
        match self {
            Self::Gru => simd.run(
                #[inline(always)]
                || {
                    let (z, rest) = gates.split_at_mut(width);
                    let (r, n) = rest.split_at_mut(width);
                    let (az, rest) = asked.split_at(width);
                    let (ar, an) = rest.split_at(width);
                    let n = &mut n[..width];
                    let (an, state, beside) =
                        (&an[..width], &mut state[..width], &mut beside[..width]);
                    for i in 0..width {
                        let update = sigmoid(z[i] + az[i]);
                        let reset = sigmoid(r[i] + ar[i]);
                        let candidate = tanh(n[i] + reset * an[i]);
                        (z[i], r[i], n[i], beside[i]) = (update, reset, candidate, an[i]);
                        state[i] += update * (candidate - state[i]);
                    }
                },
            ),
            Self::Lstm => simd.run(
                #[inline(always)]
                || {
                    let (i_, rest) = gates.split_at_mut(width);
                    let (f, rest) = rest.split_at_mut(width);
                    let (o, g) = rest.split_at_mut(width);
                    let (ai, rest) = asked.split_at(width);
                    let (af, rest) = rest.split_at(width);
                    let (ao, ag) = rest.split_at(width);
                    let (g, ag, state) = (&mut g[..width], &ag[..width], &mut state[..width]);
                    let (cells, beside) = (&mut cells[..width], &mut beside[..width]);
                    for i in 0..width {
                        let input = sigmoid(i_[i] + ai[i]);
                        let forget = sigmoid(f[i] + af[i] + FORGET);
                        let output = sigmoid(o[i] + ao[i]);
                        let candidate = tanh(g[i] + ag[i]);
                        (i_[i], f[i], o[i], g[i]) = (input, forget, output, candidate);
                        cells[i] = forget * cells[i] + input * candidate;
                        beside[i] = cells[i];
                        state[i] = output * tanh(cells[i]);
                    }
                },
            ),
        }
    }

    /// The gradients of a step.
    pub(super) fn back(self, back: Back) {
        let width = back.state.len();
        let Back { gates, beside, state, cells, d_state, d_cells, d_gates, d_asked } = back;
        let simd = Simd::detect();
        match self {
            Self::Gru => simd.run(
                #[inline(always)]
                || {
                    let (z, rest) = gates.split_at(width);
                    let (r, n) = rest.split_at(width);
                    let (dz, rest) = d_gates.split_at_mut(width);
                    let (dr, dn) = rest.split_at_mut(width);
                    let (n, dn) = (&n[..width], &mut dn[..width]);
                    let (beside, d_state) = (&beside[..width], &mut d_state[..width]);
                    let through = &mut d_asked[2 * width..3 * width];
                    for i in 0..width {
                        let d = d_state[i];
                        let d_candidate = d * z[i] * (1.0 - n[i] * n[i]);
                        dz[i] = d * (n[i] - state[i]) * z[i] * (1.0 - z[i]);
                        dr[i] = d_candidate * beside[i] * r[i] * (1.0 - r[i]);
                        dn[i] = d_candidate;
                        through[i] = d_candidate * r[i];
                        d_state[i] = d * (1.0 - z[i]);
                    }
                    d_asked[..2 * width].copy_from_slice(&d_gates[..2 * width]);
                },
            ),
            Self::Lstm => simd.run(
                #[inline(always)]
                || {
                    let (i_, rest) = gates.split_at(width);
                    let (f, rest) = rest.split_at(width);
                    let (o, g) = rest.split_at(width);
                    let (di, rest) = d_gates.split_at_mut(width);
                    let (df, rest) = rest.split_at_mut(width);
                    let (d_o, dg) = rest.split_at_mut(width);
                    let (g, dg, beside) = (&g[..width], &mut dg[..width], &beside[..width]);
                    let (d_state, d_cells) = (&mut d_state[..width], &mut d_cells[..width]);
                    let cells = &cells[..width];
                    for i in 0..width {
                        let bent = tanh(beside[i]);
                        let d = d_state[i];
                        let d_cell = d_cells[i] + d * o[i] * (1.0 - bent * bent);
                        di[i] = d_cell * g[i] * i_[i] * (1.0 - i_[i]);
                        df[i] = d_cell * cells[i] * f[i] * (1.0 - f[i]);
                        d_o[i] = d * bent * o[i] * (1.0 - o[i]);
                        dg[i] = d_cell * i_[i] * (1.0 - g[i] * g[i]);
                        d_cells[i] = d_cell * f[i];
                        d_state[i] = 0.0;
                    }
                    d_asked.copy_from_slice(d_gates);
                },
            ),
        }
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Off by 2e-7 at the most, which states of about 1 do not notice.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let small = exp(-2.0 * x.abs());
    ((1.0 - small) / (1.0 + small)).copysign(x)
}
