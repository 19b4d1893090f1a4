//! The draft of speculative decoding: the model itself with int8 weights, which reads a quarter of the memory for each
//! token. The model then checks several guesses in one pass over its own weights.

use burn::{
    nn::Linear,
    tensor::{Int, Tensor, TensorData},
};
use whatwhere_attention::{
    Error, Input, Path,
    bridge::{Operand, untracked},
    position::Encode,
    projected::{linear, operands},
};
use whatwhere_kernels::{
    Pooled,
    layer::{self, Activation, QuantizedLinear, SwiGlu, add_to},
};

use crate::{
    Block, Cross, FeedForward, Memory, Model, Norm, NormPlace, Writing, block::BlockCache,
    norm::EPSILON,
};

/// Where a draft can be made at all.
const CPU: &str = "the model is on the CPU backend";

/// A model's projections with int8 weights. Everything else is the model's.
#[derive(Debug)]
pub(super) struct Draft {
    blocks: Vec<QuantizedBlock>,
    output: QuantizedLinear,
}

#[derive(Debug)]
struct QuantizedBlock {
    own: QuantizedAttention<3>,
    cross: Option<QuantizedAttention<1>>,
    feed_forward: QuantizedFeedForward,
}

/// The projections that go in, and the one that goes out.
#[derive(Debug)]
struct QuantizedAttention<const N: usize> {
    into: [QuantizedLinear; N],
    output: QuantizedLinear,
}

#[derive(Debug)]
struct QuantizedFeedForward {
    up: QuantizedLinear,
    gate: Option<QuantizedLinear>,
    down: QuantizedLinear,
}

impl Draft {
    /// Nothing for a model that cannot take back what it has read, that learns, or that lives on another backend.
    pub(super) fn new(model: &Model) -> Option<Self> {
        let decoder = model.decoder.as_ref()?;
        let goes_back = |block: &Block| block.attention.settings().can_take_back();
        let table = model.embedding.weight.val();
        if table.is_autodiff() || !decoder.blocks.iter().all(goes_back) {
            return None;
        }
        let blocks = decoder.blocks.iter().map(QuantizedBlock::new).collect::<Option<_>>()?;
        let output = match &model.output {
            Some(output) => quantized(output)?,
            None => QuantizedLinear::logits(Operand::new(table)?.values(), model.settings().width)
                .ok()?,
        };
        Some(Self { blocks, output })
    }

    /// Scores after a token that follows those already read by the same model.
    pub(super) fn next(
        &self,
        model: &Model,
        token: u32,
        writing: &mut Writing,
    ) -> Result<Vec<f32>, Error> {
        let decoder = model.decoder.as_ref().expect("a draft is made of a decoder");
        let device = model.embedding.weight.val().device();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(vec![token as i32], [1, 1]), &device);
        let mut x = model.embed(&ids, Path::Auto);
        for position in &decoder.position {
            x = position.embed(x, writing.length)?;
        }
        let mut x = row(x);
        let Writing { caches, memory, length } = writing;
        for ((quantized, block), cache) in self.blocks.iter().zip(&decoder.blocks).zip(caches) {
            x = quantized.forward(block, x, memory.as_ref(), cache)?;
        }
        *length += 1;
        if let Some(norm) = &decoder.norm {
            x = normed(norm, &x)?;
        }
        Ok(projected(&self.output, &x)?.to_vec())
    }
}

impl QuantizedBlock {
    fn new(block: &Block) -> Option<Self> {
        let own = &block.attention;
        let cross = match &block.cross {
            None => None,
            Some(Cross { attention, .. }) => Some(QuantizedAttention {
                into: [quantized(&attention.query)?],
                output: quantized(&attention.output)?,
            }),
        };
        let FeedForward { up, gate, down, .. } = &block.feed_forward;
        Some(Self {
            own: QuantizedAttention {
                into: [quantized(&own.query)?, quantized(&own.key)?, quantized(&own.value)?],
                output: quantized(&own.output)?,
            },
            cross,
            feed_forward: QuantizedFeedForward {
                up: quantized(up)?,
                gate: match gate {
                    None => None,
                    Some(gate) => Some(quantized(gate)?),
                },
                down: quantized(down)?,
            },
        })
    }

    fn forward(
        &self,
        block: &Block,
        x: Pooled,
        memory: Option<&Memory>,
        cache: &mut BlockCache,
    ) -> Result<Pooled, Error> {
        let place = block.place();
        let x = around(place, &block.attention_norm, x, |x| {
            let [q, k, v] = self.own.project(x)?;
            let input = Input::new(tensor(Pooled::of(x)));
            let mixed = block.attention.decode_between(&input, q, Some([k, v]), &mut cache.own)?;
            projected(&self.own.output, &row(mixed))
        })?;
        let x = match (&self.cross, &block.cross, memory) {
            (Some(quantized), Some(cross), Some(memory)) => around(place, &cross.norm, x, |x| {
                let [q] = quantized.project(x)?;
                let mut input = Input::new(tensor(Pooled::of(x)));
                input.memory = Some(memory.states.clone());
                input.key_lengths = memory.lengths.clone();
                let mixed = cross.attention.decode_between(&input, q, None, &mut cache.cross)?;
                projected(&quantized.output, &row(mixed))
            })?,
            _ => x,
        };
        around(place, &block.feed_forward_norm, x, |x| {
            self.feed_forward.forward(block.feed_forward.kernel(), x)
        })
    }
}

impl<const N: usize> QuantizedAttention<N> {
    fn project(&self, x: &[f32]) -> Result<[Tensor<3>; N], Error> {
        let mut outs = self.into.each_ref().map(|quantized| Pooled::uncleared(quantized.to()));
        let slices = outs.each_mut().map(|out| &mut **out);
        QuantizedLinear::forward_all(self.into.each_ref(), x, slices)?;
        Ok(outs.map(tensor))
    }
}

impl QuantizedFeedForward {
    fn forward(&self, activation: Activation, x: &[f32]) -> Result<Pooled, Error> {
        let Self { up, gate, down } = self;
        let (mut activated, mut raised) = (Pooled::uncleared(up.to()), Pooled::uncleared(up.to()));
        match gate {
            None => {
                up.forward(x, &mut raised)?;
                activation.forward(&raised, &mut activated)?;
            }
            Some(gate) => {
                let mut gated = Pooled::uncleared(gate.to());
                QuantizedLinear::forward_all([up, gate], x, [&mut raised, &mut gated])?;
                SwiGlu.forward(&gated, &raised, &mut activated)?;
            }
        }
        projected(down, &activated)
    }
}

/// A sublayer with its norm and the stream past it.
fn around(
    place: NormPlace,
    norm: &Norm,
    x: Pooled,
    sublayer: impl FnOnce(&[f32]) -> Result<Pooled, Error>,
) -> Result<Pooled, Error> {
    let mut sum = match place {
        NormPlace::Pre => sublayer(&normed(norm, &x)?)?,
        NormPlace::Post => sublayer(&x)?,
    };
    add_to(&mut sum, &x)?;
    match place {
        NormPlace::Pre => Ok(sum),
        NormPlace::Post => normed(norm, &sum),
    }
}

/// The norm of one row.
fn normed(norm: &Norm, x: &[f32]) -> Result<Pooled, Error> {
    let ([gain, bias], is_centred) = norm.operands().expect(CPU);
    let (gain, bias) = (gain.values(), bias.values());
    let bias = (!bias.is_empty()).then_some(bias);
    let call = layer::Norm { is_centred, epsilon: EPSILON as f32, gain, bias };
    let mut out = Pooled::uncleared(x.len());
    call.forward(x, &mut out, &mut [0.0; 2])?;
    Ok(out)
}

fn projected(quantized: &QuantizedLinear, x: &[f32]) -> Result<Pooled, Error> {
    let mut out = Pooled::uncleared(quantized.to());
    quantized.forward(x, &mut out)?;
    Ok(out)
}

fn quantized(layer: &Linear) -> Option<QuantizedLinear> {
    let [from, _] = layer.weight.val().dims();
    let [weight, bias] = operands(layer);
    let (weight, bias) = (weight?, bias?);
    QuantizedLinear::new(&linear(weight.values(), bias.values(), from)).ok()
}

/// A row as a tensor.
fn tensor(row: Pooled) -> Tensor<3> {
    let width = row.len();
    untracked(row, [1, 1, width])
}

/// A tensor of one row.
fn row(x: Tensor<3>) -> Pooled {
    Pooled::of(Operand::new(x).expect(CPU).values())
}
