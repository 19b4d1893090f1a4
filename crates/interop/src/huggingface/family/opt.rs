//! OPT: learned places of which the first two belong to no token; the 350M model has norms after sublayers and narrower
//! embeddings.

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::Names,
    turn::Turn,
};

pub(super) const FAMILY: Family = Family { types: &["opt"], prefix: "model.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let width = config.count("hidden_size")?;
    config.only("enable_bias", true)?;
    config.only("layer_norm_elementwise_affine", true)?;
    config.only("_remove_final_layer_norm", false)?;
    // What Galactica's files say besides.
    config.only("learned_embeddings", true)?;
    config.only("scale_embeddings", false)?;
    let before = config.flag("do_layer_norm_before", true)?;
    let narrow = config.count_if("word_embed_proj_dim")?.filter(|narrow| *narrow != width);
    let activation = config.word_if("activation_function")?.unwrap_or("relu".into());
    let length = config.count("max_position_embeddings")?;
    Settings::default()
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("num_hidden_layers")?)
        .set("norm", "layer")
        .set("norm_place", if before { "pre" } else { "post" })
        .set("bias", true)
        .set("feed_forward", config.count("ffn_dim")?)
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set_if("embedding_width", narrow)
        .set_if("project_positions", narrow.map(|_| false))
        .set("attention.heads", config.count("num_attention_heads")?)
        .set("attention.bias", true)
        .set("attention.position", Settings::kind("learned").set("length", length))
        .activation(config, "activation_function", &activation, false)
}

fn names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("model.decoder.layers.{}", "decoder.blocks.{}");
    let positions = "model.decoder.embed_positions.weight";
    Ok(Names::default()
        .keep("model.decoder.embed_tokens.weight", "embedding.weight")
        .turned(positions, "decoder.position.0.Learned.table", [Turn::DropRows(2)])
        .turned(
            "model.decoder.project_in.weight",
            "decoder.embedding_projection.weight",
            [Turn::Transpose],
        )
        .turned("model.decoder.project_out.weight", "output_projection.weight", [Turn::Transpose])
        .fill("decoder.embedding_projection.bias", 0.0)
        .fill("output_projection.bias", 0.0)
        .attention(
            &format!("{block}.self_attn"),
            ["q_proj", "k_proj", "v_proj", "out_proj"],
            &format!("{ours}.attention"),
        )
        .norm(&format!("{block}.self_attn_layer_norm"), &format!("{ours}.attention_norm"))
        .linear(&format!("{block}.fc1"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.fc2"), &format!("{ours}.feed_forward.down"))
        .norm(&format!("{block}.final_layer_norm"), &format!("{ours}.feed_forward_norm"))
        .norm("model.decoder.final_layer_norm", "decoder.norm")
        .untied("lm_head.weight", "output.weight"))
}
