//! The encoder of a recurrent model.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{Path, projected::Project};

use super::{RecurrentLayer, layer::Run};
use crate::{
    ModelSettings, Recurrent,
    dropout::{Seeds, drop},
};

/// Layers that read a sequence from the left, or both ways.
#[derive(Module, Debug)]
pub struct RecurrentEncoder {
    /// In the order they are computed in.
    pub layers: Vec<RecurrentEncoderLayer>,
    #[module(skip)]
    dropout: f32,
}

/// A layer of it.
#[derive(Module, Debug)]
pub struct RecurrentEncoderLayer {
    /// From the left.
    pub forward: RecurrentLayer,
    /// From the right, if it reads both ways: each direction then has half of the channels.
    pub backward: Option<RecurrentLayer>,
}

impl RecurrentEncoder {
    pub(super) fn new(kind: Recurrent, settings: &ModelSettings, device: &Device) -> Self {
        let cell = kind.cell();
        let width = if settings.bidirectional { settings.width / 2 } else { settings.width };
        let layer = |layer: usize| {
            let from = if layer == 0 { settings.embedding_channels() } else { settings.width };
            let direction = |back| RecurrentLayer::new(cell, from, width, back, device);
            let backward = settings.bidirectional.then(|| direction(true));
            RecurrentEncoderLayer { forward: direction(false), backward }
        };
        let layers = (0..settings.recurrent_encoder_layers()).map(layer).collect();
        Self { layers, dropout: settings.dropout }
    }

    /// From embeddings to the states of the last layer, `[batch, length, width]`, and each layer's last state,
    /// `[batch, states, width]`.
    pub(super) fn forward(
        &self,
        mut x: Tensor<3>,
        lengths: Option<&[usize]>,
        seeds: &mut Seeds,
        path: Path,
    ) -> (Tensor<3>, Vec<Tensor<3>>) {
        let mut last = Vec::with_capacity(self.layers.len());
        for RecurrentEncoderLayer { forward, backward } in &self.layers {
            x = drop(x, self.dropout, seeds.next());
            let run = |layer: &RecurrentLayer| -> Run {
                layer.run(layer.input.project(x.clone(), path), None, lengths, path)
            };
            let Run { out, last: state } = match backward {
                None => run(forward),
                Some(backward) => {
                    let (right, left) = (run(forward), run(backward));
                    Run {
                        out: Tensor::cat(vec![right.out, left.out], 2),
                        last: Tensor::cat(vec![right.last, left.last], 2),
                    }
                }
            };
            last.push(state);
            x = out;
        }
        (x, last)
    }
}
