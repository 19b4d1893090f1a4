//! Writing with a model: token after token by a [`Writer`], or the likeliest whole sequences by [`beam`].

pub mod beam;
mod draft;
mod sampling;
mod writer;

use burn::tensor::{Int, Tensor, TensorData};

use crate::{Error, Model, Writing, with_busy_pool};

pub use beam::{Beam, Hypothesis};
pub use sampling::{Sampler, Sampling};
pub use writer::Writer;

/// Scores after each of the last `count` tokens of each sequence, all of one length.
fn scores(
    model: &Model,
    rows: &[&[u32]],
    count: usize,
    writing: &mut Writing,
) -> Result<Vec<Vec<f32>>, Error> {
    let (batch, length) = (rows.len(), rows[0].len());
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|id| *id as i32)).collect();
    let device = model.embedding.weight.val().device();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch, length]), &device);
    let scores = with_busy_pool(|| model.step_last(ids, count, writing))?;
    let vocabulary = scores.dims()[2];
    let values: Vec<f32> = scores.into_data().try_to_vec().expect("scores are f32");
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
