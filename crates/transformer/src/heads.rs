//! Heads by where they stand, and a model without some of them.

use burn::tensor::Tensor;

use crate::{Error, Model, Site};

/// Where a head stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// In which stack, or between them.
    pub site: Site,
    /// From 0.
    pub layer: usize,
    /// From 0.
    pub head: usize,
}

impl Model {
    /// Every head, encoder first, in the order they are computed in; those of layers that share their weights once.
    pub fn heads(&self) -> Vec<Head> {
        let mut heads = Vec::new();
        // Of a recurrent model with attention these are the only ones.
        let cross = self.recurrent.as_ref().and_then(|recurrent| recurrent.attention());
        // Behind heads without a projection none can be left out.
        let cross = cross.filter(|cross| cross.output.is_some());
        let count = cross.map_or(0, |cross| cross.settings().heads);
        heads.extend((0..count).map(|head| Head { site: Site::Cross, layer: 0, head }));
        let stacks: [(_, &[Site]); 2] =
            [(&self.encoder, &[Site::Encoder]), (&self.decoder, &[Site::Decoder, Site::Cross])];
        for (stack, sites) in stacks {
            let layers = 0..stack.as_ref().map_or(0, |stack| stack.blocks.len());
            for (layer, site) in
                layers.flat_map(|layer| sites.iter().map(move |site| (layer, *site)))
            {
                let count = self.attention(site, layer).map_or(0, |own| own.settings().heads);
                heads.extend((0..count).map(|head| Head { site, layer, head }));
            }
        }
        heads
    }

    /// The same model, some of whose heads add nothing to the residual stream: their rows of the output projection are 0. All
    /// other weights are shared.
    pub fn without_heads(&self, heads: &[Head]) -> Result<Self, Error> {
        // Int8 weights would still have them.
        let mut model = self.clone().with_int8(None);
        for removed in heads {
            let stack = match removed.site {
                Site::Encoder => &mut model.encoder,
                Site::Decoder | Site::Cross => &mut model.decoder,
            };
            let block = stack.as_mut().and_then(|stack| stack.blocks.get_mut(removed.layer));
            let own = block.and_then(|block| match removed.site {
                Site::Cross => block.cross.as_mut().map(|cross| &mut cross.attention),
                Site::Encoder | Site::Decoder => Some(&mut block.attention),
            });
            let is_cross = removed.site == Site::Cross && removed.layer == 0;
            let recurrent = model.recurrent.as_mut().and_then(|own| own.decoder.as_mut());
            let recurrent = recurrent.and_then(|own| own.attention.as_mut()).filter(|_| is_cross);
            let attention = own.or(recurrent);
            let found = attention.filter(|attention| removed.head < attention.settings().heads);
            let Some(attention) = found else {
                let Head { site, layer, head } = removed;
                let reason = format!("no head {head} in layer {layer} of the {}", site.name());
                return Err(Error::Input(reason));
            };
            let count = attention.settings().heads;
            let Some(output) = attention.output.as_mut() else {
                let reason = "nothing is projected behind these heads; one cannot be left out";
                return Err(Error::Input(reason.into()));
            };
            let weight = output.weight.clone(); // [heads · value_dim, width]
            output.weight = weight.map(|weight| {
                let [rows, _] = weight.dims();
                let own = |row: usize| row * count / rows == removed.head;
                let kept: Vec<f32> =
                    (0..rows).map(|row| if own(row) { 0.0 } else { 1.0 }).collect();
                let kept = Tensor::<1>::from_data(kept.as_slice(), &weight.device());
                weight * kept.unsqueeze_dim::<2>(1)
            });
        }
        Ok(model)
    }
}
