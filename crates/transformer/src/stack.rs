//! A stack: positions added to embeddings, blocks, and a last norm.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor},
};
use whatwhere_attention::{
    Heads, Input, Path, Way,
    position::{PositionLayer, PositionModule},
    projected::Project,
};

use crate::{
    Block, Error, Family, ModelSettings, Norm, NormPlace,
    block::Pass,
    dropout::drop,
    quantized::QuantizedBlock,
    settings::Site,
    state::{BlockCache, State},
    together::{Sequence, Together},
};

/// The encoder or the decoder.
#[derive(Module, Debug)]
pub struct Stack {
    /// Encodings that are added to embeddings.
    pub position: Vec<PositionModule>,
    /// Of embeddings with what was added to them.
    pub embedding_norm: Option<Norm>,
    /// `[embedding width, width]`, where the two differ.
    pub embedding_projection: Option<Linear>,
    /// In the order they are computed in; one where all layers share it.
    pub blocks: Vec<Block>,
    /// After the last block, unless each ends with one.
    pub norm: Option<Norm>,
    /// Whether what is added to embeddings is projected with them.
    #[module(skip)]
    projects_last: bool,
    /// Whether all layers have the first one's encodings.
    #[module(skip)]
    shares_position: bool,
    #[module(skip)]
    layers: usize,
    #[module(skip)]
    dropout: f32,
}

/// What a stack keeps between calls: the [`State`] of each block.
pub(crate) enum States<'a> {
    None,
    Caches(&'a mut [BlockCache]),
    Together(&'a mut [Sequence<'a>]),
    Segments(&'a mut [Option<Tensor<3>>], usize),
    /// What attentions are called with, the first position at the given one.
    Inputs(&'a mut [Vec<Input>], usize),
}

impl Stack {
    pub(crate) fn new(
        settings: &ModelSettings,
        site: Site,
        layers: usize,
        device: &Device,
    ) -> Result<Self, Error> {
        let crosses = site == Site::Decoder && settings.family == Family::EncoderDecoder;
        let projects_last = settings.embedding_width.is_some() && settings.project_positions;
        let channels = if projects_last { settings.embedding_channels() } else { settings.width };
        let mut blocks = Vec::with_capacity(layers);
        let mut position = Vec::new();
        for layer in 0..if settings.share_layers { 1 } else { layers } {
            let mut own = settings.attention(site, layer)?;
            // What is added to embeddings is added once, before the first block.
            let (added, others): (Vec<_>, Vec<_>) =
                own.position.drain(..).partition(|position| position.embeds());
            own.position = others;
            if layer == 0 {
                let sizes = Heads { width: channels, ..own.sizes()? };
                for encoding in &added {
                    encoding.check(&sizes)?;
                    position.push(encoding.build(&sizes, device)?);
                }
            }
            let cross = match crosses {
                false => None,
                true => Some(settings.attention(Site::Cross, layer)?),
            };
            let mut block = Block::new(settings, &own, cross.as_ref(), device)?;
            if layer == 0 && !settings.first_norm {
                block.attention_norm = None;
            }
            if layer > 0 && settings.share_positions {
                block.attention.position.clear();
            }
            blocks.push(block);
        }
        let norm = (settings.norm_place != NormPlace::Post).then(|| Norm::new(settings, device));
        let embedding_norm =
            settings.embedding_norm.then(|| Norm::of_width(settings, channels, device));
        let embedding_projection = settings.embedding_width.map(|from| {
            LinearConfig::new(from, settings.width).with_bias(settings.bias).init(device)
        });
        let dropout = settings.dropout;
        Ok(Self {
            position,
            embedding_norm,
            embedding_projection,
            blocks,
            norm,
            projects_last,
            shares_position: settings.share_positions,
            layers,
            dropout,
        })
    }

    /// Layers, whether each has a block of its own or not.
    pub fn depth(&self) -> usize {
        self.layers
    }

    /// The block of a layer; all layers share one where it is the only one.
    pub fn block(&self, layer: usize) -> Option<&Block> {
        (layer < self.layers).then(|| &self.blocks[layer % self.blocks.len()])
    }

    /// From embeddings, the first of which stands at `first`, to what the first block reads.
    fn embed(
        &self,
        mut x: Tensor<3>,
        first: usize,
        pass: &mut Pass,
        states: &States,
    ) -> Result<Tensor<3>, Error> {
        let [early, late] = self.projections();
        x = projected(x, early, pass.way);
        for position in &self.position {
            x = match states {
                States::Together(sequences) => {
                    Sequence::each(sequences, &x, |x, first| position.embed(x, first))?
                }
                _ => position.embed(x, first)?,
            };
        }
        if let Some(norm) = &self.embedding_norm {
            x = norm.forward(x, pass.way.path);
        }
        x = drop(x, self.dropout, pass.seeds.next());
        Ok(projected(x, late, pass.way))
    }

    /// The projection of the embeddings, if it stands before what is added to them, and if it stands after that.
    fn projections(&self) -> [Option<&Linear>; 2] {
        let projection = self.embedding_projection.as_ref();
        if self.projects_last { [None, projection] } else { [projection, None] }
    }

    /// What encodings that are added to embeddings contribute to what the first attention reads, given the embeddings, the
    /// first of which stands at `first`: the rest of it is the tokens'.
    pub fn place_share(&self, embeddings: Tensor<3>, first: usize) -> Result<Tensor<3>, Error> {
        let path = Path::Auto;
        let [early, late] = self.projections();
        let mut whole = projected(embeddings, early, path.into());
        let mut part = Tensor::zeros(whole.dims(), &whole.device());
        for position in &self.position {
            part = position.embed(part, first)?;
        }
        whole = whole + part.clone();
        if let Some(norm) = &self.embedding_norm {
            part = norm.share(part, whole.clone());
            whole = norm.forward(whole, path);
        }
        if let Some(late) = late {
            part = part.matmul(late.weight.val().unsqueeze::<3>());
            whole = late.project(whole, path);
        }
        Ok(match self.blocks[0].norm_before() {
            None => part,
            Some(norm) => norm.share(part, whole),
        })
    }

    /// `[batch, length, width]` from embeddings, the first of which stands at `first`; with int8 copies of the blocks' linear
    /// layers, if there are any.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        first: usize,
        pass: &mut Pass,
        mut states: States,
        int8: Option<&[QuantizedBlock]>,
    ) -> Result<Tensor<3>, Error> {
        let mut x = self.embed(x, first, pass, &states)?;
        pass.position =
            self.shares_position.then(|| self.blocks[0].attention.position.clone().into());
        for (layer, block) in (0..self.layers).filter_map(|layer| Some((layer, self.block(layer)?)))
        {
            let state = match &mut states {
                States::None => State::None,
                States::Caches(caches) => State::Cache(&mut caches[layer]),
                States::Together(sequences) => State::Together(Together::new(sequences, layer)),
                States::Segments(pasts, length) => State::Segment(&mut pasts[layer], *length),
                States::Inputs(inputs, first) => State::Inputs(&mut inputs[layer], *first),
            };
            let int8 = int8.filter(|_| pass.way.path != Path::Composed);
            x = block.forward(x, pass, state, int8.map(|int8| &int8[layer % int8.len()]))?;
        }
        Ok(match &self.norm {
            None => x,
            Some(norm) => norm.forward(x, pass.way.path),
        })
    }
}

fn projected(x: Tensor<3>, projection: Option<&Linear>, way: Way) -> Tensor<3> {
    match projection {
        None => x,
        Some(projection) => projection.project(x, way),
    }
}
