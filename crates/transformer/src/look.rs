//! Looking inside: what every attention of a model is called with.

use burn::tensor::Tensor;
use whatwhere_attention::{Attention, Input, Path};

use crate::{Error, Memory, Model, Sequences, Site, dropout::Seeds, stack::States};

/// What one attention of a model was called with.
#[derive(Clone)]
pub struct AttentionInput {
    /// In which stack, or between them.
    pub site: Site,
    /// From 0.
    pub layer: usize,
    /// What it reads.
    pub input: Input,
}

impl Model {
    /// What every attention reads, encoder first, in the order they are computed in. An encoder-decoder needs a source.
    pub fn attention_inputs(
        &self,
        source: Option<&Sequences>,
        tokens: &Sequences,
    ) -> Result<Vec<AttentionInput>, Error> {
        Ok(self.look(source, tokens, 0)?.0)
    }

    /// [`Self::attention_inputs`] of a text whose first token stands at `first`, and the last layer's states,
    /// `[batch, length, width]`. A source always stands at 0.
    pub fn look(
        &self,
        source: Option<&Sequences>,
        tokens: &Sequences,
        first: usize,
    ) -> Result<(Vec<AttentionInput>, Tensor<3>), Error> {
        if let Some(recurrent) = &self.recurrent {
            return self.recurrent_look(recurrent, source, tokens, first);
        }
        let mut seen = Vec::new();
        let (mut memory, mut last) = (None, None);
        if let Some(encoder) = &self.encoder {
            let (read, first) = match (&self.decoder, source) {
                (None, _) => (tokens, first),
                (Some(_), Some(source)) => (source, 0),
                (Some(_), None) => {
                    let reason = "an encoder-decoder needs a source, found none";
                    return Err(Error::Input(reason.into()));
                }
            };
            let mut inputs = vec![Vec::new(); encoder.depth()];
            let (seeds, states) = (&mut Seeds::new(None), States::Inputs(&mut inputs, first));
            let states = self.read(encoder, read, first, seeds, Path::Auto, states)?;
            last = Some(states.clone());
            seen.extend(of_layers(&[Site::Encoder], inputs));
            memory = Some(Memory { states, lengths: read.lengths.clone() });
        }
        if let Some(decoder) = &self.decoder {
            let mut inputs = vec![Vec::new(); decoder.depth()];
            let states = States::Inputs(&mut inputs, first);
            let (seeds, path, int8) = (Seeds::new(None), Path::Auto, self.int8().map(|i| &**i));
            last = Some(self.decode(tokens, memory.as_ref(), first, seeds, path, states, int8)?);
            seen.extend(of_layers(&[Site::Decoder, Site::Cross], inputs));
        }
        Ok((seen, last.expect("a model has a stack")))
    }

    /// The attention of a layer, if there is one at this site.
    pub fn attention(&self, site: Site, layer: usize) -> Option<&Attention> {
        if let Some(recurrent) = &self.recurrent {
            return recurrent.attention().filter(|_| site == Site::Cross && layer == 0);
        }
        let stack = if site == Site::Encoder { &self.encoder } else { &self.decoder };
        let block = stack.as_ref()?.block(layer)?;
        match site {
            Site::Encoder | Site::Decoder => Some(&block.attention),
            Site::Cross => block.cross.as_ref().map(|cross| &cross.attention),
        }
    }
}

/// Names the inputs of a stack's layers, each of which has one at every site or fewer.
fn of_layers(sites: &[Site], inputs: Vec<Vec<Input>>) -> Vec<AttentionInput> {
    let layers = inputs.into_iter().enumerate();
    layers
        .flat_map(|(layer, inputs)| {
            let named = sites.iter().zip(inputs);
            named
                .map(move |(site, input)| AttentionInput { site: *site, layer, input })
                .collect::<Vec<_>>()
        })
        .collect()
}
