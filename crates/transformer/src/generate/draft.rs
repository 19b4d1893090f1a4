//! Guesses of what a model will write: the model itself with weights of 8 bits, which reads a quarter of the memory for
//! each token. The model then checks several guesses in one pass over its own weights.

use burn::{
    nn::Linear,
    tensor::{Int, Tensor, TensorData},
};
use whatwhere_attention::{
    Error, Input, Path,
    bridge::{Operand, untracked},
    position::Encode,
    projected::{dense, operands},
};
use whatwhere_kernels::{self as kernels, Bend, Gate, Light, Pooled, add_to};

use crate::{
    Block, Cross, FeedForward, Memory, Model, Norm, NormPlace, Writing, block::BlockCache,
    norm::EPSILON,
};

/// Where a draft can be made at all.
const CPU: &str = "the model is on the CPU backend";

/// A model's projections with weights of 8 bits. Everything else is the model's.
#[derive(Debug)]
pub(super) struct Draft {
    blocks: Vec<LightBlock>,
    output: Light,
}

#[derive(Debug)]
struct LightBlock {
    own: LightAttention<3>,
    cross: Option<LightAttention<1>>,
    feed_forward: LightFeedForward,
}

/// The projections that go in, and the one that goes out.
#[derive(Debug)]
struct LightAttention<const N: usize> {
    into: [Light; N],
    output: Light,
}

#[derive(Debug)]
struct LightFeedForward {
    up: Light,
    gate: Option<Light>,
    down: Light,
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
        let blocks = decoder.blocks.iter().map(LightBlock::new).collect::<Option<_>>()?;
        let output = match &model.output {
            Some(output) => light(output)?,
            None => Light::scores(Operand::new(table)?.values(), model.settings().width).ok()?,
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
        for ((light, block), cache) in self.blocks.iter().zip(&decoder.blocks).zip(caches) {
            x = light.forward(block, x, memory.as_ref(), cache)?;
        }
        *length += 1;
        if let Some(norm) = &decoder.norm {
            x = normed(norm, &x)?;
        }
        Ok(projected(&self.output, &x)?.to_vec())
    }
}

impl LightBlock {
    fn new(block: &Block) -> Option<Self> {
        let own = &block.attention;
        let cross = match &block.cross {
            None => None,
            Some(Cross { attention, .. }) => Some(LightAttention {
                into: [light(&attention.query)?],
                output: light(&attention.output)?,
            }),
        };
        let FeedForward { up, gate, down, .. } = &block.feed_forward;
        Some(Self {
            own: LightAttention {
                into: [light(&own.query)?, light(&own.key)?, light(&own.value)?],
                output: light(&own.output)?,
            },
            cross,
            feed_forward: LightFeedForward {
                up: light(up)?,
                gate: match gate {
                    None => None,
                    Some(gate) => Some(light(gate)?),
                },
                down: light(down)?,
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
            (Some(light), Some(cross), Some(memory)) => around(place, &cross.norm, x, |x| {
                let [q] = light.project(x)?;
                let mut input = Input::new(tensor(Pooled::of(x)));
                input.memory = Some(memory.states.clone());
                input.key_lengths = memory.lengths.clone();
                let mixed = cross.attention.decode_between(&input, q, None, &mut cache.cross)?;
                projected(&light.output, &row(mixed))
            })?,
            _ => x,
        };
        around(place, &block.feed_forward_norm, x, |x| {
            self.feed_forward.forward(block.feed_forward.kernel(), x)
        })
    }
}

impl<const N: usize> LightAttention<N> {
    fn project(&self, x: &[f32]) -> Result<[Tensor<3>; N], Error> {
        let mut outs = self.into.each_ref().map(|light| Pooled::any(light.to()));
        let slices = outs.each_mut().map(|out| &mut **out);
        Light::forward_all(self.into.each_ref(), x, slices)?;
        Ok(outs.map(tensor))
    }
}

impl LightFeedForward {
    fn forward(&self, bend: Bend, x: &[f32]) -> Result<Pooled, Error> {
        let Self { up, gate, down } = self;
        let (mut bent, mut raised) = (Pooled::any(up.to()), Pooled::any(up.to()));
        match gate {
            None => {
                up.forward(x, &mut raised)?;
                bend.forward(&raised, &mut bent)?;
            }
            Some(gate) => {
                let mut gated = Pooled::any(gate.to());
                Light::forward_all([up, gate], x, [&mut raised, &mut gated])?;
                Gate.forward(&gated, &raised, &mut bent)?;
            }
        }
        projected(down, &bent)
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
    let call = kernels::Norm { is_centred, epsilon: EPSILON as f32, gain, bias };
    let mut out = Pooled::any(x.len());
    call.forward(x, &mut out, &mut [0.0; 2])?;
    Ok(out)
}

fn projected(light: &Light, x: &[f32]) -> Result<Pooled, Error> {
    let mut out = Pooled::any(light.to());
    light.forward(x, &mut out)?;
    Ok(out)
}

fn light(linear: &Linear) -> Option<Light> {
    let [from, _] = linear.weight.val().dims();
    let [weight, bias] = operands(linear);
    let (weight, bias) = (weight?, bias?);
    Light::new(&dense(weight.values(), bias.values(), from)).ok()
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
