//! OLMo: norms that learn nothing, and its second version: norms of what sublayers give, and of all queries and keys.

use super::{Family, llama};
use crate::{
    error::Result,
    huggingface::{config::Config, rotary::Rope, settings::Settings},
    table::Names,
};

pub(super) const OLMO: Family =
    Family { types: &["olmo"], prefix: "model.", settings: olmo, names: olmo_names };
pub(super) const OLMO2: Family =
    Family { types: &["olmo2"], prefix: "model.", settings: olmo2, names: olmo2_names };

fn olmo(config: &Config) -> Result<Settings> {
    config.only("clip_qkv", serde_json::Value::Null)?;
    let bias = config.flag("attention_bias", false)?;
    Ok(llama::common(config, Rope::default())?
        .set("norm", "layer")
        .set("epsilon", 1e-5)
        .set_unless("attention.bias", false, bias))
}

fn olmo2(config: &Config) -> Result<Settings> {
    let bias = config.flag("attention_bias", false)?;
    Ok(llama::common(config, Rope::default())?
        .set("norm_place", "output")
        .set("attention.qk_norm", "all")
        .set_unless("attention.bias", false, bias))
}

fn olmo_names(_config: &Config) -> Result<Names> {
    Ok(llama::linears()
        .fill("decoder.blocks.{}.attention_norm.gain", 1.0)
        .fill("decoder.blocks.{}.feed_forward_norm.gain", 1.0)
        .fill("decoder.norm.gain", 1.0))
}

fn olmo2_names(config: &Config) -> Result<Names> {
    let (block, ours) = ("model.layers.{}", "decoder.blocks.{}");
    Ok(llama::names(config)?
        .norm(
            &format!("{block}.post_attention_layernorm"),
            &format!("{ours}.attention_output_norm"),
        )
        .norm(
            &format!("{block}.post_feedforward_layernorm"),
            &format!("{ours}.feed_forward_output_norm"),
        ))
}
