//! BLOOM: ALiBi, a norm of the embeddings, queries, keys and values of a head together.

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::{Fill, Names},
    turn::Split,
};

pub(super) const FAMILY: Family =
    Family { types: &["bloom"], prefix: "transformer.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let width = config.count_of(&["hidden_size", "n_embed"])?;
    config.only("apply_residual_connection_post_layernorm", false)?;
    // Cut into so many products, transformers leaves the bias out.
    let cut = config.count_if("pretraining_tp")?.is_some_and(|parts| parts > 1);
    if cut && config.flag("slow_but_exact", false)? {
        return Err(config.wrong("slow_but_exact", "false where pretraining_tp is above 1"));
    }
    config.understood(&[
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "n_embed",
        "num_attention_heads",
        "offset_alibi",
        "seq_length",
        "skip_bias_add",
        "skip_bias_add_qkv",
    ]);
    Ok(Settings::default()
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count_of(&["n_layer", "num_hidden_layers"])?)
        .set("norm", "layer")
        .set("bias", true)
        .set("activation", "gelu_tanh")
        .set("feed_forward", config.count_if("n_inner")?.unwrap_or(4 * width))
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("embedding_norm", true)
        .epsilon(config.number("layer_norm_epsilon", 1e-5)?)
        .set("attention.heads", config.count_of(&["n_head", "num_attention_heads"])?)
        .set("attention.bias", true)
        .set("attention.position", "alibi"))
}

fn names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("transformer.h.{}", "decoder.blocks.{}");
    let qkv = format!("{block}.self_attention.query_key_value");
    Ok(Names::default()
        .keep("transformer.word_embeddings.weight", "embedding.weight")
        .norm("transformer.word_embeddings_layernorm", "decoder.embedding_norm")
        .norm(&format!("{block}.input_layernorm"), &format!("{ours}.attention_norm"))
        .qkv(&qkv, &format!("{ours}.attention"), Split::ByHead)
        .linear(&format!("{block}.self_attention.dense"), &format!("{ours}.attention.output"))
        .norm(&format!("{block}.post_attention_layernorm"), &format!("{ours}.feed_forward_norm"))
        .linear(&format!("{block}.mlp.dense_h_to_4h"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.mlp.dense_4h_to_h"), &format!("{ours}.feed_forward.down"))
        .norm("transformer.ln_f", "decoder.norm")
        .untied("lm_head.weight", "output.weight")
        .fill_with(&format!("{ours}.attention.position.0.Alibi.slopes"), Fill::Slopes))
}
