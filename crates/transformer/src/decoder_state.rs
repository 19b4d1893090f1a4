//! What a decoder keeps while it generates.

use burn::tensor::{Int, Tensor};

use crate::{Error, Memory, block::BlockCache, recurrent::WriterState};

/// What a decoder keeps while it generates.
#[derive(Clone, Debug)]
pub struct DecoderState {
    pub(crate) caches: Vec<BlockCache>,
    /// In place of caches, of a recurrent model.
    pub(crate) recurrent: Option<WriterState>,
    pub(crate) memory: Option<Memory>,
    pub(crate) length: usize,
    pub(crate) prefixes: Option<Vec<usize>>,
    /// Which source each sequence reads, once they have been put in another order.
    pub(crate) sources: Option<Vec<usize>>,
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
