//! Generation: token after token by a [`Generator`] (self-speculative decoding with an int8 draft), or the likeliest whole sequences by [`beam`].

pub mod beam;
mod draft;
mod generator;
mod sampling;

use whatwhere_kernels::with_busy_pool;

use crate::{DecoderState, Error, Model, Sequences};

pub use beam::{Beam, Hypothesis};
pub use generator::Generator;
pub use sampling::{Sampler, Sampling};

/// Logits after each of the last `count` tokens of each sequence, all of one length.
fn logits(
    model: &Model,
    rows: &[&[u32]],
    count: usize,
    state: &mut DecoderState,
) -> Result<Vec<Vec<f32>>, Error> {
    let tokens = Sequences::from_rows(rows);
    let logits = with_busy_pool(|| model.step_last(&tokens, count, state))?;
    let vocabulary = logits.dims()[2];
    let values: Vec<f32> = logits.into_data().try_into_vec().expect("logits are f32");
    if values.len() == vocabulary {
        return Ok(vec![values]);
    }
    Ok(values.chunks(vocabulary).map(<[f32]>::to_vec).collect())
}

/// Refuses an empty prompt and tokens that the model does not know.
fn check_tokens(prompt: &[u32], vocabulary: usize) -> Result<(), Error> {
    if prompt.is_empty() {
        return Err(Error::Input("the prompt is empty, expected at least one token".into()));
    }
    match prompt.iter().find(|token| **token as usize >= vocabulary) {
        Some(token) => Err(Error::Input(format!(
            "token {token} is unknown to the model, which has {vocabulary}"
        ))),
        None => Ok(()),
    }
}
