//! Our side of mixing without scores.

use whatwhere_kernels::{
    Error,
    attention::Inputs,
    linear_attention::{LinearAttention, LinearGradients, Recurrence, RotatedLinearAttention},
};

use crate::ours::{HEADS, Problem, What};

/// A call into these buffers, with gradients if there is room for them.
pub(crate) fn run(
    problem: &Problem,
    inputs: &Inputs,
    out: &mut Vec<f32>,
    sums: &mut [f32],
    gradients: Option<&mut LinearGradients>,
) -> Result<(), Error> {
    let (shape, d_out) = (problem.shape(), problem.get("d_out"));
    if problem.task.what == What::Retention {
        let of_head = |head| std::iter::repeat_n(decay(head), problem.task.length);
        let decays: Vec<f32> = (0..HEADS).flat_map(of_head).collect();
        let call = Recurrence { decay: Some(&decays), ..Recurrence::new(shape) };
        let start = vec![0.0; call.state_len()];
        *out = call.forward(&mut start.clone(), inputs)?;
        if let Some(d) = gradients {
            let made = call.backward(&start, inputs, d_out)?;
            *d = LinearGradients { q: made.q, k: made.k, v: made.v };
        }
        return Ok(());
    }
    let linear = LinearAttention::new(shape, true);
    if problem.task.what == What::TurnedLinear {
        let turned = RotatedLinearAttention::new(linear, &problem.attention(&[]));
        turned.forward_into(inputs, out, sums)?;
        if let Some(d) = gradients {
            let made = turned.backward(inputs, out, sums, d_out)?;
            *d = LinearGradients { q: made.q, k: made.k, v: made.v };
        }
        return Ok(());
    }
    linear.forward_into(inputs, out, sums)?;
    match gradients {
        None => Ok(()),
        Some(d) => linear.backward_into(inputs, out, sums, d_out, d),
    }
}

/// The logarithm of what remains of retention's state after a token.
fn decay(head: usize) -> f32 {
    (-(2f64.powi(-5 - head as i32))).ln_1p() as f32
}
