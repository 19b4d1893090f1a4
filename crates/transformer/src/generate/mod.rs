//! Writing with a model: token after token by [`write()`], or the likeliest whole sequences by [`beam`].

pub mod beam;
mod sampling;

use std::ops::ControlFlow;

use burn::tensor::{Int, Tensor, TensorData};

use crate::{Error, Model, Sequences, Writing, awake};

pub use beam::{Beam, Hypothesis};
pub use sampling::{Sampler, Sampling};

/// Goes on after a prompt, one token at a time, until `each` breaks or `limit` tokens are written. Returns what was
/// written, without the prompt. `source` is what an encoder-decoder reads; its prompt is the token that begins.
///
/// A model that knows only so many places reads the last half of them again when it has come to their end.
pub fn write(
    model: &Model,
    source: Option<&Sequences>,
    prompt: &[u32],
    limit: usize,
    sampling: &Sampling,
    mut each: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Vec<u32>, Error> {
    sampling.check()?;
    let mut sampler = Sampler::new(*sampling);
    let mut text = prompt.to_vec();
    check_tokens(prompt, model.settings().vocabulary)?;
    if limit == 0 {
        return Ok(Vec::new());
    }
    let places = model.settings().longest().unwrap_or(usize::MAX);
    let mut writing = model.start(source)?;
    let mut logits = next(model, &[last(&text, places)], &mut writing)?;
    for written in 1..=limit {
        let token = sampler.pick(&mut logits[0], &text);
        text.push(token);
        if each(token).is_break() || written == limit {
            break;
        }
        logits = if writing.length() < places {
            next(model, &[&[token]], &mut writing)?
        } else {
            writing = model.start(source)?;
            next(model, &[last(&text, places.div_ceil(2))], &mut writing)?
        };
    }
    Ok(text.split_off(prompt.len()))
}

fn last(text: &[u32], count: usize) -> &[u32] {
    &text[text.len().saturating_sub(count)..]
}

/// Scores after the last of the given tokens of each sequence.
fn next(model: &Model, rows: &[&[u32]], writing: &mut Writing) -> Result<Vec<Vec<f32>>, Error> {
    let (batch, length) = (rows.len(), rows[0].len());
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|id| *id as i32)).collect();
    let device = model.embedding.weight.val().device();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch, length]), &device);
    let logits = awake(|| model.step(ids, writing))?;
    let vocabulary = logits.dims()[2];
    let last = logits.narrow(1, length - 1, 1);
    let values: Vec<f32> = last.into_data().try_to_vec().expect("logits are f32");
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
