//! A block: self-attention, perhaps attention to the encoder, and the feed-forward, each around the residual stream.

use std::sync::Arc;

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{
    Attention, AttentionSettings, Input, Path, Way, bridge::Operand, position::PositionModule,
    projected,
};
use whatwhere_kernels::Precision;

use crate::{
    Error, FeedForward, Memory, ModelSettings, Norm, NormPlace, Recompute, ResidualKind, Sequences,
    dropout::{Dropped, Seeds, add},
    norm::NormFormula,
    quantized::QuantizedBlock,
    state::State,
    sublayer::{self, AROUND, Norms, Residual, Sublayer},
};

/// One layer of a stack.
#[derive(Module, Debug)]
pub struct Block {
    /// Before self-attention, or after it.
    pub attention_norm: Option<Norm>,
    /// Self-attention.
    pub attention: Attention,
    /// Of what self-attention gives.
    pub attention_output_norm: Option<Norm>,
    /// To the encoder's sequence, where there is one.
    pub cross: Option<Cross>,
    /// Before the feed-forward, or after it; absent where it shares attention's.
    pub feed_forward_norm: Option<Norm>,
    /// Each token by itself.
    pub feed_forward: FeedForward,
    /// Of what the feed-forward gives.
    pub feed_forward_output_norm: Option<Norm>,
    #[module(skip)]
    place: NormPlace,
    #[module(skip)]
    formula: NormFormula,
    #[module(skip)]
    residual: ResidualKind,
    #[module(skip)]
    dropout: f32,
    #[module(skip)]
    recompute: Recompute,
}

/// Attention to the encoder.
#[derive(Module, Debug)]
pub struct Cross {
    /// Before it, or after it.
    pub norm: Option<Norm>,
    /// From the decoder's tokens to the encoder's.
    pub attention: Attention,
    /// Of what it gives.
    pub output_norm: Option<Norm>,
}

/// What a block is told besides its stream.
pub(crate) struct Pass<'a> {
    /// The position of the first token.
    pub(crate) first: usize,
    pub(crate) lengths: Option<&'a [usize]>,
    pub(crate) tokens: &'a Sequences,
    pub(crate) prefixes: Option<&'a [usize]>,
    pub(crate) memory: Option<&'a Memory>,
    /// What self-attention of all layers has of its encodings, where they share it.
    pub(crate) position: Option<Arc<[PositionModule]>>,
    pub(crate) seeds: Seeds,
    pub(crate) way: Way,
}

impl Block {
    pub(crate) fn new(
        settings: &ModelSettings,
        own: &AttentionSettings,
        cross: Option<&AttentionSettings>,
        device: &Device,
    ) -> Result<Self, Error> {
        let place = settings.norm_place;
        let norm = || (place != NormPlace::Output).then(|| Norm::new(settings, device));
        let output_norm = || {
            matches!(place, NormPlace::Both | NormPlace::Output)
                .then(|| Norm::new(settings, device))
        };
        let cross = match cross {
            None => None,
            Some(cross) => Some(Cross {
                norm: norm(),
                attention: cross.build(device)?,
                output_norm: output_norm(),
            }),
        };
        let shares_norm = settings.residual == ResidualKind::Parallel;
        Ok(Self {
            attention_norm: norm(),
            attention: own.build(device)?,
            attention_output_norm: output_norm(),
            cross,
            feed_forward_norm: if shares_norm { None } else { norm() },
            feed_forward: FeedForward::new(settings, device),
            feed_forward_output_norm: output_norm(),
            place,
            formula: NormFormula::new(settings),
            residual: settings.residual,
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
        int8: Option<&QuantizedBlock>,
    ) -> Result<Tensor<3>, Error> {
        let stream = self.self_attention(x.clone(), pass, &mut state, int8)?;
        let stream = match (&self.cross, pass.memory) {
            (Some(cross), Some(memory)) => {
                self.cross_attention(cross, memory, stream, pass, &mut state, int8)?
            }
            _ => stream,
        };
        let around = match self.residual {
            ResidualKind::Sequential => Around::new(stream),
            ResidualKind::Parallel | ResidualKind::ParallelTwoNorms => {
                Around { stream: Some(stream), x }
            }
        };
        let norm = match self.residual {
            ResidualKind::Parallel => &self.attention_norm,
            ResidualKind::Sequential | ResidualKind::ParallelTwoNorms => &self.feed_forward_norm,
        };
        let norms = self.norms(norm, &self.feed_forward_output_norm);
        let (seed, way) = (pass.seeds.next(), pass.way);
        if way.path != Path::Composed
            && int8.is_none()
            && let Some(out) = self.fused_feed_forward(&around, norms, seed, way.precision)?
        {
            return Ok(out);
        }
        self.residual(around, norms, seed, way.path, |x| {
            Ok(match int8 {
                None => self.feed_forward.forward(x, way),
                Some(int8) => self.feed_forward.forward_by(int8.feed_forward(), x, way),
            })
        })
    }

    /// The norms of a sublayer where they stand.
    fn norms<'a>(&self, norm: &'a Option<Norm>, output: &'a Option<Norm>) -> Norms<&'a Norm> {
        let (norm, output) = (norm.as_ref(), output.as_ref());
        match self.place {
            NormPlace::Post => Norms { before: None, output, after: norm },
            NormPlace::Pre | NormPlace::Both | NormPlace::Output => {
                Norms { before: norm, output, after: None }
            }
        }
    }

    /// What stands before the first attention, if norms stand before sublayers.
    pub(crate) fn norm_before(&self) -> Option<&Norm> {
        self.norms(&self.attention_norm, &None).before
    }

    fn self_attention(
        &self,
        x: Tensor<3>,
        pass: &mut Pass,
        state: &mut State,
        int8: Option<&QuantizedBlock>,
    ) -> Result<Tensor<3>, Error> {
        let (seed, outer) = (pass.seeds.next(), pass.seeds.next());
        let input = |x| {
            let mut input = Input::new(x);
            input.key_lengths = pass.lengths.map(<[_]>::to_vec);
            // A sequence that says nothing of documents is one.
            let documents = pass.tokens.documents.clone();
            input.documents = Some(documents.unwrap_or_else(|| vec![vec![0]]));
            input.prefixes = pass.prefixes.map(<[_]>::to_vec);
            let needs_tokens = self.attention.settings().pattern.needs_tokens();
            input.tokens = needs_tokens.then(|| pass.tokens.rows());
            input.seed = seed;
            input.position = pass.position.clone();
            input.path = pass.way.path;
            input.precision = pass.way.precision;
            input
        };
        let norms = self.norms(&self.attention_norm, &self.attention_output_norm);
        let around = Around::new(x);
        if let (State::None, None) = (&state, int8)
            && let Some(out) = self.fused_attention(input(around.x.clone()), norms, outer)?
        {
            return Ok(out);
        }
        self.residual(around, norms, outer, pass.way.path, |x| match int8 {
            None => state.attend(&self.attention, self.attention.linears(), input(x)),
            Some(int8) => state.attend(&self.attention, int8.own(), input(x)),
        })
    }

    fn cross_attention(
        &self,
        cross: &Cross,
        memory: &Memory,
        x: Tensor<3>,
        pass: &mut Pass,
        state: &mut State,
        int8: Option<&QuantizedBlock>,
    ) -> Result<Tensor<3>, Error> {
        let (seed, outer) = (pass.seeds.next(), pass.seeds.next());
        let norms = self.norms(&cross.norm, &cross.output_norm);
        self.residual(Around::new(x), norms, outer, pass.way.path, |x| {
            let mut input = Input::new(x);
            input.first = pass.first;
            input.memory = Some(memory.states.clone());
            input.key_lengths = memory.lengths.clone();
            input.seed = seed;
            input.path = pass.way.path;
            input.precision = pass.way.precision;
            match int8 {
                None => state.attend_memory(&cross.attention, cross.attention.linears(), input),
                Some(int8) => state.attend_memory(&cross.attention, int8.cross(), input),
            }
        })
    }

    /// Self-attention and everything around it as one operation, where there is one.
    fn fused_attention(
        &self,
        input: Input,
        norms: Norms<&Norm>,
        seed: Option<u64>,
    ) -> Result<Option<Tensor<3>>, Error> {
        let Some((sublayer, weights)) = self.attention.projected(&input)? else { return Ok(None) };
        let recomputes = self.recompute != Recompute::None;
        let around = Around::new(input.x);
        self.fused::<_, { AROUND + projected::WEIGHTS }>(
            &around, norms, sublayer, weights, seed, recomputes,
        )
    }

    /// The feed-forward and everything around it as one operation, where there is one.
    fn fused_feed_forward(
        &self,
        around: &Around,
        norms: Norms<&Norm>,
        seed: Option<u64>,
        precision: Precision,
    ) -> Result<Option<Tensor<3>>, Error> {
        let Some((sublayer, weights)) = self.feed_forward.projected(precision) else {
            return Ok(None);
        };
        let recomputes = self.recompute == Recompute::Block;
        self.fused::<_, { AROUND + 6 }>(around, norms, sublayer, weights, seed, recomputes)
    }

    /// A sublayer on what stands around it and its weights; nothing on another backend.
    fn fused<S: Sublayer, const N: usize>(
        &self,
        around: &Around,
        norms: Norms<&Norm>,
        sublayer: S,
        weights: Vec<Operand>,
        seed: Option<u64>,
        recomputes: bool,
    ) -> Result<Option<Tensor<3>>, Error> {
        let Some(operands) = around.operands(norms) else { return Ok(None) };
        let operands: Vec<Operand> = operands.into_iter().chain(weights).collect();
        let operands: [Operand; N] = operands.try_into().expect("as many more than weights");
        let rate = self.dropout;
        let dropped = seed.filter(|_| rate > 0.0).map(|seed| Dropped { rate, seed });
        let norms = Norms {
            before: norms.before.map(|_| ()),
            output: norms.output.map(|_| ()),
            after: norms.after.map(|_| ()),
        };
        let residual = Residual { norms, formula: self.formula, dropped, recomputes };
        Ok(Some(sublayer::fused(sublayer, residual, operands, around.x.dims())?))
    }

    /// A sublayer on tensors, with its norms, dropout and the residual stream.
    fn residual(
        &self,
        Around { stream, x }: Around,
        norms: Norms<&Norm>,
        seed: Option<u64>,
        path: Path,
        sublayer: impl FnOnce(Tensor<3>) -> Result<Tensor<3>, whatwhere_attention::Error>,
    ) -> Result<Tensor<3>, Error> {
        let (out, _) = sublayer::in_order::<Tensor<3>, Tensor<3>, _, Error>(
            norms,
            [stream.as_ref().unwrap_or(&x), &x],
            |norm, x| Ok(norm.forward(x.clone(), path)),
            |x| Ok(sublayer(x.clone())?),
            |stream, out| Ok(add(stream.clone(), out, self.dropout, seed, path)),
        )?;
        Ok(out)
    }
}

/// What a sublayer reads, and the residual stream that it joins.
struct Around {
    /// Absent where it is what the sublayer reads.
    stream: Option<Tensor<3>>,
    x: Tensor<3>,
}

impl Around {
    fn new(x: Tensor<3>) -> Self {
        Self { stream: None, x }
    }

    /// As operands of a sublayer, with gain and bias of the norm before or after and of the output's.
    fn operands(&self, norms: Norms<&Norm>) -> Option<Vec<Operand>> {
        let device = self.x.device();
        let mut operands = Vec::with_capacity(AROUND);
        operands.push(match &self.stream {
            None => Operand::nothing(&device)?,
            Some(stream) => Operand::new(stream.clone())?,
        });
        operands.push(Operand::new(self.x.clone())?);
        for norm in [norms.before.or(norms.after), norms.output] {
            operands.extend(match norm {
                None => [Operand::nothing(&device)?, Operand::nothing(&device)?],
                Some(norm) => norm.operands()?,
            });
        }
        Some(operands)
    }
}
