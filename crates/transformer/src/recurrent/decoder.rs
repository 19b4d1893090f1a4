//! The decoder of a recurrent model: a language model by itself, and with a source from its last state or attending to it.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Int, Tensor, activation::tanh},
};
use whatwhere_attention::{Attention, Cache, Input, Path, projected::Project};

use super::{RecurrentLayer, layer::Run};
use crate::{
    Attends, Error, Memory, ModelSettings, Recurrent, Site,
    dropout::{Seeds, drop},
};

/// Layers that read from the left, and what attends to the source.
#[derive(Module, Debug)]
pub struct RecurrentDecoder {
    /// In the order they are computed in.
    pub layers: Vec<RecurrentLayer>,
    /// To the source, if it attends.
    pub attention: Option<Attention>,
    /// Of what goes into the first layer besides tokens, `[width, gates · width]`: what was found in the source before the
    /// step, or what was joined in the step before.
    pub feed: Option<Linear>,
    /// `[2 · width, width]`, of what was found beside the state: `tanh` of it is what logits are made of.
    pub join: Option<Linear>,
    #[module(skip)]
    attends: Attends,
    #[module(skip)]
    dropout: f32,
}

/// What goes from token to token; its size does not depend on how many there were.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecurrentDecoderState {
    /// Of each layer, `[batch, states, width]`; nothing before the first token without a source.
    pub(super) layers: Vec<Option<Tensor<3>>>,
    /// What was joined in the last step, `[batch, 1, width]`.
    joined: Option<Tensor<3>>,
    /// Keys and values of the source.
    cache: Cache,
}

/// What a pass is told besides its tokens.
pub(super) struct Pass<'a> {
    /// The position of the first token.
    pub(super) first: usize,
    pub(super) memory: Option<&'a Memory>,
    pub(super) seeds: Seeds,
    pub(super) path: Path,
    /// What attention is called with, for looking inside.
    pub(super) inputs: Option<&'a mut Vec<Input>>,
}

impl RecurrentDecoder {
    pub(super) fn new(
        kind: Recurrent,
        settings: &ModelSettings,
        device: &Device,
    ) -> Result<Self, Error> {
        let (cell, width, attends) = (kind.cell(), settings.width, settings.attends);
        let layer = |layer: usize| {
            let from = if layer == 0 { settings.embedding_channels() } else { width };
            RecurrentLayer::new(cell, from, width, false, device)
        };
        let attention = match attends {
            Attends::None => None,
            Attends::Before | Attends::After => {
                Some(settings.attention(Site::Cross, 0)?.build(device)?)
            }
        };
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(device);
        let feeds = attends == Attends::Before || settings.input_feeding;
        Ok(Self {
            layers: (0..settings.recurrent_decoder_layers()).map(layer).collect(),
            feed: feeds.then(|| linear(width, cell.gates() * width)),
            join: attention.is_some().then(|| linear(2 * width, width)),
            attention,
            attends,
            dropout: settings.dropout,
        })
    }

    /// From embeddings of tokens that follow a state to what logits are made of, `[batch, length, width]`.
    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        state: &mut RecurrentDecoderState,
        mut pass: Pass,
    ) -> Result<Tensor<3>, Error> {
        state.layers.resize(self.layers.len(), None);
        let x = drop(x, self.dropout, pass.seeds.next());
        let length = x.dims()[1];
        let (out, found) = match &self.feed {
            None => {
                let gates = self.layers[0].input.project(x, pass.path);
                let out = self.recur(gates, state, &mut pass);
                let found = self.find(out.clone(), 0, state, &mut pass)?;
                (out, found)
            }
            Some(feed) => {
                let gates = self.layers[0].input.project(x, pass.path);
                let mut steps = Vec::with_capacity(length);
                for (at, gates) in in_steps(gates).into_iter().enumerate() {
                    steps.push(self.step(feed, gates, at, state, &mut pass)?);
                }
                let (out, found): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
                if self.attends == Attends::After {
                    return Ok(Tensor::cat(out, 1)); // joined in their steps
                }
                (Tensor::cat(out, 1), Some(Tensor::cat(found, 1)))
            }
        };
        let out = drop(out, self.dropout, pass.seeds.next());
        Ok(match found {
            None => out,
            Some(found) => self.joined(found, out, pass.path),
        })
    }

    /// One token: what comes out, and what was found in the source.
    fn step(
        &self,
        feed: &Linear,
        gates: Tensor<3>,
        at: usize,
        state: &mut RecurrentDecoderState,
        pass: &mut Pass,
    ) -> Result<(Tensor<3>, Tensor<3>), Error> {
        let ([batch, ..], device, width) = (gates.dims(), gates.device(), self.width());
        let zeros = || Tensor::zeros([batch, 1, width], &device);
        if self.attends == Attends::Before {
            let top = state.layers.last().cloned().flatten();
            let asking = top.map_or_else(zeros, |state| state.narrow(1, 0, 1));
            let found = self.find(asking, at, state, pass)?.expect("it attends");
            let gates = gates + feed.project(found.clone(), pass.path);
            return Ok((self.recur(gates, state, pass), found));
        }
        let fed = state.joined.take().unwrap_or_else(zeros);
        let gates = gates + feed.project(fed, pass.path);
        let out = self.recur(gates, state, pass);
        let found = self.find(out.clone(), at, state, pass)?.expect("it attends");
        let out = drop(out, self.dropout, pass.seeds.next());
        let joined = self.joined(found.clone(), out, pass.path);
        state.joined = Some(joined.clone());
        Ok((joined, found))
    }

    /// All layers, from what is asked of the gates of the first.
    fn recur(
        &self,
        gates: Tensor<3>,
        state: &mut RecurrentDecoderState,
        pass: &mut Pass,
    ) -> Tensor<3> {
        let path = pass.path;
        // Padding stands at the end, and nothing comes after it.
        let run = |layer: &RecurrentLayer, gates, state: &mut Option<Tensor<3>>| {
            let Run { out, last } = layer.run(gates, state.take(), None, path);
            *state = Some(last);
            out
        };
        let mut x = run(&self.layers[0], gates, &mut state.layers[0]);
        for (layer, state) in self.layers.iter().zip(&mut state.layers).skip(1) {
            x = drop(x, self.dropout, pass.seeds.next());
            x = run(layer, layer.input.project(x, path), state);
        }
        x
    }

    /// What states find in the source, if it attends; the first of them stands at this token of the pass.
    fn find(
        &self,
        states: Tensor<3>,
        at: usize,
        state: &mut RecurrentDecoderState,
        pass: &mut Pass,
    ) -> Result<Option<Tensor<3>>, Error> {
        let (Some(attention), Some(memory)) = (&self.attention, pass.memory) else {
            return Ok(None);
        };
        let mut input = Input::new(states);
        input.memory = Some(memory.states.clone());
        input.key_lengths = memory.lengths.clone();
        input.first = pass.first + at;
        input.seed = pass.seeds.next();
        input.path = pass.path;
        if let Some(inputs) = &mut pass.inputs {
            inputs.push(input.clone());
        }
        Ok(Some(attention.decode(input, &mut state.cache)?))
    }

    fn joined(&self, found: Tensor<3>, states: Tensor<3>, path: Path) -> Tensor<3> {
        let join = self.join.as_ref().expect("what attends joins");
        tanh(join.project(Tensor::cat(vec![found, states], 2), path))
    }

    fn width(&self) -> usize {
        self.layers[0].width()
    }
}

/// Each token's part of `[batch, length, channels]`. Halves of halves: the gradient of a part is as long as what it is cut
/// from, so parts of the whole would cost the square of the length.
fn in_steps(x: Tensor<3>) -> Vec<Tensor<3>> {
    match x.dims()[1] {
        0 => Vec::new(),
        1 => vec![x],
        length => {
            let half = length / 2;
            let mut steps = in_steps(x.clone().narrow(1, 0, half));
            steps.extend(in_steps(x.narrow(1, half, length - half)));
            steps
        }
    }
}

impl RecurrentDecoderState {
    /// Begins with the last states of a source.
    pub(super) fn after(last: Vec<Tensor<3>>) -> Self {
        Self { layers: last.into_iter().map(Some).collect(), ..Self::default() }
    }

    /// Goes on with these sequences, whose sources are others if so.
    pub(crate) fn reorder(&mut self, order: &[usize], moves_sources: bool) -> Result<(), Error> {
        let index: Vec<i32> = order.iter().map(|index| *index as i32).collect();
        for state in self.layers.iter_mut().chain([&mut self.joined]).flatten() {
            let [batch, ..] = state.dims();
            if let Some(beyond) = order.iter().find(|index| **index >= batch) {
                let reason = format!("found sequence {beyond}, the state holds {batch}");
                return Err(Error::Input(reason));
            }
            let index = Tensor::<1, Int>::from_data(index.as_slice(), &state.device());
            *state = state.clone().select(0, index);
        }
        if moves_sources {
            self.cache.reorder(order)?;
        }
        Ok(())
    }
}
