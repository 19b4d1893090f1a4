//! A model: embeddings, one or two stacks, and the way back to tokens.

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{Embedding, EmbeddingConfig, Linear, LinearConfig},
    tensor::{Device, Int, Tensor, TensorData},
};
use whatwhere_attention::{Path, projected::Project};
use whatwhere_settings::Refuses;

use crate::{
    Error, Family, Memory, ModelSettings, Stack,
    block::{BlockCache, Pass},
    dropout::Seeds,
    fused, init, parameters,
    settings::Site,
    stack::States,
};

/// A Transformer of any family.
#[derive(Module, Debug)]
pub struct Model {
    /// `[vocabulary, width]`, of source and target alike.
    pub embedding: Embedding,
    /// Reads both ways.
    pub encoder: Option<Stack>,
    /// Reads from the left.
    pub decoder: Option<Stack>,
    /// `[width, vocabulary]`, unless the output shares the embeddings.
    pub output: Option<Linear>,
    #[module(skip)]
    settings: ModelSettings,
    /// Whether embeddings are multiplied by √width; the settings may leave it to an encoding.
    #[module(skip)]
    scales_embeddings: bool,
}

/// Tokens of several sequences of one length.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// `[batch, length]`, row by row.
    ids: Vec<u32>,
    batch: usize,
    /// Tokens that are not padding, one for each sequence; all if absent.
    pub lengths: Option<Vec<usize>>,
    /// Where documents start, for the `document` pattern: one list for all sequences or one for each.
    pub documents: Option<Vec<Vec<usize>>>,
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

/// What a decoder keeps while it generates.
#[derive(Clone, Debug)]
pub struct DecoderState {
    pub(crate) caches: Vec<BlockCache>,
    pub(crate) memory: Option<Memory>,
    pub(crate) length: usize,
}

impl Sequences {
    /// Sequences without padding, one after the other.
    ///
    /// # Panics
    /// If the tokens are no multiple of `batch`.
    pub fn new(ids: Vec<u32>, batch: usize) -> Self {
        let whole = ids.len().is_multiple_of(batch);
        assert!(whole, "{} tokens, expected {batch} rows of one length", ids.len());
        Self { ids, batch, lengths: None, documents: None }
    }

    /// Sequences of one length, without padding.
    ///
    /// # Panics
    /// If the rows differ in length so that no length fits all.
    pub fn from_rows(rows: &[impl AsRef<[u32]>]) -> Self {
        let ids = rows.iter().flat_map(AsRef::as_ref).copied().collect();
        Self::new(ids, rows.len())
    }

    /// All tokens, row by row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// `[batch, length]`.
    pub fn dims(&self) -> [usize; 2] {
        [self.batch, self.ids.len() / self.batch.max(1)]
    }
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
    fn assemble(&self, device: &Device) -> Result<Model, Error> {
        self.check()?;
        if self.vocabulary == 0 {
            let reason = "expected the number of tokens, at least 1";
            return Err(Error::setting("vocabulary", 0, reason));
        }
        let stack = |site, layers| match layers {
            0 => Ok(None),
            layers => Stack::new(self, site, layers, device).map(Some),
        };
        Ok(Model {
            embedding: EmbeddingConfig::new(self.vocabulary, self.width).init(device),
            encoder: stack(Site::Encoder, self.encoder_depth())?,
            decoder: stack(Site::Decoder, self.decoder_depth())?,
            output: (!self.tied).then(|| {
                LinearConfig::new(self.width, self.vocabulary).with_bias(false).init(device)
            }),
            settings: self.clone(),
            scales_embeddings: self.scales_embeddings()?,
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

    /// The settings the model was built from.
    pub fn settings(&self) -> &ModelSettings {
        &self.settings
    }

    /// The same weights under other settings, such as a scaling of rotary's angles; nothing is copied. Refuses settings
    /// that ask for other parameters.
    pub fn with_settings(&self, settings: &ModelSettings) -> Result<Self, Error> {
        parameters::share(self, settings.assemble(&self.device())?)
    }

    /// Logits of the next token at every place (of the same token, for an encoder), `[batch, length, vocabulary]`.
    /// An encoder-decoder needs a source.
    pub fn forward(
        &self,
        source: Option<&Sequences>,
        tokens: &Sequences,
        mode: Mode,
    ) -> Result<Tensor<3>, Error> {
        Ok(self.logits_by(self.hidden(source, tokens, mode)?, mode.path))
    }

    /// The last layer's states, `[batch, length, width]`.
    pub fn hidden(
        &self,
        source: Option<&Sequences>,
        tokens: &Sequences,
        mode: Mode,
    ) -> Result<Tensor<3>, Error> {
        let mut seeds = Seeds::new(mode.seed);
        match (&self.encoder, &self.decoder) {
            (Some(encoder), None) => {
                self.read(encoder, tokens, &mut seeds, mode.path, States::None)
            }
            (_, Some(_)) => {
                let memory = self.memory(source, &mut seeds, mode.path)?;
                self.decode(tokens, memory.as_ref(), 0, seeds, mode.path, States::None)
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
        self.decode(tokens, None, 0, seeds, mode.path, states)
    }

    /// `[batch, length, vocabulary]` from hidden states.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.logits_by(hidden, Path::Auto)
    }

    fn logits_by(&self, hidden: Tensor<3>, path: Path) -> Tensor<3> {
        if let Some(output) = &self.output {
            return output.project(hidden, path);
        }
        let table = self.embedding.weight.val();
        if path != Path::Composed
            && let Some(logits) = fused::logits(hidden.clone(), table.clone())
        {
            return logits;
        }
        burn::tensor::module::linear(hidden, table.transpose(), None)
    }

    /// The weights behind [`Self::logits`], and whether they are the embeddings, `[vocabulary, width]`, instead of
    /// `[width, vocabulary]`.
    pub fn projection(&self) -> (Tensor<2>, bool) {
        match &self.output {
            Some(output) => (output.weight.val(), false),
            None => (self.embedding.weight.val(), true),
        }
    }

    /// Begins to generate: reads the source, if there is one.
    pub fn start(&self, source: Option<&Sequences>) -> Result<DecoderState, Error> {
        if self.decoder.is_none() {
            let reason = "an encoder fills blanks and does not write; use a decoder";
            return Err(Error::setting("family", "encoder", reason));
        }
        let memory = self.memory(source, &mut Seeds::new(None), Path::Auto)?;
        let caches = vec![BlockCache::default(); self.settings.decoder_depth()];
        Ok(DecoderState { caches, memory, length: 0 })
    }

    /// Logits after each of the given tokens, which follow those already read, `[batch, length, vocabulary]`.
    pub fn step(&self, tokens: &Sequences, state: &mut DecoderState) -> Result<Tensor<3>, Error> {
        self.step_last(tokens, tokens.dims()[1], state)
    }

    /// [`Self::step`], with logits after the last `count` tokens only.
    pub(crate) fn step_last(
        &self,
        tokens: &Sequences,
        count: usize,
        state: &mut DecoderState,
    ) -> Result<Tensor<3>, Error> {
        let (first, length) = (state.length, tokens.dims()[1]);
        let DecoderState { caches, memory, .. } = state;
        let states = States::Caches(caches);
        let seeds = Seeds::new(None);
        let hidden = self.decode(tokens, memory.as_ref(), first, seeds, Path::Auto, states)?;
        state.length += length;
        Ok(self.logits(hidden.narrow(1, length - count, count)))
    }

    fn memory(
        &self,
        source: Option<&Sequences>,
        seeds: &mut Seeds,
        path: Path,
    ) -> Result<Option<Memory>, Error> {
        match (&self.encoder, source) {
            (None, None) => Ok(None),
            (Some(encoder), Some(source)) => {
                let states = self.read(encoder, source, seeds, path, States::None)?;
                Ok(Some(Memory { states, lengths: source.lengths.clone() }))
            }
            (Some(_), None) => {
                Err(Error::Input("an encoder-decoder needs a source, found none".into()))
            }
            (None, Some(_)) => {
                Err(Error::Input("a decoder alone reads no source, found one".into()))
            }
        }
    }

    pub(crate) fn read(
        &self,
        encoder: &Stack,
        tokens: &Sequences,
        seeds: &mut Seeds,
        path: Path,
        states: States,
    ) -> Result<Tensor<3>, Error> {
        let x = self.embed(tokens, path);
        let mut pass = Pass {
            lengths: tokens.lengths.as_deref(),
            documents: tokens.documents.as_deref(),
            memory: None,
            seeds: *seeds,
            path,
        };
        let out = encoder.forward(x, 0, &mut pass, states)?;
        *seeds = pass.seeds;
        Ok(out)
    }

    pub(crate) fn decode(
        &self,
        tokens: &Sequences,
        memory: Option<&Memory>,
        first: usize,
        seeds: Seeds,
        path: Path,
        states: States,
    ) -> Result<Tensor<3>, Error> {
        let decoder = self.decoder.as_ref().expect("callers have a decoder");
        let x = self.embed(tokens, path);
        // Padding stands at the end, where a causal pattern hides it.
        let documents = tokens.documents.as_deref();
        let mut pass = Pass { lengths: None, documents, memory, seeds, path };
        decoder.forward(x, first, &mut pass, states)
    }

    /// Embeddings of tokens, `[batch, length, width]`, before places are added.
    pub fn embed(&self, tokens: &Sequences, path: Path) -> Tensor<3> {
        let fused = match path {
            Path::Composed => None,
            Path::Auto | Path::Fused => fused::embedding(self.embedding.weight.val(), tokens),
        };
        let x = fused.unwrap_or_else(|| {
            let ids: Vec<i32> = tokens.ids.iter().map(|id| *id as i32).collect();
            let data = TensorData::new(ids, tokens.dims());
            self.embedding.forward(Tensor::from_data(data, &self.device()))
        });
        match self.scales_embeddings {
            true => x * (self.settings.width as f64).sqrt(),
            false => x,
        }
    }

    /// Where its weights are.
    pub fn device(&self) -> Device {
        self.embedding.weight.val().device()
    }

    /// Which stacks it has.
    pub fn family(&self) -> Family {
        self.settings.family
    }
}

impl DecoderState {
    /// Tokens read so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Forgets the last tokens, which can then be replaced by others; see [`Cache::rollback`].
    ///
    /// [`Cache::rollback`]: whatwhere_attention::Cache::rollback
    pub fn rollback(&mut self, tokens: usize) -> Result<(), Error> {
        for cache in &mut self.caches {
            cache.own.rollback(tokens)?;
        }
        self.length -= tokens;
        Ok(())
    }

    /// Goes on with these sequences: `order[i]` is the old index of new sequence `i`. Beam search calls it after each
    /// step; sequences that are done can be left out.
    pub fn reorder(&mut self, order: &[usize]) -> Result<(), Error> {
        for cache in &mut self.caches {
            cache.own.reorder(order)?;
            cache.cross.reorder(order)?;
        }
        if let Some(memory) = &mut self.memory {
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
