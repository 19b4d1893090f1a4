//! A stack: places added to embeddings, blocks, and a last norm.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{
    Input,
    position::{Encode, PositionLayer},
};

use crate::{
    Block, Error, Family, ModelSettings, Norm, NormPlace,
    block::{BlockCache, Pass, Recall},
    dropout::drop,
    settings::Site,
};

/// The encoder or the decoder.
#[derive(Module, Debug)]
pub struct Stack {
    /// Encodings that are added to embeddings.
    pub position: Vec<PositionLayer>,
    /// In the order of the stream.
    pub blocks: Vec<Block>,
    /// After the last block, where norms stand before sublayers.
    pub norm: Option<Norm>,
    #[module(skip)]
    dropout: f32,
}

/// What a stack remembers between calls.
pub(crate) enum Recalls<'a> {
    Nothing,
    Caches(&'a mut [BlockCache]),
    Segments(&'a mut [Option<Tensor<3>>], usize),
    Watch(&'a mut [Vec<Input>]),
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
        mut recalls: Recalls,
    ) -> Result<Tensor<3>, Error> {
        for position in &self.position {
            x = position.embed(x, first)?;
        }
        x = drop(x, self.dropout, pass.seeds.next());
        for (layer, block) in self.blocks.iter().enumerate() {
            let recall = match &mut recalls {
                Recalls::Nothing => Recall::Nothing,
                Recalls::Caches(caches) => Recall::Cache(&mut caches[layer]),
                Recalls::Segments(pasts, length) => Recall::Segment(&mut pasts[layer], *length),
                Recalls::Watch(inputs) => Recall::Watch(&mut inputs[layer]),
            };
            x = block.forward(x, pass, recall)?;
        }
        Ok(match &self.norm {
            None => x,
            Some(norm) => norm.forward(x, pass.path),
        })
    }
}
