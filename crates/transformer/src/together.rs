//! Several sequences of unequal lengths, stepped together: their new tokens are rows of one pass, which reads the weights once,
//! and each attends to its own cache.
//!
//! Up to [`EXACT_ROWS`] tokens, or any number with int8 weights, have the bits that each would
//! have by itself: linear layers compute so few rows alike, everything else acts on a row, and attention is called for each
//! sequence as if it were alone.

use burn::tensor::Tensor;
use whatwhere_attention::{Attention, AttentionLinears, Cache, Input, Path, projected::Project};
use whatwhere_kernels::EXACT_ROWS;

use crate::{
    DecoderState, Error, Model, Sequences, dropout::Seeds, stack::States, state::BlockCache,
};

/// New tokens of one sequence, and what was read of it before.
#[derive(Debug)]
pub struct Step<'a> {
    /// At least one.
    pub tokens: &'a [u32],
    /// Of the same model.
    pub state: &'a mut DecoderState,
}

/// One of several sequences, in a stack.
#[derive(Debug)]
pub(crate) struct Sequence<'a> {
    rows: usize,
    first: usize,
    prefixes: Option<&'a [usize]>,
    caches: &'a mut [BlockCache],
}

/// The same, in a layer.
pub(crate) struct Together<'a>(Vec<Part<'a>>);

struct Part<'a> {
    rows: usize,
    prefixes: Option<&'a [usize]>,
    cache: &'a mut Cache,
}

impl Model {
    /// So many tokens have the bits in [`Self::step_together`] that each would have by itself.
    pub fn exact_rows(&self) -> usize {
        // Beside int8 weights these projections are f32's.
        match self.is_int8() && self.settings().embedding_width.is_none() {
            true => usize::MAX,
            false => EXACT_ROWS,
        }
    }

    /// [`Model::step`] of several sequences at once, each after what its own state has read: logits after the last token of
    /// each, `[1, sequences, vocabulary]`. For decoders.
    pub fn step_together(&self, steps: &mut [Step]) -> Result<Tensor<3>, Error> {
        if steps.is_empty() || steps.iter().any(|step| step.tokens.is_empty()) {
            return Err(Error::Input("a step has no tokens, expected at least one each".into()));
        }
        if steps.iter().any(|step| step.state.memory.is_some()) {
            let reason = "targets of a source are stepped as a batch, found one among several";
            return Err(Error::Input(reason.into()));
        }
        if self.recurrent.is_some() {
            // A recurrence has no rows to share: each sequence goes by itself.
            let each = steps
                .iter_mut()
                .map(|step| self.step_last(&Sequences::from_rows(&[step.tokens]), 1, step.state));
            return Ok(Tensor::cat(each.collect::<Result<Vec<_>, _>>()?, 1));
        }
        let tokens: Vec<u32> = steps.iter().flat_map(|step| step.tokens).copied().collect();
        let mut ends = Vec::with_capacity(steps.len());
        let mut sequences: Vec<Sequence> = Vec::with_capacity(steps.len());
        for step in steps.iter_mut() {
            let DecoderState { caches, length, prefixes, .. } = &mut *step.state;
            let rows = step.tokens.len();
            ends.push(ends.last().unwrap_or(&0) + rows);
            sequences.push(Sequence {
                rows,
                first: *length,
                prefixes: prefixes.as_deref(),
                caches,
            });
        }
        let states = States::Together(&mut sequences);
        let (tokens, seeds) = (Sequences::new(tokens, 1), Seeds::new(None));
        let (path, int8) = (Path::Auto, self.int8().map(|int8| &**int8));
        let hidden = self.decode(&tokens, None, 0, seeds, path, states, int8)?;
        for step in steps {
            step.state.length += step.tokens.len();
        }
        if hidden.dims()[1] == ends.len() {
            return Ok(self.logits(hidden));
        }
        let last = ends.iter().map(|end| hidden.clone().narrow(1, end - 1, 1)).collect();
        Ok(self.logits(Tensor::cat(last, 1)))
    }
}

impl Sequence<'_> {
    /// What is made of the rows of each sequence, given where its first one stands.
    pub(crate) fn each<E>(
        sequences: &[Self],
        x: &Tensor<3>,
        mut make: impl FnMut(Tensor<3>, usize) -> Result<Tensor<3>, E>,
    ) -> Result<Tensor<3>, E> {
        let mut at = 0;
        let made = sequences.iter().map(|sequence| {
            let rows = x.clone().narrow(1, at, sequence.rows);
            at += sequence.rows;
            make(rows, sequence.first)
        });
        Ok(Tensor::cat(made.collect::<Result<Vec<_>, E>>()?, 1))
    }
}

impl<'a> Together<'a> {
    /// What all sequences have of a layer.
    pub(crate) fn new(sequences: &'a mut [Sequence], layer: usize) -> Self {
        let part = |sequence: &'a mut Sequence| Part {
            rows: sequence.rows,
            prefixes: sequence.prefixes,
            cache: &mut sequence.caches[layer].own,
        };
        Self(sequences.iter_mut().map(part).collect())
    }

    /// Attention of every sequence's rows to its own cache.
    pub(crate) fn attend<P: Project>(
        &mut self,
        attention: &Attention,
        linears: AttentionLinears<P>,
        whole: &Input,
    ) -> Result<Tensor<3>, whatwhere_attention::Error> {
        let mut at = 0;
        let mut parts: Vec<(Input, &mut Cache)> = Vec::with_capacity(self.0.len());
        for part in &mut self.0 {
            let rows = at..at + part.rows;
            let of_rows = |all: &Vec<Vec<u32>>| vec![all[0][rows.clone()].to_vec()];
            let input = Input {
                x: whole.x.clone().narrow(1, at, part.rows),
                tokens: whole.tokens.as_ref().map(of_rows),
                prefixes: part.prefixes.map(<[_]>::to_vec),
                ..whole.clone()
            };
            at += part.rows;
            parts.push((input, &mut *part.cache));
        }
        attention.decode_together_by(linears, whole.x.clone(), &mut parts)
    }
}
