//! Int8 copies of a decoder's linear layers: the same blocks, run with a quarter of the memory to read.

use burn::nn::Linear;
use whatwhere_attention::{
    DecodeLinears,
    bridge::Operand,
    projected::{linear, operands},
};
use whatwhere_kernels::layer::QuantizedLinear;

use crate::{Block, FeedForward, Model, feed_forward::FeedForwardLinears};

/// A decoder's linear layers with int8 weights. Everything else is the model's.
#[derive(Debug)]
pub(crate) struct QuantizedDecoder {
    pub(crate) blocks: Vec<QuantizedBlock>,
    /// To the vocabulary.
    pub(crate) output: QuantizedLinear,
}

/// The linear layers of one block.
#[derive(Debug)]
pub(crate) struct QuantizedBlock {
    /// Query, key, value and output.
    own: [QuantizedLinear; 4],
    /// Query and output; keys and values of the encoder's states are made once.
    cross: Option<[QuantizedLinear; 2]>,
    up: QuantizedLinear,
    gate: Option<QuantizedLinear>,
    down: QuantizedLinear,
}

impl QuantizedDecoder {
    /// Nothing on another backend than the CPU's, or without a decoder.
    pub(crate) fn new(model: &Model) -> Option<Self> {
        let decoder = model.decoder.as_ref()?;
        let output = match model.output.linear() {
            Some(output) => quantized(&output)?,
            None => {
                let table = Operand::new(model.embedding.weight.val())?;
                QuantizedLinear::logits(table.values(), model.settings().output_channels()).ok()?
            }
        };
        let blocks = decoder.blocks.iter().map(QuantizedBlock::new).collect::<Option<_>>()?;
        Some(Self { blocks, output })
    }
}

impl QuantizedBlock {
    fn new(block: &Block) -> Option<Self> {
        let own = &block.attention;
        let cross = match &block.cross {
            None => None,
            Some(cross) => all([&cross.attention.query, &cross.attention.output]),
        };
        let FeedForward { up, gate, down, .. } = &block.feed_forward;
        Some(Self {
            own: all([&own.query, &own.key, &own.value, &own.output])?,
            cross,
            up: quantized(up)?,
            gate: gate.as_ref().and_then(quantized),
            down: quantized(down)?,
        })
    }

    pub(crate) fn own(&self) -> DecodeLinears<'_, QuantizedLinear> {
        let [query, key, value, output] = &self.own;
        DecodeLinears { query, key_value: Some([key, value]), output }
    }

    /// # Panics
    /// If the block has no attention to an encoder.
    pub(crate) fn cross(&self) -> DecodeLinears<'_, QuantizedLinear> {
        let [query, output] = self.cross.as_ref().expect("as the block it was made of");
        DecodeLinears { query, key_value: None, output }
    }

    pub(crate) fn feed_forward(&self) -> FeedForwardLinears<'_, QuantizedLinear> {
        FeedForwardLinears { up: &self.up, gate: self.gate.as_ref(), down: &self.down }
    }
}

fn all<const N: usize>(linears: [&Linear; N]) -> Option<[QuantizedLinear; N]> {
    let made: Option<Vec<QuantizedLinear>> = linears.into_iter().map(quantized).collect();
    made?.try_into().ok()
}

fn quantized(layer: &Linear) -> Option<QuantizedLinear> {
    let [from, _] = layer.weight.val().dims();
    let [weight, bias] = operands(layer);
    let (weight, bias) = (weight?, bias?);
    QuantizedLinear::new(&linear(weight.values(), bias.values(), from)).ok()
}
