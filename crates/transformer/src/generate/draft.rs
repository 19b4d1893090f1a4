//! The draft of speculative decoding: the model itself with int8 weights, which reads a quarter of the memory for each
//! token, or, for a model whose weights are int8 already, what the text says itself (prompt lookup decoding). The model then
//! checks several draft tokens in one pass over its own weights.

use whatwhere_attention::{Path, projected::Project};

use crate::{
    Block, DecoderState, Error, Model, Sequences, dropout::Seeds, quantized::QuantizedModel,
    stack::States,
};

/// Proposes tokens for a model.
#[derive(Debug)]
pub(super) enum Draft {
    /// The model with int8 weights, on the model's own caches.
    Int8(Int8),
    /// What stands in the text.
    Lookup,
}

/// A model's int8 copy.
#[derive(Debug)]
pub(super) struct Int8(QuantizedModel);

impl Draft {
    /// Nothing for a model that cannot roll back what it has read, that learns, or that lives on another backend.
    pub(super) fn new(model: &Model) -> Option<Self> {
        let decoder = model.decoder.as_ref()?;
        let goes_back = |block: &Block| block.attention.settings().can_roll_back();
        if !decoder.blocks.iter().all(goes_back) || model.embedding.weight.val().is_autodiff() {
            return None;
        }
        match model.is_int8() {
            true => Some(Self::Lookup),
            false => QuantizedModel::draft(model).map(|int8| Self::Int8(Int8(int8))),
        }
    }
}

/// Tokens at the end of a text that are looked for in it: the most, and the fewest.
const LOOKED_FOR: [usize; 2] = [3, 2];

/// The `count` tokens that followed the last time that the text ended as it does now; fewer where it never did.
pub(super) fn looked_up(text: &[u32], count: usize) -> Vec<u32> {
    let followed = |tokens: usize| {
        let (before, last) = text.split_at_checked(text.len().checked_sub(tokens)?)?;
        // What is found may reach into the last tokens themselves, and so may what follows.
        let end = before.len() + tokens - 1;
        let first = text[..end].windows(tokens).rposition(|found| found == last)? + tokens;
        let period = text.len() - first;
        Some((0..count).map(|i| text[first + i % period]).collect())
    };
    LOOKED_FOR.into_iter().find_map(followed).unwrap_or_default()
}

impl Int8 {
    /// Logits after a token that follows those already read by the same model.
    pub(super) fn next(
        &self,
        model: &Model,
        token: u32,
        state: &mut DecoderState,
    ) -> Result<Vec<f32>, Error> {
        let Self(int8) = self;
        let DecoderState { caches, memory, length, prefixes, .. } = state;
        let mut tokens = Sequences::new(vec![token], 1);
        tokens.prefixes = prefixes.clone();
        let states = States::Caches(caches);
        let (path, seeds) = (Path::Auto, Seeds::new(None));
        let memory = memory.as_ref();
        let hidden = model.decode(&tokens, memory, *length, seeds, path, states, Some(int8))?;
        *length += 1;
        let states = model.before_logits(hidden, path.into());
        let logits = model.finish_logits(int8.output.project(states, path));
        Ok(logits.into_data().try_into_vec().expect("logits are f32"))
    }
}

#[cfg(test)]
mod tests {
    use super::looked_up;

    #[test]
    fn what_followed_the_last_time_is_found() {
        assert_eq!(looked_up(&[1, 2, 3, 4, 9, 1, 2, 3], 2), [4, 9]);
        // The last of several, the longest end first.
        assert_eq!(looked_up(&[1, 2, 3, 5, 1, 2, 3, 6, 7, 1, 2, 3], 1), [6]);
        assert_eq!(looked_up(&[1, 2, 3, 4, 8, 2, 3, 5, 1, 2, 3], 1), [4]);
        assert_eq!(looked_up(&[8, 2, 3, 5, 1, 2, 3], 4), [5, 1, 2, 3]);
        // What repeats goes on repeating.
        assert_eq!(looked_up(&[7, 1, 2, 1, 2, 1], 5), [2, 1, 2, 1, 2]);
        assert_eq!(looked_up(&[4, 4, 4, 4], 3), [4, 4, 4]);
        for text in [&[][..], &[1], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 1]] {
            assert!(looked_up(text, 3).is_empty(), "{text:?}");
        }
        assert!(looked_up(&[1, 1, 1], 0).is_empty());
    }
}
