//! A stack: places added to embeddings, blocks, and a last norm.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{
    Input,
    position::{PositionLayer, PositionModule},
};

use crate::{
    Block, Error, Family, ModelSettings, Norm, NormPlace,
    block::{BlockCache, Pass, State},
    dropout::drop,
    quantized::QuantizedBlock,
    settings::Site,
};

/// The encoder or the decoder.
#[derive(Module, Debug)]
pub struct Stack {
    /// Encodings that are added to embeddings.
    pub position: Vec<PositionModule>,
    /// In the order of the stream.
    pub blocks: Vec<Block>,
    /// After the last block, where norms stand before sublayers.
    pub norm: Option<Norm>,
    #[module(skip)]
    dropout: f32,
}

/// What a stack keeps between calls: the [`State`] of each block.
pub(crate) enum States<'a> {
    None,
    Caches(&'a mut [BlockCache]),
    Drafts(&'a mut [BlockCache], &'a [QuantizedBlock]),
    Segments(&'a mut [Option<Tensor<3>>], usize),
    Inputs(&'a mut [Vec<Input>]),
}

impl Stack {
    pub(crate) fn new(
        settings: &ModelSettings,
        site: Site,
        layers: usize,
        device: &Device,
    ) -> Result<Self, Error> {
        let crosses = site == Site::Decoder && settings.family == Family::EncoderDecoder;
        let mut blocks = Vec::with_capacity(layers);
        let mut position = Vec::new();
        for layer in 0..layers {
            let mut own = settings.attention(site, layer)?;
            // What is added to embeddings is added once, before the first block.
            let (added, others): (Vec<_>, Vec<_>) =
                own.position.drain(..).partition(|position| position.embeds());
            own.position = others;
            if layer == 0 {
                let sizes = own.sizes()?;
                for encoding in &added {
                    position.push(encoding.build(&sizes, device)?);
                }
            }
            let cross = match crosses {
                false => None,
                true => Some(settings.attention(Site::Cross, layer)?),
            };
            blocks.push(Block::new(settings, &own, cross.as_ref(), device)?);
        }
        let norm = (settings.norm_place == NormPlace::Pre).then(|| Norm::new(settings, device));
        Ok(Self { position, blocks, norm, dropout: settings.dropout })
    }

    /// `[batch, length, width]` from embeddings, the first of which stands at `first`.
    pub(crate) fn forward(
        &self,
        mut x: Tensor<3>,
        first: usize,
        pass: &mut Pass,
        mut states: States,
    ) -> Result<Tensor<3>, Error> {
        for position in &self.position {
            x = position.embed(x, first)?;
        }
        x = drop(x, self.dropout, pass.seeds.next());
        for (layer, block) in self.blocks.iter().enumerate() {
            let state = match &mut states {
                States::None => State::None,
                States::Caches(caches) => State::Cache(&mut caches[layer]),
                States::Drafts(caches, int8) => State::Draft(&mut caches[layer], &int8[layer]),
                States::Segments(pasts, length) => State::Segment(&mut pasts[layer], *length),
                States::Inputs(inputs) => State::Inputs(&mut inputs[layer]),
            };
            x = block.forward(x, pass, state)?;
        }
        Ok(match &self.norm {
            None => x,
            Some(norm) => norm.forward(x, pass.path),
        })
    }
}
