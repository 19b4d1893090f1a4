//! A block: self-attention, perhaps attention to the encoder, and the feed-forward, each around the residual stream.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{
    Attention, AttentionSettings, Cache, Input, Path, bridge::Operand, projected,
};

use crate::{
    Error, FeedForward, ModelSettings, Norm, NormPlace, Recompute,
    dropout::{Dropped, Seeds, add},
    quantized::QuantizedBlock,
    sublayer::{self, Residual, Sublayer},
};

/// One layer of a stack.
#[derive(Module, Debug)]
pub struct Block {
    /// Of self-attention.
    pub attention_norm: Norm,
    /// Self-attention.
    pub attention: Attention,
    /// To the encoder's sequence, where there is one.
    pub cross: Option<Cross>,
    /// Of the feed-forward.
    pub feed_forward_norm: Norm,
    /// Each token by itself.
    pub feed_forward: FeedForward,
    #[module(skip)]
    place: NormPlace,
    #[module(skip)]
    dropout: f32,
    #[module(skip)]
    recompute: Recompute,
}

/// Attention to the encoder.
#[derive(Module, Debug)]
pub struct Cross {
    /// Around it.
    pub norm: Norm,
    /// From the decoder's tokens to the encoder's.
    pub attention: Attention,
}

/// What the encoder has read.
#[derive(Clone, Debug)]
pub struct Memory {
    /// `[batch, length, width]`.
    pub states: Tensor<3>,
    /// Tokens that are not padding, one for each sequence.
    pub lengths: Option<Vec<usize>>,
}

/// What a block is told besides its stream.
pub(crate) struct Pass<'a> {
    pub(crate) lengths: Option<&'a [usize]>,
    pub(crate) documents: Option<&'a [Vec<usize>]>,
    pub(crate) memory: Option<&'a Memory>,
    pub(crate) seeds: Seeds,
    pub(crate) path: Path,
}

/// What a block keeps between calls.
pub(crate) enum State<'a> {
    None,
    Cache(&'a mut BlockCache),
    /// The same cache, read and extended with int8 copies of the block's linear layers.
    Draft(&'a mut BlockCache, &'a QuantizedBlock),
    /// Inputs of the attention in earlier segments, at most so many.
    Segment(&'a mut Option<Tensor<3>>, usize),
    /// What self-attention and attention to the encoder are called with, for looking inside.
    Inputs(&'a mut Vec<Input>),
}

impl<'a> State<'a> {
    fn int8(&self) -> Option<&'a QuantizedBlock> {
        match self {
            Self::Draft(_, int8) => Some(int8),
            _ => None,
        }
    }
}

/// Keys and values of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockCache {
    pub(crate) own: Cache,
    pub(crate) cross: Cache,
}

impl Block {
    pub(crate) fn new(
        settings: &ModelSettings,
        own: &AttentionSettings,
        cross: Option<&AttentionSettings>,
        device: &Device,
    ) -> Result<Self, Error> {
        let cross = match cross {
            None => None,
            Some(cross) => {
                Some(Cross { norm: Norm::new(settings, device), attention: cross.build(device)? })
            }
        };
        Ok(Self {
            attention_norm: Norm::new(settings, device),
            attention: own.build(device)?,
            cross,
            feed_forward_norm: Norm::new(settings, device),
            feed_forward: FeedForward::new(settings, device),
            place: settings.norm_place,
            dropout: settings.dropout,
            recompute: settings.recompute,
        })
    }

    /// `[batch, length, width]`.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        pass: &mut Pass,
        mut state: State,
    ) -> Result<Tensor<3>, Error> {
        let x = self.self_attention(x, pass, &mut state)?;
        let x = match (&self.cross, pass.memory) {
            (Some(cross), Some(memory)) => {
                self.cross_attention(cross, memory, x, pass, &mut state)?
            }
            _ => x,
        };
        let (seed, path) = (pass.seeds.next(), pass.path);
        let int8 = state.int8();
        if path != Path::Composed
            && int8.is_none()
            && let Some(out) = self.fused_feed_forward(&x, seed)?
        {
            return Ok(out);
        }
        self.residual(x, &self.feed_forward_norm, seed, path, |x| {
            Ok(match int8 {
                None => self.feed_forward.forward(x, path),
                Some(int8) => self.feed_forward.forward_by(int8.feed_forward(), x, path),
            })
        })
    }

    fn self_attention(
        &self,
        x: Tensor<3>,
        pass: &mut Pass,
        state: &mut State,
    ) -> Result<Tensor<3>, Error> {
        let (seed, outer) = (pass.seeds.next(), pass.seeds.next());
        let input = |x| {
            let mut input = Input::new(x);
            input.key_lengths = pass.lengths.map(<[_]>::to_vec);
            // A sequence that says nothing of documents is one.
            let documents = pass.documents.map(<[_]>::to_vec);
            input.documents = Some(documents.unwrap_or_else(|| vec![vec![0]]));
            input.seed = seed;
            input.path = pass.path;
            input
        };
        if let State::None = state
            && let Some(out) = self.fused_attention(input(x.clone()), outer)?
        {
            return Ok(out);
        }
        self.residual(x, &self.attention_norm, outer, pass.path, |x| {
            attend(&self.attention, input(x), state)
        })
    }

    fn cross_attention(
        &self,
        cross: &Cross,
        memory: &Memory,
        x: Tensor<3>,
        pass: &mut Pass,
        state: &mut State,
    ) -> Result<Tensor<3>, Error> {
        let (seed, outer) = (pass.seeds.next(), pass.seeds.next());
        self.residual(x, &cross.norm, outer, pass.path, |x| {
            let mut input = Input::new(x);
            input.memory = Some(memory.states.clone());
            input.key_lengths = memory.lengths.clone();
            input.seed = seed;
            input.path = pass.path;
            match state {
                State::Cache(cache) => cross.attention.decode(input, &mut cache.cross),
                State::Draft(cache, int8) => {
                    cross.attention.decode_by(int8.cross(), input, &mut cache.cross)
                }
                State::Inputs(inputs) => {
                    inputs.push(input.clone());
                    cross.attention.forward(input)
                }
                State::None | State::Segment(..) => cross.attention.forward(input),
            }
        })
    }

    /// Self-attention and everything around it as one operation, where there is one.
    fn fused_attention(&self, input: Input, seed: Option<u64>) -> Result<Option<Tensor<3>>, Error> {
        let Some((sublayer, weights)) = self.attention.projected(&input)? else { return Ok(None) };
        let recomputes = self.recompute != Recompute::None;
        let norm = &self.attention_norm;
        self.fused::<_, { 3 + projected::WEIGHTS }>(
            &input.x, norm, sublayer, weights, seed, recomputes,
        )
    }

    /// The feed-forward and everything around it as one operation, where there is one.
    fn fused_feed_forward(
        &self,
        x: &Tensor<3>,
        seed: Option<u64>,
    ) -> Result<Option<Tensor<3>>, Error> {
        let Some((sublayer, weights)) = self.feed_forward.projected() else { return Ok(None) };
        let recomputes = self.recompute == Recompute::Block;
        let norm = &self.feed_forward_norm;
        self.fused::<_, { 3 + 6 }>(x, norm, sublayer, weights, seed, recomputes)
    }

    /// A sublayer on the stream, a norm's gain and bias, and its weights; nothing on another backend.
    fn fused<S: Sublayer, const N: usize>(
        &self,
        x: &Tensor<3>,
        norm: &Norm,
        sublayer: S,
        weights: Vec<Operand>,
        seed: Option<u64>,
        recomputes: bool,
    ) -> Result<Option<Tensor<3>>, Error> {
        let Some(stream) = Operand::new(x.clone()) else { return Ok(None) };
        let Some((norm, is_centred)) = norm.operands() else { return Ok(None) };
        let operands: Vec<Operand> = [stream].into_iter().chain(norm).chain(weights).collect();
        let operands: [Operand; N] = operands.try_into().expect("three more than weights");
        let rate = self.dropout;
        let dropped = seed.filter(|_| rate > 0.0).map(|seed| Dropped { rate, seed });
        let residual = Residual { place: self.place, is_centred, dropped, recomputes };
        Ok(Some(sublayer::fused(sublayer, residual, operands, x.dims())?))
    }

    /// A sublayer on tensors, with its norm, dropout and the residual stream.
    fn residual(
        &self,
        x: Tensor<3>,
        norm: &Norm,
        seed: Option<u64>,
        path: Path,
        sublayer: impl FnOnce(Tensor<3>) -> Result<Tensor<3>, whatwhere_attention::Error>,
    ) -> Result<Tensor<3>, Error> {
        let (out, _) = sublayer::in_order::<Tensor<3>, Tensor<3>, Error>(
            self.place,
            &x,
            |x| Ok(norm.forward(x.clone(), path)),
            |x| Ok(sublayer(x.clone())?),
            |x, out| Ok(add(x.clone(), out, self.dropout, seed, path)),
        )?;
        Ok(out)
    }
}

/// Self-attention, and attention to what is kept of the tokens before.
fn attend(
    attention: &Attention,
    mut input: Input,
    state: &mut State,
) -> Result<Tensor<3>, whatwhere_attention::Error> {
    match state {
        State::None => attention.forward(input),
        State::Inputs(inputs) => {
            inputs.push(input.clone());
            attention.forward(input)
        }
        State::Cache(cache) => attention.decode(input, &mut cache.own),
        State::Draft(cache, int8) => attention.decode_by(int8.own(), input, &mut cache.own),
        State::Segment(past, length) => {
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
            attention.forward(input)
        }
    }
}
