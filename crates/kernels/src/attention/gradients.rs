//! What the backward pass makes.

use crate::{
    Pooled,
    attention::{Attention, Call},
};

/// Gradients of everything that can learn.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Of the queries.
    pub q: Vec<f32>,
    /// Of the keys.
    pub k: Vec<f32>,
    /// Of the values.
    pub v: Vec<f32>,
    /// The call over gradients: each where the call has its values, empty where there is none.
    pub learned: Call<Vec<f32>, ()>,
}

impl Gradients {
    /// Zeros of the right lengths.
    pub fn zeros(attention: &Attention) -> Self {
        let shape = &attention.shape;
        Self {
            q: touched(shape.q_len()),
            k: touched(shape.k_len()),
            v: touched(shape.v_len()),
            learned: zeros_of_learned(attention),
        }
    }

    /// The same with those of q, k and v from the pool, and of any values: for [`Attention::backward_into`], which
    /// overwrites them. As a [`Pooled`] each goes back to it.
    pub fn pooled(attention: &Attention) -> Self {
        let shape = &attention.shape;
        Self {
            q: Pooled::uncleared(shape.q_len()).into(),
            k: Pooled::uncleared(shape.k_len()).into(),
            v: Pooled::uncleared(shape.v_len()).into(),
            learned: zeros_of_learned(attention),
        }
    }
}

/// Zeros for everything but q, k and v.
pub(crate) fn zeros_of_learned(attention: &Attention) -> Call<Vec<f32>, ()> {
    let mut zeros = attention.map((), |values| vec![0.0; values.len()]);
    for bias in zeros.biases.iter_mut().filter(|bias| !bias.learns()) {
        *bias = bias.map(&mut |_, _| Vec::new());
    }
    zeros
}

/// Zeros whose pages exist already. Memory that several threads touch first at the same time costs several times as
/// much as memory touched by one (measured: 10 ms against 2 ms for the gradients of a 4 ms backward pass).
pub(crate) fn touched(len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len);
    values.resize(len, 0.0);
    values
}
