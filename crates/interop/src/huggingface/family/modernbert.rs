//! ModernBERT: rotary with two bases, windows with a full layer between, gated GELU, no norm before the first attention.

use super::Family;
use crate::{
    error::Result,
    huggingface::{
        config::Config,
        layers,
        rotary::{Rope, rotary},
        settings::Settings,
    },
    table::Names,
    turn::{Split, Turn},
};

pub(super) const FAMILY: Family =
    Family { types: &["modernbert"], prefix: "model.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let norm_bias = config.flag("norm_bias", false)?;
    config.only("attention_bias", false)?;
    config.only("mlp_bias", false)?;
    config.only("classifier_activation", "gelu")?;
    config.understood(&[
        "cls_token_id",
        "decoder_bias",
        "max_position_embeddings",
        "position_embedding_type",
        "causal_mask",
    ]);
    let every = config.count_if("global_attn_every_n_layers")?.unwrap_or(3).max(1);
    let local = config.count_if("local_attention")?.unwrap_or(128);
    if local < 2 {
        return Err(config.wrong("local_attention", "at least 2"));
    }
    let side = local / 2;
    // Stands in files beside the one that is read.
    let epsilon = config.number("norm_eps", 1e-5)?;
    if config.number_if("layer_norm_eps")?.is_some_and(|other| other != epsilon) {
        return Err(config.wrong("layer_norm_eps", &format!("norm_eps = {epsilon:?}")));
    }
    let (full, local) = (
        Rope {
            base: 160_000.0,
            base_key: "global_rope_theta",
            layer: Some("full_attention"),
            ..Rope::default()
        },
        Rope { base_key: "local_rope_theta", layer: Some("sliding_attention"), ..Rope::default() },
    );
    let (full, local) = (rotary(config, full)?, rotary(config, local)?);
    let slides = layers::sliding(config, |layer| layer % every != 0)?;
    let activation = config.word_if("hidden_activation")?.unwrap_or("gelu".into());
    if config.has("head.dense.weight") && !["gelu", "gelu_python"].contains(&activation.as_str()) {
        let expected = "gelu, as the head has it; a model here has one activation";
        return Err(config.wrong("hidden_activation", expected));
    }
    let settings = Settings::default()
        .set("family", "encoder")
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", config.count("hidden_size")?)
        .set("layers", config.count("num_hidden_layers")?)
        .set("norm", "layer")
        .set_unless("norm_bias", false, norm_bias)
        .set("feed_forward", config.count("intermediate_size")?)
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("embedding_norm", true)
        .set("first_norm", false)
        .set_unless("output_transform", false, config.has("head.dense.weight"))
        .set_unless("output_bias", false, config.has("decoder.bias"))
        .epsilon(epsilon)
        .set("attention.heads", config.count("num_attention_heads")?)
        .activation(config, "hidden_activation", &activation, true)?;
    Ok(layers::alternate(settings, &slides, |slides| match slides {
        true => Settings::default()
            .set("pattern", Settings::kind("window").set("left", side).set("right", side))
            .set("position", local.clone()),
        false => Settings::default().set("pattern", "full").set("position", full.clone()),
    }))
}

fn names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("model.layers.{}", "encoder.blocks.{}");
    Ok(Names::default()
        .keep("model.embeddings.tok_embeddings.weight", "embedding.weight")
        .norm("model.embeddings.norm", "encoder.embedding_norm")
        .norm(&format!("{block}.attn_norm"), &format!("{ours}.attention_norm"))
        .qkv(&format!("{block}.attn.Wqkv"), &format!("{ours}.attention"), Split::ByThird)
        .linear(&format!("{block}.attn.Wo"), &format!("{ours}.attention.output"))
        .norm(&format!("{block}.mlp_norm"), &format!("{ours}.feed_forward_norm"))
        .parts(
            &format!("{block}.mlp.Wi"),
            &format!("{ours}.feed_forward.*"),
            &["gate", "up"],
            Split::Equal,
        )
        .linear(&format!("{block}.mlp.Wo"), &format!("{ours}.feed_forward.down"))
        .norm("model.final_norm", "encoder.norm")
        .turned("head.dense.weight", "output_transform.linear.weight", [Turn::Transpose])
        .fill("output_transform.linear.bias", 0.0)
        .norm("head.norm", "output_transform.norm")
        .untied("decoder.weight", "output.weight")
        .keep("decoder.bias", "output.bias"))
}
