//! What a decoder keeps while it generates, and the steps that do.

use burn::tensor::{Int, Tensor};
use whatwhere_attention::Path;
use whatwhere_settings::Refuses;

use crate::{
    Error, Family, Memory, Model, Sequences, dropout::Seeds, recurrent::RecurrentDecoderState,
    stack::States, state::BlockCache,
};

/// What a decoder keeps while it generates.
#[derive(Clone, Debug)]
pub struct DecoderState {
    pub(crate) caches: Vec<BlockCache>,
    /// In place of caches, of a recurrent model.
    pub(crate) recurrent: Option<RecurrentDecoderState>,
    pub(crate) memory: Option<Memory>,
    pub(crate) length: usize,
    pub(crate) prefixes: Option<Vec<usize>>,
    /// Which source each sequence reads, once they have been put in another order.
    pub(crate) sources: Option<Vec<usize>>,
}

impl Model {
    /// Begins to generate: reads the source, if there is one.
    pub fn start(&self, source: Option<&Sequences>) -> Result<DecoderState, Error> {
        self.require_tokens()?;
        if self.family() == Family::Encoder {
            let reason = "an encoder is a masked language model and does not write; use a decoder";
            return Err(Error::setting("family", "encoder", reason));
        }
        let (seeds, path) = (&mut Seeds::new(None), Path::Auto);
        let (recurrent, memory) = match &self.recurrent {
            None => (None, self.memory(source, seeds, path)?),
            Some(recurrent) => {
                let (state, memory) = self.recurrent_start(recurrent, source, seeds, path)?;
                (Some(state), memory)
            }
        };
        let caches = vec![BlockCache::default(); self.settings().decoder_depth()];
        Ok(DecoderState { caches, recurrent, memory, length: 0, prefixes: None, sources: None })
    }

    /// Logits after each of the given tokens, which follow those already read, `[batch, length, vocabulary]`.
    pub fn step(&self, tokens: &Sequences, state: &mut DecoderState) -> Result<Tensor<3>, Error> {
        self.step_last(tokens, tokens.dims()[1], state)
    }

    /// [`Self::step`], with logits after the last `count` tokens only.
    pub fn step_last(
        &self,
        tokens: &Sequences,
        count: usize,
        state: &mut DecoderState,
    ) -> Result<Tensor<3>, Error> {
        let length = tokens.dims()[1];
        Ok(self.logits(self.step_hidden(tokens, state)?.narrow(1, length - count, count)))
    }

    /// [`Self::step`], with the last layer's states in place of [`Self::logits`], `[batch, length, width]`.
    pub fn step_hidden(
        &self,
        tokens: &Sequences,
        state: &mut DecoderState,
    ) -> Result<Tensor<3>, Error> {
        let (first, length) = (state.length, tokens.dims()[1]);
        let DecoderState { caches, recurrent, memory, prefixes, .. } = state;
        let mut tokens = tokens.clone();
        tokens.prefixes.clone_from(prefixes);
        let memory = memory.as_ref();
        let hidden = match (&self.recurrent, recurrent) {
            (Some(own), Some(state)) => self.recurrent_step(own, &tokens, state, memory, first)?,
            _ => {
                let (states, seeds) = (States::Caches(caches), Seeds::new(None));
                let (path, int8) = (Path::Auto, self.int8().map(|int8| &**int8));
                self.decode(&tokens, memory, first, seeds, path, states, int8)?
            }
        };
        state.length += length;
        Ok(hidden)
    }
}

impl DecoderState {
    /// Tokens read so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The first tokens of each sequence, so many, are seen in both directions; they are to be read in one step.
    pub fn with_prefixes(mut self, prefixes: Vec<usize>) -> Self {
        self.prefixes = Some(prefixes);
        self
    }

    /// Forgets the last tokens, which can then be replaced by others; see [`Cache::rollback`].
    ///
    /// [`Cache::rollback`]: whatwhere_attention::Cache::rollback
    pub fn rollback(&mut self, tokens: usize) -> Result<(), Error> {
        if self.recurrent.is_some() && tokens > 0 {
            let reason = "a recurrence keeps its last state only: no token can be taken back";
            return Err(Error::Input(reason.into()));
        }
        for cache in &mut self.caches {
            cache.own.rollback(tokens)?;
        }
        self.length -= tokens;
        Ok(())
    }

    /// Goes on with these sequences: `order[i]` is the old index of new sequence `i`. Beam search calls it after each
    /// step; sequences that are done can be left out.
    pub fn reorder(&mut self, order: &[usize]) -> Result<(), Error> {
        // Beginnings of one source change places, and what they read of it stays where it is.
        let before = self.memory.as_ref().map(|memory| match self.sources.take() {
            Some(sources) => sources,
            None => (0..memory.states.dims()[0]).collect(),
        });
        let after = before.as_ref().map(|before| -> Option<Vec<usize>> {
            order.iter().map(|index| before.get(*index).copied()).collect()
        });
        let moves_sources = after.as_ref().is_none_or(|after| *after != before);
        self.sources = after.flatten();
        for cache in &mut self.caches {
            cache.own.reorder(order)?;
            if moves_sources {
                cache.cross.reorder(order)?;
            }
        }
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.reorder(order, moves_sources)?;
        }
        if let Some(prefixes) = &mut self.prefixes {
            *prefixes = order.iter().map(|index| prefixes[*index]).collect();
        }
        if let Some(memory) = self.memory.as_mut().filter(|_| moves_sources) {
            let index: Vec<i32> = order.iter().map(|index| *index as i32).collect();
            let index = Tensor::<1, Int>::from_data(index.as_slice(), &memory.states.device());
            memory.states = memory.states.clone().select(0, index);
            if let Some(lengths) = &mut memory.lengths {
                *lengths = order.iter().map(|index| lengths[*index]).collect();
            }
        }
        Ok(())
    }
}
