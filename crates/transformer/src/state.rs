//! What a block keeps between calls, and attention that keeps it.

use burn::tensor::Tensor;
use whatwhere_attention::{Attention, AttentionLinears, Cache, Input, projected::Project};

use crate::together::Together;

/// What a block keeps between calls.
pub(crate) enum State<'a> {
    None,
    Cache(&'a mut BlockCache),
    /// Several sequences, each with its own cache.
    Together(Together<'a>),
    /// Inputs of the attention in earlier segments, at most so many.
    Segment(&'a mut Option<Tensor<3>>, usize),
    /// What self-attention and attention to the encoder are called with, for looking inside, and the position of the first
    /// token.
    Inputs(&'a mut Vec<Input>, usize),
}

/// Keys and values of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockCache {
    pub(crate) own: Cache,
    pub(crate) cross: Cache,
}

impl State<'_> {
    /// Self-attention, and attention to what is kept of the tokens before.
    pub(crate) fn attend<P: Project>(
        &mut self,
        attention: &Attention,
        linears: AttentionLinears<P>,
        mut input: Input,
    ) -> Result<Tensor<3>, whatwhere_attention::Error> {
        match self {
            Self::None => attention.forward_by(linears, input),
            Self::Inputs(inputs, first) => {
                input.first = *first;
                inputs.push(input.clone());
                attention.forward_by(linears, input)
            }
            Self::Cache(cache) => attention.decode_by(linears, input, &mut cache.own),
            Self::Together(together) => together.attend(attention, linears, &input),
            Self::Segment(past, length) => {
                let seen = match past.take() {
                    None => input.x.clone().detach(),
                    Some(past) => {
                        input.first = past.dims()[1];
                        input.past = Some(past.clone());
                        Tensor::cat(vec![past, input.x.clone().detach()], 1)
                    }
                };
                let (all, kept) = (seen.dims()[1], seen.dims()[1].min(*length));
                **past = Some(seen.narrow(1, all - kept, kept));
                attention.forward_by(linears, input)
            }
        }
    }

    /// Attention to the encoder's sequence, whose keys and values are kept where a model generates.
    pub(crate) fn attend_memory<P: Project>(
        &mut self,
        attention: &Attention,
        linears: AttentionLinears<P>,
        input: Input,
    ) -> Result<Tensor<3>, whatwhere_attention::Error> {
        if let Self::Cache(cache) = self {
            return attention.decode_by(linears, input, &mut cache.cross);
        }
        if let Self::Inputs(inputs, _) = self {
            inputs.push(input.clone());
        }
        attention.forward_by(linears, input)
    }
}
