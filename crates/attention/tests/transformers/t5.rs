//! T5: encoder and decoder, scores without a scale, one table of buckets for all layers of a stack, none across.

use burn::{
    module::Param,
    tensor::{Tensor, activation::relu},
};
use whatwhere_attention::{
    Attention, AttentionSettings, Input, Pattern, Position, pattern, position,
    position::PositionModule, score::Dot,
};

use super::{Model, meets, settings};

/// Scores without a scale reach a hundred, so that softmax is sharp and rounding shows: the same sums in f64 differ from
/// the stored logits by 5e-4.
const SHARP: f32 = 2e-3;

fn attention(model: &Model, name: &str, position: Option<Position>, pattern: Pattern) -> Attention {
    let settings = AttentionSettings {
        score: Dot::default().into(),
        pattern,
        bias: false.into(),
        ..settings(&position.unwrap_or(position::NoPosition::default().into()))
    };
    let names = ["q", "k", "v", "o"].map(|part| format!("{name}.{part}"));
    let mut layer = model.attention(&settings, names);
    if let PositionModule::T5(buckets) = &mut layer.position[0] {
        let stack = name.split('.').next().unwrap();
        let table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight";
        let table = model.file.floats::<2>(&format!("{stack}.{table}"));
        buckets.table = Param::from_tensor(table.transpose());
    }
    layer
}

/// A stack's hidden states after its last norm.
fn stack(
    model: &Model,
    stack: &str,
    ids: &str,
    layer: impl Fn(usize, &str, Tensor<3>) -> Tensor<3>,
) -> Tensor<3> {
    let mut x = model.embed(ids, "shared.weight");
    let parts = if stack == "encoder" { 2 } else { 3 };
    for block in 0..2 {
        for part in 0..parts {
            let name = format!("{stack}.block.{block}.layer.{part}");
            let normed = model.rms_norm(x.clone(), &format!("{name}.layer_norm"));
            x = x + if part + 1 < parts {
                layer(part, &name, normed)
            } else {
                let hidden = relu(model.linear(normed, &format!("{name}.DenseReluDense.wi")));
                model.linear(hidden, &format!("{name}.DenseReluDense.wo"))
            };
        }
    }
    model.rms_norm(x, &format!("{stack}.final_layer_norm"))
}

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let full = || Pattern::from(pattern::Full::default());
    let path = model.path;
    let both_ways = match position {
        Position::T5(t5) => position::T5 { bidirectional: true, ..*t5 }.into(),
        other => other.clone(),
    };
    let memory = stack(model, "encoder", "input_ids", |_, name, x| {
        let name = format!("{name}.SelfAttention");
        let layer = attention(model, &name, Some(both_ways.clone()), full());
        layer.forward(Input { path, ..Input::new(x) }).unwrap()
    });
    let x = stack(model, "decoder", "decoder_input_ids", |part, name, x| {
        if part == 0 {
            let (name, causal) = (format!("{name}.SelfAttention"), pattern::Causal::default());
            let layer = attention(model, &name, Some(position.clone()), causal.into());
            return layer.forward(Input { path, ..Input::new(x) }).unwrap();
        }
        let layer = attention(model, &format!("{name}.EncDecAttention"), None, full());
        layer.forward(Input { memory: Some(memory.clone()), path, ..Input::new(x) }).unwrap()
    });
    model.tied(x * 64f32.powf(-0.5), "shared.weight")
}

#[test]
fn logits_of_t5_are_met() {
    meets("t5", position::T5::default(), SHARP, logits);
}
