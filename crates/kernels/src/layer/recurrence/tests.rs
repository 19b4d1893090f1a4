//! The recurrence against its definition in f64, whose slopes are the gradients.

use super::*;
use crate::testing::numbers;

/// Definition: one sequence after the other, one token after the other, one channel after the other.
struct Plain<'a> {
    call: Recurrence<'a>,
    gates: Vec<f64>,
    first: Vec<f64>,
    weight: Vec<f64>,
}

impl Plain<'_> {
    fn states(&self) -> Vec<f64> {
        let Recurrence { cell, batch, length, width, is_reversed, lengths, .. } = self.call;
        let (wide, states) = (cell.gates() * width, cell.states());
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut out = vec![0.0; batch * (length + states) * width];
        for i in 0..batch {
            let own = |at: usize| match self.first.is_empty() {
                true => vec![0.0; width],
                false => self.first[(i * states + at) * width..][..width].to_vec(),
            };
            let (mut h, mut c) = (own(0), if states == 2 { own(1) } else { Vec::new() });
            for step in 0..length {
                let token = if is_reversed { length - 1 - step } else { step };
                if lengths.is_none_or(|lengths| token < lengths[i]) {
                    let x = &self.gates[(i * length + token) * wide..][..wide];
                    let u = |column: usize| -> f64 {
                        (0..width).map(|from| h[from] * self.weight[from * wide + column]).sum()
                    };
                    let at = |gate: usize, j: usize| x[gate * width + j] + u(gate * width + j);
                    let mut next = (h.clone(), c.clone());
                    for j in 0..width {
                        match cell {
                            Cell::Gru => {
                                let (z, r) = (sigmoid(at(0, j)), sigmoid(at(1, j)));
                                let n = (x[2 * width + j] + r * u(2 * width + j)).tanh();
                                next.0[j] = (1.0 - z) * h[j] + z * n;
                            }
                            Cell::Lstm => {
                                let (input, forget) = (sigmoid(at(0, j)), sigmoid(at(1, j) + 1.0));
                                next.1[j] = forget * c[j] + input * at(3, j).tanh();
                                next.0[j] = sigmoid(at(2, j)) * next.1[j].tanh();
                            }
                        }
                    }
                    (h, c) = next;
                }
                let row = (i * (length + states) + token) * width;
                out[row..row + width].copy_from_slice(&h);
            }
            let row = (i * (length + states) + length) * width;
            out[row..row + width].copy_from_slice(&h);
            out[row + width..][..c.len()].copy_from_slice(&c);
        }
        out
    }

    fn loss(&self, d_out: &[f32]) -> f64 {
        self.states().iter().zip(d_out).map(|(a, b)| a * f64::from(*b)).sum()
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Every cell, direction, padding and first state, at odd sizes.
fn each(mut test: impl FnMut(Recurrence, &[f32], &[f32])) {
    let mut count = 0;
    for cell in Cell::ALL {
        for (batch, length, width) in [(1, 1, 1), (3, 5, 7), (2, 9, 16), (9, 2, 17), (11, 3, 4)] {
            let wide = cell.gates() * width;
            let mut weight = numbers(width * wide, 3);
            weight.iter_mut().for_each(|w| *w /= (width as f32).sqrt());
            let gates = numbers(batch * length * wide, 1);
            let first = numbers(batch * cell.states() * width, 2);
            let some: Vec<usize> = (0..batch).map(|i| (length + 3 * i) % (length + 1)).collect();
            for lengths in [None, Some(some.as_slice())] {
                for is_reversed in [false, true] {
                    let weight = &weight;
                    let call =
                        Recurrence { cell, batch, length, width, is_reversed, lengths, weight };
                    test(call, &gates, &[]);
                    test(call, &gates, &first);
                    count += 2;
                }
            }
        }
    }
    assert_eq!(count, 80);
}

#[test]
fn states_are_those_of_the_definition() {
    each(|call, gates, first| {
        let (out, _) = call.forward(gates, first).unwrap();
        let (gates, first, weight) = (wide(gates), wide(first), wide(call.weight));
        let expected = Plain { call, gates, first, weight }.states();
        for (found, expected) in out.iter().zip(expected) {
            // Elementary functions in f32, carried over up to nine tokens.
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{call:?}: {found} {expected}");
        }
    });
}

#[test]
fn gradients_are_slopes_of_the_definition() {
    each(|call, gates, first| {
        let d_out = numbers(call.out_len(), 5);
        let (out, steps) = call.forward(gates, first).unwrap();
        let made = call.backward(first, &out, &steps, &d_out).unwrap();
        let plain =
            || Plain { call, gates: wide(gates), first: wide(first), weight: wide(call.weight) };
        type Slot = for<'a, 'b> fn(&'a mut Plain<'b>) -> &'a mut Vec<f64>;
        let slots: [(Slot, &[f32]); 3] = [
            (|plain| &mut plain.gates, &made.gates),
            (|plain| &mut plain.first, &made.first),
            (|plain| &mut plain.weight, &made.weight),
        ];
        for (slot, gradient) in slots {
            let count = gradient.len();
            // All of the small ones, some of the large ones.
            for at in (0..count).step_by(1 + count / 40) {
                let moved = |by: f64| {
                    let mut plain = plain();
                    slot(&mut plain)[at] += by;
                    plain.loss(&d_out)
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let off = (slope - f64::from(gradient[at])).abs();
                assert!(off < 1e-4 * (1.0 + slope.abs()), "{call:?} {at}: {slope}");
            }
        }
    });
}

#[test]
fn any_steps_give_the_bits_of_one_pass() {
    for cell in Cell::ALL {
        let (batch, length, width) = (3, 7, 33);
        let wide = cell.gates() * width;
        let weight = numbers(width * wide, 3);
        let gates = numbers(batch * length * wide, 1);
        let call = Recurrence {
            cell,
            batch,
            length,
            width,
            is_reversed: false,
            lengths: None,
            weight: &weight,
        };
        let (whole, _) = call.forward(&gates, &[]).unwrap();
        let mut state = Vec::new();
        for part in [0..2, 2..3, 3..7] {
            let rows = gates.chunks(length * wide);
            let own: Vec<f32> =
                rows.flat_map(|row| row[part.start * wide..part.end * wide].to_vec()).collect();
            let call = Recurrence { length: part.len(), ..call };
            let (out, _) = call.forward(&own, &state).unwrap();
            let each = (part.len() + cell.states()) * width;
            for (i, out) in out.chunks(each).enumerate() {
                let row = &whole[i * (length + cell.states()) * width..][part.start * width..];
                assert_eq!(out[..part.len() * width], row[..part.len() * width]);
            }
            state = out.chunks(each).flat_map(|out| out[part.len() * width..].to_vec()).collect();
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let bits = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            Cell::ALL.map(|cell| {
                let (batch, length, width) = (40, 6, 65);
                let wide = cell.gates() * width;
                let weight = numbers(width * wide, 3);
                let gates = numbers(batch * length * wide, 1);
                let lengths: Vec<usize> = (0..batch).map(|i| i % 7).collect();
                let call = Recurrence {
                    cell,
                    batch,
                    length,
                    width,
                    is_reversed: true,
                    lengths: Some(&lengths),
                    weight: &weight,
                };
                let (out, steps) = call.forward(&gates, &[]).unwrap();
                let made = call.backward(&[], &out, &steps, &out).unwrap();
                [out, made.gates, made.weight].map(|values| values.to_vec())
            })
        })
    };
    let alone = bits(1);
    assert_eq!(bits(2), alone);
    assert_eq!(bits(3), alone);
}

#[test]
fn what_does_not_fit_is_refused() {
    let weight = numbers(2 * 6, 1);
    let lengths = [3];
    let call = Recurrence {
        cell: Cell::Gru,
        batch: 1,
        length: 2,
        width: 2,
        is_reversed: false,
        lengths: None,
        weight: &weight,
    };
    let message = |call: Recurrence, gates, first| {
        call.forward(&vec![0.0; gates], &vec![0.0; first]).unwrap_err().to_string()
    };
    assert_eq!(message(call, 11, 0), "gates has 11 values, expected 12");
    assert_eq!(message(call, 12, 4), "first state has 4 values, expected 2");
    assert!(message(Recurrence { lengths: Some(&lengths), ..call }, 12, 0).contains("length = 3"));
    assert!(message(Recurrence { width: 0, ..call }, 0, 0).contains("width is 0"));
}
