//! Llama: grouped heads, rotary in halves, and YaRN beyond the trained length.

use burn::tensor::{Tensor, activation::silu};
use whatwhere_attention::{AttentionSettings, Input, Position, Scaling, position::Rotary};

use super::{Model, TOLERANCE, meets, settings};

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let settings = AttentionSettings { kv_heads: Some(2), ..settings(position) };
    let mut x = model.embed("input_ids", "model.embed_tokens.weight");
    for block in ["model.layers.0", "model.layers.1"] {
        let names = ["q", "k", "v", "o"].map(|name| format!("{block}.self_attn.{name}_proj"));
        let layer = model.attention(&settings, names);
        let normed = model.rms_norm(x.clone(), &format!("{block}.input_layernorm"));
        x = x + layer.forward(Input { path: model.path, ..Input::new(normed) }).unwrap();
        let hidden = model.rms_norm(x.clone(), &format!("{block}.post_attention_layernorm"));
        let gate = silu(model.linear(hidden.clone(), &format!("{block}.mlp.gate_proj")));
        let up = model.linear(hidden, &format!("{block}.mlp.up_proj"));
        x = x + model.linear(gate * up, &format!("{block}.mlp.down_proj"));
    }
    model.linear(model.rms_norm(x, "model.norm"), "lm_head")
}

#[test]
fn logits_of_llama_are_met() {
    meets("llama_gqa", Rotary::default(), TOLERANCE, logits);
}

#[test]
fn logits_of_llama_with_yarn_are_met() {
    let scaling = Scaling::yarn(4.0, 16);
    meets("llama_yarn", Rotary { scaling, ..Default::default() }, TOLERANCE, logits);
}
