//! Recurrent models, the predecessors of the Transformer: an encoder that reads a sequence into states, a decoder that writes
//! one from a state, and what the decoder finds in the source, if it attends: `attention` is the layer of Transformers, with
//! its scores and patterns.
//!
//! | `attends` | step of the decoder | logits of |
//! |---|---|---|
//! | `none` | `h = cell(x, h)`, from the source's last state | `h` |
//! | `before` (Bahdanau) | `c = attend(h)`, `h = cell([x, c], h)` | `tanh(W [c; h])`, in place of his maxout |
//! | `after` (Luong) | `h = cell(x, h)`, `c = attend(h)` | `j = tanh(W [c; h])` |
//! | `after`, `input_feeding` | `h = cell([x, j], h)`, `c = attend(h)` | `j = tanh(W [c; h])` |
//!
//! Where nothing is fed back, all tokens go through a layer at once. Several layers: the first is fed, the last asks. A
//! decoder starts with the last states of the encoder's layers, as Sutskever's and Luong's; Bahdanau puts one more layer there.

mod decoder;
mod encoder;
mod layer;

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{Attention, Input, Path};

pub use decoder::RecurrentDecoder;
pub(crate) use decoder::RecurrentDecoderState;
pub use encoder::{RecurrentEncoder, RecurrentEncoderLayer};
pub use layer::RecurrentLayer;

use decoder::Pass;

use crate::{
    AttentionInput, Error, Memory, Mode, Model, ModelSettings, Sequences, Site, dropout::Seeds,
    model::reading,
};

/// The layers of a recurrent model.
#[derive(Module, Debug)]
pub struct RecurrentModel {
    /// Reads a source, or predicts masked tokens.
    pub encoder: Option<RecurrentEncoder>,
    /// Writes.
    pub decoder: Option<RecurrentDecoder>,
}

impl RecurrentModel {
    /// Fresh parameters; nothing for a Transformer.
    pub(crate) fn new(settings: &ModelSettings, device: &Device) -> Result<Option<Self>, Error> {
        let Some(kind) = settings.recurrent else { return Ok(None) };
        let reads = settings.recurrent_encoder_layers() > 0;
        let writes = settings.recurrent_decoder_layers() > 0;
        Ok(Some(Self {
            encoder: reads.then(|| RecurrentEncoder::new(kind, settings, device)),
            decoder: writes.then(|| RecurrentDecoder::new(kind, settings, device)).transpose()?,
        }))
    }

    /// Its attention to the source, if there is one.
    pub(crate) fn attention(&self) -> Option<&Attention> {
        self.decoder.as_ref()?.attention.as_ref()
    }
}

impl Model {
    /// [`Model::hidden`] of a recurrent model.
    pub(crate) fn recurrent_hidden(
        &self,
        recurrent: &RecurrentModel,
        source: Option<&Sequences>,
        tokens: &Sequences,
        mode: Mode,
    ) -> Result<Tensor<3>, Error> {
        let (mut seeds, path) = (Seeds::new(mode.seed), mode.path);
        if let (Some(encoder), None) = (&recurrent.encoder, &recurrent.decoder) {
            let x = self.checked_embed(tokens, path)?;
            return Ok(encoder.forward(x, tokens.lengths.as_deref(), &mut seeds, path).0);
        }
        let (mut state, memory) = self.recurrent_start(recurrent, source, &mut seeds, path)?;
        let pass = Pass { first: 0, memory: memory.as_ref(), seeds, path, inputs: None };
        self.recurrent_write(recurrent, tokens, &mut state, pass)
    }

    /// A state before the first token: the source is read, if there is one.
    pub(crate) fn recurrent_start(
        &self,
        recurrent: &RecurrentModel,
        source: Option<&Sequences>,
        seeds: &mut Seeds,
        path: Path,
    ) -> Result<(RecurrentDecoderState, Option<Memory>), Error> {
        let Some((encoder, source)) = reading(recurrent.encoder.as_ref(), source)? else {
            return Ok((RecurrentDecoderState::default(), None));
        };
        let x = self.checked_embed(source, path)?;
        let (states, last) = encoder.forward(x, source.lengths.as_deref(), seeds, path);
        let memory = Memory { states, lengths: source.lengths.clone() };
        Ok((RecurrentDecoderState::after(last), Some(memory)))
    }

    /// Tokens that follow a state.
    pub(crate) fn recurrent_step(
        &self,
        recurrent: &RecurrentModel,
        tokens: &Sequences,
        state: &mut RecurrentDecoderState,
        memory: Option<&Memory>,
        first: usize,
    ) -> Result<Tensor<3>, Error> {
        let pass = Pass { first, memory, seeds: Seeds::new(None), path: Path::Auto, inputs: None };
        self.recurrent_write(recurrent, tokens, state, pass)
    }

    fn recurrent_write(
        &self,
        recurrent: &RecurrentModel,
        tokens: &Sequences,
        state: &mut RecurrentDecoderState,
        pass: Pass,
    ) -> Result<Tensor<3>, Error> {
        let decoder = recurrent.decoder.as_ref().expect("callers have a decoder");
        if tokens.prefixes.is_some() {
            let reason = "a recurrence reads from the left only, found a prefix that is seen in both directions";
            return Err(Error::Input(reason.into()));
        }
        let x = self.checked_embed(tokens, pass.path)?;
        decoder.forward(x, state, pass)
    }

    /// [`Model::look`] of a recurrent model: what all tokens ask the source, in one call.
    pub(crate) fn recurrent_look(
        &self,
        recurrent: &RecurrentModel,
        source: Option<&Sequences>,
        tokens: &Sequences,
        first: usize,
    ) -> Result<(Vec<AttentionInput>, Tensor<3>), Error> {
        if recurrent.attention().is_none() {
            let reason = "a recurrent model without attention has no weights to look at";
            return Err(Error::Input(reason.into()));
        }
        let (mut seeds, path) = (Seeds::new(None), Path::Auto);
        let (mut state, memory) = self.recurrent_start(recurrent, source, &mut seeds, path)?;
        let mut inputs: Vec<Input> = Vec::new();
        let seen = Some(&mut inputs);
        let pass = Pass { first, memory: memory.as_ref(), seeds, path, inputs: seen };
        let states = self.recurrent_write(recurrent, tokens, &mut state, pass)?;
        let asking = inputs.iter().map(|input| input.x.clone()).collect();
        let Some(mut input) = inputs.into_iter().next() else { return Ok((Vec::new(), states)) };
        input.x = Tensor::cat(asking, 1);
        Ok((vec![AttentionInput { site: Site::Cross, layer: 0, input }], states))
    }
}
