//! The draft of speculative decoding: the model itself with int8 weights, which reads a quarter of the memory for each
//! token. The model then checks several draft tokens in one pass over its own weights.

use whatwhere_attention::{Path, projected::Project};

use crate::{
    Block, DecoderState, Error, Model, Sequences, dropout::Seeds, quantized::QuantizedModel,
    stack::States,
};

/// Proposes tokens for a model, on the model's own caches.
#[derive(Debug)]
pub(super) struct Draft(QuantizedModel);

impl Draft {
    /// Nothing for a model that is of int8 itself, that cannot roll back what it has read, that learns, or that lives on
    /// another backend.
    pub(super) fn new(model: &Model) -> Option<Self> {
        let decoder = model.decoder.as_ref()?;
        let goes_back = |block: &Block| block.attention.settings().can_roll_back();
        if model.is_int8()
            || model.embedding.weight.val().is_autodiff()
            || !decoder.blocks.iter().all(goes_back)
        {
            return None;
        }
        QuantizedModel::draft(model).map(Self)
    }

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
