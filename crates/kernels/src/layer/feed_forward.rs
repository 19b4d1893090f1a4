//! A whole feed-forward, `down(activation(up(x)))` or `down(activation(gate(x)) · up(x))`, and its gradients.
//!
//! Only what stands before the activation is kept for the backward pass; what stands behind it is formed again beside its
//! gradient, which needs the same exponential.

use crate::{
    Error, Pooled,
    layer::{Activation, Gated, Linear},
};

/// The projections and the activation between them.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward<'a> {
    /// `[width, hidden]`.
    pub up: Linear<'a>,
    /// `[width, hidden]`; with it the activation is that of the gate, times `up`.
    pub gate: Option<Linear<'a>>,
    /// `[hidden, width]`.
    pub down: Linear<'a>,
    /// Of `up`, or of the gate if there is one.
    pub activation: Activation,
}

/// What stands before the activation, `[rows, hidden]` each.
#[derive(Debug)]
pub struct Hidden {
    up: Pooled,
    gate: Option<Pooled>,
}

/// Gradients, each as long as what it belongs to; empty where there is nothing.
#[derive(Debug, Default)]
pub struct FeedForwardGradients {
    /// Of the input.
    pub x: Pooled,
    /// Of weight and bias, for each projection.
    pub up: [Pooled; 2],
    /// The same of the gate.
    pub gate: [Pooled; 2],
    /// The same of `down`.
    pub down: [Pooled; 2],
}

impl FeedForward<'_> {
    /// The output, and what the backward pass needs.
    pub fn forward(&self, x: &[f32]) -> Result<(Pooled, Hidden), Error> {
        let hidden = self.hidden(x)?;
        let mut activated = Pooled::uncleared(hidden.up.len());
        match &hidden.gate {
            Some(gate) => Gated(self.activation).forward(gate, &hidden.up, &mut activated)?,
            None => self.activation.forward(&hidden.up, &mut activated)?,
        }
        let mut out = Pooled::uncleared(activated.len() / self.down.from.max(1) * self.down.to);
        self.down.forward(&activated, &mut out)?;
        Ok((out, hidden))
    }

    /// What stands before the activation.
    pub fn hidden(&self, x: &[f32]) -> Result<Hidden, Error> {
        let space = |linear: &Linear| Pooled::uncleared(x.len() / linear.from.max(1) * linear.to);
        let mut up = space(&self.up);
        let gate = match &self.gate {
            None => {
                self.up.forward(x, &mut up)?;
                None
            }
            Some(gate) => {
                let mut gated = space(gate);
                Linear::forward_all([&self.up, gate], x, [&mut up, &mut gated])?;
                Some(gated)
            }
        };
        Ok(Hidden { up, gate })
    }

    /// The gradients of everything.
    pub fn backward(
        &self,
        x: &[f32],
        hidden: &Hidden,
        d_out: &[f32],
    ) -> Result<FeedForwardGradients, Error> {
        let count = hidden.up.len();
        let (mut d_up, mut activated) = (Pooled::uncleared(count), Pooled::uncleared(count));
        self.down.backward(d_out, &mut d_up, false)?;
        let d_gate = match &hidden.gate {
            None => {
                self.activation.both(&hidden.up, &mut d_up, &mut activated)?;
                None
            }
            Some(gate) => {
                let mut d_gate = Pooled::uncleared(count);
                Gated(self.activation).both(
                    gate,
                    &hidden.up,
                    &mut d_up,
                    &mut d_gate,
                    &mut activated,
                )?;
                Some(d_gate)
            }
        };
        let down = weights(&self.down, &activated, d_out)?;
        drop(activated);
        let mut made =
            FeedForwardGradients { x: Pooled::uncleared(x.len()), down, ..Default::default() };
        self.up.backward(&d_up, &mut made.x, false)?;
        made.up = weights(&self.up, x, &d_up)?;
        if let (Some(gate), Some(d_gate)) = (&self.gate, d_gate) {
            gate.backward(&d_gate, &mut made.x, true)?;
            made.gate = weights(gate, x, &d_gate)?;
        }
        Ok(made)
    }
}

/// Gradients of weight and bias.
fn weights(linear: &Linear, x: &[f32], d_out: &[f32]) -> Result<[Pooled; 2], Error> {
    let mut made =
        [linear.weight.len(), linear.bias.map_or(0, <[f32]>::len)].map(Pooled::uncleared);
    let [weight, bias] = &mut made;
    linear.backward_weights(x, d_out, weight, bias)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;
    use crate::testing::numbers;

    /// `Σ d_out · out`, in f64 but for the pass itself.
    fn dot(call: &FeedForward, x: &[f32], d_out: &[f32]) -> f64 {
        let (out, _) = call.forward(x).unwrap();
        out.iter().zip(d_out).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    #[test]
    fn gradients_agree_with_differences_of_the_forward_pass() {
        let (rows, width, hidden) = (5, 4, 6);
        let x = numbers(rows * width, 1);
        let d_out = numbers(rows * width, 2);
        let (up, gate, down) =
            (numbers(width * hidden, 3), numbers(width * hidden, 4), numbers(hidden * width, 5));
        let (wide, narrow) = (numbers(hidden, 6), numbers(width, 7));
        // Not ReLU, whose corner has no slope.
        let smooth = [Activation::Gelu, Activation::GeluTanh, Activation::Silu];
        for (has_gate, activation) in
            smooth.into_iter().flat_map(|activation| [(false, activation), (true, activation)])
        {
            let slots = [&x, &up, &wide, &gate, &wide, &down, &narrow].map(Clone::clone);
            let value = |slots: &[Vec<f32>; 7]| {
                let [x, up, up_bias, gate, gate_bias, down, down_bias] = slots;
                let linear = |from, to, weight, bias| Linear {
                    from,
                    to,
                    weight,
                    bias: Some(bias),
                    precision: Precision::F32,
                };
                let call = FeedForward {
                    up: linear(width, hidden, up, up_bias),
                    gate: has_gate.then(|| linear(width, hidden, gate, gate_bias)),
                    down: linear(hidden, width, down, down_bias),
                    activation,
                };
                let (_, kept) = call.forward(x).unwrap();
                (dot(&call, x, &d_out), call.backward(x, &kept, &d_out).unwrap())
            };
            let made = value(&slots).1;
            let [up, gate, down] = [made.up, made.gate, made.down];
            let gradients = [&made.x, &up[0], &up[1], &gate[0], &gate[1], &down[0], &down[1]];
            for (slot, gradient) in gradients.into_iter().enumerate() {
                for (at, found) in gradient.iter().enumerate() {
                    let moved = |by: f32| {
                        let mut slots = slots.clone();
                        slots[slot][at] += by;
                        value(&slots).0
                    };
                    // Differences of a pass in f32 have about three digits.
                    let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                    let near = (slope - f64::from(*found)).abs() < 2e-3 * (1.0 + slope.abs());
                    assert!(near, "{has_gate} {activation:?} {slot} {at}: {slope} {found}");
                }
            }
        }
    }
}
