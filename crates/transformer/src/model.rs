//! A model: embeddings, one or two stacks, and the output projection to logits.

use std::sync::Arc;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{Embedding, EmbeddingConfig, Linear, LinearConfig},
    tensor::{Device, Tensor, TensorData},
};
use whatwhere_attention::{Path, Way};
use whatwhere_kernels::Precision;
use whatwhere_settings::Refuses;

use crate::{
    Error, Family, Memory, ModelSettings, Output, OutputTransform, RecurrentModel, Sequences,
    Stack, block::Pass, dropout::Seeds, fused, init, parameters, quantized::QuantizedModel,
    settings::Site, stack::States,
};

/// A Transformer of any family.
#[derive(Module, Debug)]
pub struct Model {
    /// `[vocabulary, embedding width]`, of source and target alike.
    pub embedding: Embedding,
    /// `[token types, embedding width]`, if there are types.
    pub types: Option<Embedding>,
    /// Reads both ways.
    pub encoder: Option<Stack>,
    /// Reads from the left.
    pub decoder: Option<Stack>,
    /// In place of both stacks, if it is a recurrent model.
    pub recurrent: Option<RecurrentModel>,
    /// Before the logits, if any.
    pub output_transform: Option<OutputTransform>,
    /// `[width, embedding width]`, where logits share embeddings of another width and nothing else stands between.
    pub output_projection: Option<Linear>,
    /// Of the logits.
    pub output: Output,
    /// `[width, classes]` with a bias, from one pooled state; a model that has it has no logits of tokens.
    pub classifier: Option<Linear>,
    #[module(skip)]
    settings: ModelSettings,
    /// Whether embeddings are multiplied by √width; the settings may leave it to an encoding.
    #[module(skip)]
    scales_embeddings: bool,
    /// Int8 weights, if it computes with such.
    #[module(skip)]
    int8: Option<Arc<QuantizedModel>>,
    /// What it computes products in.
    #[module(skip)]
    precision: Precision,
}

/// How a model is called.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Seed of dropout; without one nothing is dropped.
    pub seed: Option<u64>,
    /// Which path attention takes.
    pub path: Path,
}

/// Hidden states of the segments before, for [`Model::segment`].
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// One tensor `[batch, kept, width]` for each layer of the decoder; empty before the first segment.
    pub layers: Vec<Option<Tensor<3>>>,
}

impl ModelSettings {
    /// Builds a model; equal seeds give equal weights wherever name and shape of a parameter agree.
    pub fn build(&self, seed: u64, device: &Device) -> Result<Model, Error> {
        Ok(init::weights(self.assemble(device)?, self, seed))
    }

    /// The number of learned values of the model, none of which is made for it.
    pub fn parameter_count(&self) -> Result<u64, Error> {
        let mut counting = Counting(0);
        self.assemble(&Device::flex())?.visit(&mut counting);
        Ok(counting.0)
    }

    /// A model whose weights are still to be drawn.
    pub(crate) fn assemble(&self, device: &Device) -> Result<Model, Error> {
        self.check()?;
        if self.vocabulary == 0 {
            let reason = "expected the number of tokens, at least 1";
            return Err(Error::setting("vocabulary", 0, reason));
        }
        let stack = |site, layers| match layers {
            0 => Ok(None),
            layers => Stack::new(self, site, layers, device).map(Some),
        };
        let channels = self.embedding_channels();
        Ok(Model {
            embedding: EmbeddingConfig::new(self.vocabulary, channels).init(device),
            types: (self.token_types > 0)
                .then(|| EmbeddingConfig::new(self.token_types, channels).init(device)),
            encoder: stack(Site::Encoder, self.encoder_depth())?,
            decoder: stack(Site::Decoder, self.decoder_depth())?,
            recurrent: RecurrentModel::new(self, device)?,
            output_transform: (self.output_transform && self.classes == 0)
                .then(|| OutputTransform::new(self, device)),
            output_projection: self
                .projects_output()
                .then(|| LinearConfig::new(self.width, channels).with_bias(self.bias).init(device)),
            output: Output::new(self, device),
            classifier: (self.classes > 0)
                .then(|| LinearConfig::new(self.width, self.classes).init(device)),
            settings: self.clone(),
            scales_embeddings: self.scales_embeddings()?,
            int8: None,
            precision: Precision::F32,
        })
    }
}

struct Counting(u64);

impl ModuleVisitor for Counting {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let size = param.lazy_shape().iter().fold(1u64, |size, &n| size.saturating_mul(n as u64));
        self.0 = self.0.saturating_add(size);
    }
}

impl Model {
    pub(crate) fn scales_embeddings(&self) -> bool {
        self.scales_embeddings
    }

    pub(crate) fn int8(&self) -> Option<&Arc<QuantizedModel>> {
        self.int8.as_ref()
    }

    /// What it computes products in, forward and backward.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    pub(crate) fn way(&self, path: Path) -> Way {
        Way { path, precision: self.precision }
    }

    /// The same, computing products in this precision; weights stay f32. [`Self::logits`] are products in f32 either way.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The same with these int8 weights, or with f32 ones.
    pub(crate) fn with_int8(mut self, int8: Option<Arc<QuantizedModel>>) -> Self {
        self.int8 = int8;
        self
    }

    /// The settings the model was built from.
    pub fn settings(&self) -> &ModelSettings {
        &self.settings
    }

    /// The same weights under other settings, such as a scaling of rotary's angles; nothing is copied. Refuses settings
    /// that ask for other parameters.
    pub fn with_settings(&self, settings: &ModelSettings) -> Result<Self, Error> {
        parameters::share(self, settings.assemble(&self.device())?)
    }

    /// Logits of the next token at every position (of the same token, for an encoder), `[batch, length, vocabulary]`.
    /// An encoder-decoder needs a source.
    pub fn forward(
        &self,
        source: Option<&Sequences>,
        tokens: &Sequences,
        mode: Mode,
    ) -> Result<Tensor<3>, Error> {
        self.require_tokens()?;
        Ok(self.logits_by(self.hidden(source, tokens, mode)?, mode.path))
    }

    /// The last layer's states, `[batch, length, width]`.
    pub fn hidden(
        &self,
        source: Option<&Sequences>,
        tokens: &Sequences,
        mode: Mode,
    ) -> Result<Tensor<3>, Error> {
        if let Some(recurrent) = &self.recurrent {
            return self.recurrent_hidden(recurrent, source, tokens, mode);
        }
        let mut seeds = Seeds::new(mode.seed);
        match (&self.encoder, &self.decoder) {
            (Some(encoder), None) => {
                self.read(encoder, tokens, 0, &mut seeds, mode.path, States::None)
            }
            (_, Some(_)) => {
                let memory = self.memory(source, &mut seeds, mode.path)?;
                let int8 = self.int8.as_deref();
                self.decode(tokens, memory.as_ref(), 0, seeds, mode.path, States::None, int8)
            }
            (None, None) => unreachable!("a model has a stack"),
        }
    }

    /// [`Self::hidden`] of a segment that also sees what is kept of the segments before it, and is kept in turn.
    pub fn segment(
        &self,
        tokens: &Sequences,
        segments: &mut Segments,
        mode: Mode,
    ) -> Result<Tensor<3>, Error> {
        let seeds = Seeds::new(mode.seed);
        segments.layers.resize(self.settings.decoder_depth(), None);
        let states = States::Segments(&mut segments.layers, self.settings.segment_memory);
        self.decode(tokens, None, 0, seeds, mode.path, states, self.int8.as_deref())
    }

    pub(crate) fn memory(
        &self,
        source: Option<&Sequences>,
        seeds: &mut Seeds,
        path: Path,
    ) -> Result<Option<Memory>, Error> {
        let Some((encoder, source)) = reading(self.encoder.as_ref(), source)? else {
            return Ok(None);
        };
        let states = self.read(encoder, source, 0, seeds, path, States::None)?;
        Ok(Some(Memory { states, lengths: source.lengths.clone() }))
    }

    pub(crate) fn read(
        &self,
        encoder: &Stack,
        tokens: &Sequences,
        first: usize,
        seeds: &mut Seeds,
        path: Path,
        states: States,
    ) -> Result<Tensor<3>, Error> {
        let x = self.checked_embed(tokens, path)?;
        let mut pass = Pass {
            first: 0,
            lengths: tokens.lengths.as_deref(),
            tokens,
            prefixes: None,
            memory: None,
            position: None,
            seeds: *seeds,
            way: self.way(path),
        };
        let int8 = self.int8.as_deref().map(|int8| &int8.encoder[..]);
        let out = encoder.forward(x, first, &mut pass, states, int8)?;
        *seeds = pass.seeds;
        Ok(out)
    }

    #[expect(clippy::too_many_arguments, reason = "each is of a kind of its own")]
    pub(crate) fn decode(
        &self,
        tokens: &Sequences,
        memory: Option<&Memory>,
        first: usize,
        seeds: Seeds,
        path: Path,
        states: States,
        int8: Option<&QuantizedModel>,
    ) -> Result<Tensor<3>, Error> {
        let decoder = self.decoder.as_ref().expect("callers have a decoder");
        let x = self.checked_embed(tokens, path)?;
        // Padding stands at the end, where a causal pattern hides it.
        let mut pass = Pass {
            first,
            lengths: None,
            tokens,
            prefixes: tokens.prefixes.as_deref(),
            memory,
            position: None,
            seeds,
            way: self.way(path),
        };
        decoder.forward(x, first, &mut pass, states, int8.map(|int8| &int8.decoder[..]))
    }

    /// [`Self::embed`] of tokens that are in the vocabulary and whose types are known.
    pub(crate) fn checked_embed(&self, tokens: &Sequences, path: Path) -> Result<Tensor<3>, Error> {
        self.check_ids(tokens)?;
        self.check_types(tokens)?;
        Ok(self.embed(tokens, path))
    }

    /// Embeddings of tokens and their types, `[batch, length, embedding width]`, before positions are added.
    ///
    /// # Panics
    /// If a token is outside the vocabulary.
    pub fn embed(&self, tokens: &Sequences, path: Path) -> Tensor<3> {
        let int8 = self.int8.as_ref().and_then(|int8| int8.embedding.as_ref());
        let x = match int8.filter(|_| path != Path::Composed) {
            Some(table) => fused::quantized_embedding(table, &tokens.ids, tokens.dims()),
            None => self.rows(&self.embedding, tokens.ids.clone(), tokens.dims(), path),
        };
        let x = match self.scales_embeddings {
            true => x * (self.settings.embedding_channels() as f64).sqrt(),
            false => x,
        };
        let Some(table) = &self.types else { return x };
        let types = tokens.types.clone().unwrap_or_else(|| vec![0; tokens.ids.len()]);
        x + self.rows(table, types, tokens.dims(), path)
    }

    fn rows(&self, table: &Embedding, rows: Vec<u32>, dims: [usize; 2], path: Path) -> Tensor<3> {
        let fused = match path {
            Path::Composed => None,
            Path::Auto | Path::Fused => fused::embedding(table.weight.val(), rows.clone(), dims),
        };
        fused.unwrap_or_else(|| {
            let rows: Vec<i32> = rows.into_iter().map(|row| row as i32).collect();
            table.forward(Tensor::from_data(TensorData::new(rows, dims), &self.device()))
        })
    }

    /// A tokenizer may have more tokens than the model, as those of Gemma do.
    fn check_ids(&self, tokens: &Sequences) -> Result<(), Error> {
        let vocabulary = self.settings.vocabulary;
        match tokens.ids.iter().find(|id| **id as usize >= vocabulary) {
            None => Ok(()),
            Some(id) => Err(Error::Input(format!(
                "token {id} is unknown to the model, which has {vocabulary}"
            ))),
        }
    }

    fn check_types(&self, tokens: &Sequences) -> Result<(), Error> {
        let Some(types) = &tokens.types else { return Ok(()) };
        let known = self.settings.token_types;
        if types.len() != tokens.ids.len() {
            let (found, expected) = (types.len(), tokens.ids.len());
            return Err(Error::Input(format!("{found} types for {expected} tokens")));
        }
        match types.iter().find(|kind| **kind as usize >= known) {
            None => Ok(()),
            Some(found) => Err(Error::Input(format!(
                "token type {found} is unknown to the model, which has {known}"
            ))),
        }
    }

    /// Where its weights are.
    pub fn device(&self) -> Device {
        self.embedding.weight.lazy_device()
    }

    /// Which stacks it has.
    pub fn family(&self) -> Family {
        self.settings.family
    }
}

/// The encoder with what it reads; a model without one reads nothing.
pub(crate) fn reading<'a, T>(
    encoder: Option<&'a T>,
    source: Option<&'a Sequences>,
) -> Result<Option<(&'a T, &'a Sequences)>, Error> {
    match (encoder, source) {
        (None, None) => Ok(None),
        (Some(encoder), Some(source)) => Ok(Some((encoder, source))),
        (Some(_), None) => {
            Err(Error::Input("an encoder-decoder needs a source, found none".into()))
        }
        (None, Some(_)) => Err(Error::Input("a decoder alone reads no source, found one".into())),
    }
}
