//! T5 1.0 and 1.1: RMS norms, buckets of distances shared by the layers of a stack, scores without a scale. Where output and
//! embeddings are one, states are divided by √width before the scores: the last norm's gain takes that over.

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::Names,
    turn::Turn,
};

pub(super) const FAMILY: Family = Family { types: &["t5", "mt5"], prefix: "", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let layers = config.count("num_layers")?;
    let (activation, gated) = form(config)?;
    config.understood(&["feed_forward_proj", "n_positions", "tie_encoder_decoder"]);
    let position = Settings::kind("t5")
        .set("buckets", config.count_if("relative_attention_num_buckets")?.unwrap_or(32))
        .set("max_distance", config.count_if("relative_attention_max_distance")?.unwrap_or(128));
    Settings::default()
        .set("family", "encoder_decoder")
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", config.count("d_model")?)
        .set("layers", config.count_if("num_decoder_layers")?.unwrap_or(layers))
        .set("encoder_layers", layers)
        .set("feed_forward", config.count("d_ff")?)
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("share_positions", true)
        .epsilon(config.number("layer_norm_epsilon", 1e-6)?)
        .set("attention.heads", config.count("num_heads")?)
        .set("attention.head_dim", config.count("d_kv")?)
        .set("attention.score", "dot")
        .set("encoder.position", position.clone().set("bidirectional", true))
        .set("attention.position", position)
        .activation(config, "feed_forward_proj", &activation, gated)
}

/// The feed-forward's activation and whether it has a gate: `feed_forward_proj`, or what stands beside it where that says
/// otherwise.
fn form(config: &Config) -> Result<(String, bool)> {
    let form = config.word_if("feed_forward_proj")?.unwrap_or("relu".into());
    let (activation, gated) = match form.strip_prefix("gated-") {
        Some("gelu") => ("gelu_new", true),
        Some(name) => (name, true),
        None => (form.as_str(), false),
    };
    let activation = config.word_if("dense_act_fn")?.unwrap_or(activation.into());
    Ok((activation, config.flag("is_gated_act", gated)?))
}

fn names(config: &Config) -> Result<Names> {
    let tied = config.flag("tie_word_embeddings", true)?;
    // mT5 never divides, whatever its files say.
    let scaled = config.flag("scale_decoder_outputs", tied)? && config.model_type()? == "t5";
    let factor = if scaled { (config.count("d_model")? as f32).powf(-0.5) } else { 1.0 };
    let (_, gated) = form(config)?;
    let mut names = Names::default()
        .keep("shared.weight", "embedding.weight")
        .untied("lm_head.weight", "output.weight")
        .copy("encoder.embed_tokens.weight", "shared.weight")
        .copy("decoder.embed_tokens.weight", "shared.weight")
        .norm("encoder.final_layer_norm", "encoder.norm")
        .turned("decoder.final_layer_norm.weight", "decoder.norm.gain", [Turn::Times(factor)])
        .ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
    for (stack, last) in [("encoder", 1), ("decoder", 2)] {
        let (block, ours) = (format!("{stack}.block.{{}}.layer"), format!("{stack}.blocks.{{}}"));
        let buckets =
            format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        names = names
            .turned(&buckets, &format!("{ours}.attention.position.0.T5.table"), [Turn::Transpose])
            .attention(
                &format!("{block}.0.SelfAttention"),
                ["q", "k", "v", "o"],
                &format!("{ours}.attention"),
            )
            .norm(&format!("{block}.0.layer_norm"), &format!("{ours}.attention_norm"))
            .norm(&format!("{block}.{last}.layer_norm"), &format!("{ours}.feed_forward_norm"));
        let dense = format!("{block}.{last}.DenseReluDense");
        let up = if gated { "wi_1" } else { "wi" };
        names = names
            .linear(&format!("{dense}.{up}"), &format!("{ours}.feed_forward.up"))
            .linear(&format!("{dense}.wi_0"), &format!("{ours}.feed_forward.gate"))
            .linear(&format!("{dense}.wo"), &format!("{ours}.feed_forward.down"));
    }
    Ok(names
        .attention(
            "decoder.block.{}.layer.1.EncDecAttention",
            ["q", "k", "v", "o"],
            "decoder.blocks.{}.cross.attention",
        )
        .norm("decoder.block.{}.layer.1.layer_norm", "decoder.blocks.{}.cross.norm"))
}
