//! MPT: ALiBi, norms without a bias, queries, keys and values in one matrix.

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::{Fill, Names},
    turn::Split,
};

pub(super) const FAMILY: Family =
    Family { types: &["mpt"], prefix: "transformer.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let (width, heads) = (config.count("d_model")?, config.count("n_heads")?);
    config.only("no_bias", true)?;
    config.only("logit_scale", serde_json::Value::Null)?;
    config.understood(&[
        "embedding_fraction",
        "fc_type",
        "ffn_config",
        "init_config",
        "learned_pos_emb",
        "max_seq_len",
        "norm_type",
        "use_norm_bias",
        "verbose",
    ]);
    let mut settings = Settings::default();
    let mut alibi = true;
    if let Some(attention) = config.table("attn_config")? {
        alibi = attention.flag("alibi", true)?;
        attention.only("alibi_bias_max", 8)?;
        attention.only("attn_type", "multihead_attention")?;
        for key in ["clip_qkv", "rope", "sliding_window_size"] {
            attention.only(key, serde_json::Value::Null)?;
        }
        attention.only("qk_ln", false)?;
        attention.only("prefix_lm", false)?;
        attention.only("attn_uses_sequence_id", false)?;
        attention.harmless();
        if let Some(scale) = attention.number_if("softmax_scale")? {
            settings = settings.set("attention.score", Settings::kind("dot").set("scale", scale));
        }
        attention.finish()?;
    }
    if !alibi {
        return Err(config.wrong("attn_config", "alibi = true"));
    }
    Ok(settings
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("n_layers")?)
        .set("norm", "layer")
        .set("activation", "gelu")
        .set("feed_forward", width * config.count_if("expansion_ratio")?.unwrap_or(4))
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .epsilon(config.number("layer_norm_epsilon", 1e-5)?)
        .set("attention.heads", heads)
        .set("attention.position", "alibi"))
}

fn names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("transformer.blocks.{}", "decoder.blocks.{}");
    Ok(Names::default()
        .keep("transformer.wte.weight", "embedding.weight")
        .norm(&format!("{block}.norm_1"), &format!("{ours}.attention_norm"))
        .qkv(&format!("{block}.attn.Wqkv"), &format!("{ours}.attention"), Split::ByThird)
        .linear(&format!("{block}.attn.out_proj"), &format!("{ours}.attention.output"))
        .norm(&format!("{block}.norm_2"), &format!("{ours}.feed_forward_norm"))
        .linear(&format!("{block}.ffn.up_proj"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.ffn.down_proj"), &format!("{ours}.feed_forward.down"))
        .norm("transformer.norm_f", "decoder.norm")
        .untied("lm_head.weight", "output.weight")
        .fill_with(&format!("{ours}.attention.position.0.Alibi.slopes"), Fill::Slopes))
}
