//! Marian: encoder and decoder with sinusoids, all sines first; norms after the residual.

use burn::tensor::{Tensor, activation::gelu};
use whatwhere_attention::{
    AttentionSettings, Input, Pattern, Position, pattern,
    position::{Sinusoidal, SinusoidalLayout},
};

use super::{Model, TOLERANCE, add_places, meets, settings};

const TABLE: &str = "model.shared.weight";

/// One sublayer with its residual and norm; `memory` for one that looks across.
fn sublayer(
    model: &Model,
    name: &str,
    pattern: Pattern,
    x: Tensor<3>,
    memory: Option<&Tensor<3>>,
) -> Tensor<3> {
    // Positions have been added to embeddings; the layer itself has none.
    let settings = AttentionSettings {
        width: 64,
        heads: 4,
        bias: true.into(),
        position: vec![],
        pattern,
        ..Default::default()
    };
    let layer = model
        .attention(&settings, ["q", "k", "v", "out"].map(|part| format!("{name}.{part}_proj")));
    let input = Input { memory: memory.cloned(), path: model.path, ..Input::new(x.clone()) };
    model.layer_norm(x + layer.forward(input).unwrap(), &format!("{name}_layer_norm"), 1e-5)
}

fn feed_forward(model: &Model, block: &str, x: Tensor<3>) -> Tensor<3> {
    let hidden = gelu(model.linear(x.clone(), &format!("{block}.fc1")));
    let out = model.linear(hidden, &format!("{block}.fc2"));
    model.layer_norm(x + out, &format!("{block}.final_layer_norm"), 1e-5)
}

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let full = || Pattern::from(pattern::Full::default());
    let embed = |ids| {
        let x = model.embed(ids, TABLE);
        let positions = add_places(x.zeros_like(), &settings(position));
        // Whoever wrote the fixture scaled every weight by 6, and with them the sinusoids, which the file leaves out.
        x + positions * 6.0
    };
    let mut memory = embed("input_ids");
    for block in ["model.encoder.layers.0", "model.encoder.layers.1"] {
        memory = sublayer(model, &format!("{block}.self_attn"), full(), memory, None);
        memory = feed_forward(model, block, memory);
    }
    let mut x = embed("decoder_input_ids");
    for block in ["model.decoder.layers.0", "model.decoder.layers.1"] {
        let causal = pattern::Causal::default().into();
        x = sublayer(model, &format!("{block}.self_attn"), causal, x, None);
        x = sublayer(model, &format!("{block}.encoder_attn"), full(), x, Some(&memory));
        x = feed_forward(model, block, x);
    }
    model.tied(x, TABLE) + model.file.floats::<2>("final_logits_bias").unsqueeze()
}

#[test]
fn logits_of_marian_are_met() {
    let layout = SinusoidalLayout::Concatenated;
    meets("marian_sinusoidal", Sinusoidal { layout, ..Default::default() }, TOLERANCE, logits);
}
