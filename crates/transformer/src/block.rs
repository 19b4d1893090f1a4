//! A block: attention to the own sequence, perhaps to the encoder's, and the feed-forward, each around the stream.

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
    sublayer::{self, Around},
};

/// One layer of a stack.
#[derive(Module, Debug)]
pub struct Block {
    /// Around the attention to the own sequence.
    pub attention_norm: Norm,
    /// To the own sequence.
    pub attention: Attention,
    /// To the encoder's sequence, where there is one.
    pub cross: Option<Cross>,
    /// Around the feed-forward.
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

/// What a block remembers between calls.
pub(crate) enum Recall<'a> {
    Nothing,
    Cache(&'a mut BlockCache),
    /// Inputs of the attention in earlier segments, at most so many.
    Segment(&'a mut Option<Tensor<3>>, usize),
    /// What the attention to the own sequence and to the encoder's are called with, for looking inside.
    Watch(&'a mut Vec<Input>),
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

    /// Where its norms stand.
    pub(crate) fn place(&self) -> NormPlace {
        self.place
    }

    /// `[batch, length, width]`.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        pass: &mut Pass,
        mut recall: Recall,
    ) -> Result<Tensor<3>, Error> {
        let seed = pass.seeds.next();
        let outer = pass.seeds.next();
        let own = |x| {
            let mut input = Input::new(x);
            input.key_lengths = pass.lengths.map(<[_]>::to_vec);
            input.documents = pass.documents.map(<[_]>::to_vec);
            input.seed = seed;
            input.path = pass.path;
            input
        };
        let fused = match recall {
            Recall::Nothing => self.fused_attention(own(x.clone()), outer)?,
            Recall::Cache(_) | Recall::Segment(..) | Recall::Watch(_) => None,
        };
        let x = match fused {
            Some(x) => x,
            None => self.around(x, &self.attention_norm, outer, pass.path, |x| {
                attend(&self.attention, own(x), &mut recall)
            })?,
        };
        let x = match (&self.cross, pass.memory) {
            (Some(cross), Some(memory)) => {
                let seed = pass.seeds.next();
                let outer = pass.seeds.next();
                self.around(x, &cross.norm, outer, pass.path, |x| {
                    let mut input = Input::new(x);
                    input.memory = Some(memory.states.clone());
                    input.key_lengths = memory.lengths.clone();
                    input.seed = seed;
                    input.path = pass.path;
                    match &mut recall {
                        Recall::Cache(cache) => cross.attention.decode(input, &mut cache.cross),
                        Recall::Watch(inputs) => {
                            inputs.push(input.clone());
                            cross.attention.forward(input)
                        }
                        _ => cross.attention.forward(input),
                    }
                })?
            }
            _ => x,
        };
        let (seed, path) = (pass.seeds.next(), pass.path);
        if path != Path::Composed
            && let Some(out) = self.fused_feed_forward(&x, seed)?
        {
            return Ok(out);
        }
        self.around(x, &self.feed_forward_norm, seed, path, |x| {
            Ok(self.feed_forward.forward(x, path))
        })
    }

    /// Attention to the own sequence and everything around it as one operation, where there is one.
    fn fused_attention(&self, input: Input, seed: Option<u64>) -> Result<Option<Tensor<3>>, Error> {
        let Some((sublayer, weights)) = self.attention.projected(&input)? else { return Ok(None) };
        let recomputes = self.recompute != Recompute::None;
        let around = self.surroundings(seed, recomputes);
        let operands = operands::<ATTENTION>(&input.x, &self.attention_norm, weights);
        let Some((operands, is_centred)) = operands else { return Ok(None) };
        let around = Around { is_centred, ..around };
        Ok(Some(sublayer::around(sublayer, around, operands, input.x.dims())?))
    }

    /// The feed-forward and everything around it as one operation, where there is one.
    fn fused_feed_forward(
        &self,
        x: &Tensor<3>,
        seed: Option<u64>,
    ) -> Result<Option<Tensor<3>>, Error> {
        let Some((sublayer, weights)) = self.feed_forward.projected() else { return Ok(None) };
        let recomputes = self.recompute == Recompute::Block;
        let around = self.surroundings(seed, recomputes);
        let operands = operands::<FEED_FORWARD>(x, &self.feed_forward_norm, weights);
        let Some((operands, is_centred)) = operands else { return Ok(None) };
        let around = Around { is_centred, ..around };
        Ok(Some(sublayer::around(sublayer, around, operands, x.dims())?))
    }

    fn surroundings(&self, seed: Option<u64>, recomputes: bool) -> Around {
        let rate = self.dropout;
        let dropped = seed.filter(|_| rate > 0.0).map(|seed| Dropped { rate, seed });
        Around { place: self.place, is_centred: false, dropped, recomputes }
    }

    /// A sublayer, with its norm, dropout and the stream past it.
    fn around(
        &self,
        x: Tensor<3>,
        norm: &Norm,
        seed: Option<u64>,
        path: Path,
        sublayer: impl FnOnce(Tensor<3>) -> Result<Tensor<3>, whatwhere_attention::Error>,
    ) -> Result<Tensor<3>, Error> {
        Ok(match self.place {
            NormPlace::Pre => {
                let out = sublayer(norm.forward(x.clone(), path))?;
                add(x, out, self.dropout, seed, path)
            }
            NormPlace::Post => {
                let out = sublayer(x.clone())?;
                norm.forward(add(x, out, self.dropout, seed, path), path)
            }
        })
    }
}

/// Operands of a fused sublayer: the stream, a norm's gain and bias, and the weights.
const ATTENTION: usize = 3 + projected::WEIGHTS;
const FEED_FORWARD: usize = 3 + 6;

/// The operands of a fused sublayer, and whether its norm takes the mean away; nothing on another backend.
fn operands<const N: usize>(
    x: &Tensor<3>,
    norm: &Norm,
    weights: Vec<Operand>,
) -> Option<([Operand; N], bool)> {
    let (norm, is_centred) = norm.operands()?;
    let mut operands = vec![Operand::new(x.clone())?];
    operands.extend(norm);
    operands.extend(weights);
    Some((operands.try_into().ok()?, is_centred))
}

/// Attention to the own sequence, and to what is remembered of it.
fn attend(
    attention: &Attention,
    mut input: Input,
    recall: &mut Recall,
) -> Result<Tensor<3>, whatwhere_attention::Error> {
    match recall {
        Recall::Nothing => attention.forward(input),
        Recall::Watch(inputs) => {
            inputs.push(input.clone());
            attention.forward(input)
        }
        Recall::Cache(cache) => attention.decode(input, &mut cache.own),
        Recall::Segment(past, length) => {
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
