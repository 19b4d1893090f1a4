//! XLNet as an encoder: Transformer-XL's terms, every token seeing every other, without segments and permutations.

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::Names,
    turn::Turn,
};

pub(super) const FAMILY: Family =
    Family { types: &["xlnet"], prefix: "transformer.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let (width, heads) = (config.count("d_model")?, config.count("n_head")?);
    config.only("attn_type", "bi")?;
    config.only("bi_data", false)?;
    config.only("clamp_len", -1)?;
    config.only("untie_r", true)?;
    config.understood(&[
        "end_n_top",
        "max_position_embeddings",
        "mem_len",
        "reuse_len",
        "same_length",
        "start_n_top",
        "use_mems",
        "use_mems_eval",
        "use_mems_train",
    ]);
    let activation = config.word_if("ff_activation")?.unwrap_or("gelu".into());
    Settings::default()
        .set("family", "encoder")
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("n_layer")?)
        .set("norm", "layer")
        .set("norm_place", "post")
        .set("bias", true)
        .set("feed_forward", config.count("d_inner")?)
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set_unless("output_bias", false, config.has("lm_loss.bias"))
        .epsilon(config.number("layer_norm_eps", 1e-12)?)
        .set("attention.heads", heads)
        .set("attention.head_dim", config.count_if("d_head")?.unwrap_or(width / heads.max(1)))
        .set("attention.position", "transformer_xl")
        .activation(config, "ff_activation", &activation, false)
}

fn names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("transformer.layer.{}", "encoder.blocks.{}");
    let attention = format!("{block}.rel_attn");
    let own = format!("{ours}.attention");
    let mut names = Names::default()
        .keep("transformer.word_embedding.weight", "embedding.weight")
        .untied("lm_loss.weight", "output.weight")
        .keep("lm_loss.bias", "output.bias")
        .ignore("transformer.mask_emb");
    for (theirs, part) in [("q", "query"), ("k", "key"), ("v", "value")] {
        let ours = format!("{own}.{part}.weight");
        names = names.turned(&format!("{attention}.{theirs}"), &ours, [Turn::Flatten]);
    }
    // The output's is stored from width to heads, too.
    let output = format!("{own}.output.weight");
    Ok(names
        .turned(&format!("{attention}.o"), &output, [Turn::FlattenTranspose])
        .turned(
            &format!("{attention}.r"),
            &format!("{own}.position.0.TransformerXl.projection"),
            [Turn::Flatten],
        )
        .keep(&format!("{attention}.r_w_bias"), &format!("{own}.position.0.TransformerXl.content"))
        .keep(&format!("{attention}.r_r_bias"), &format!("{own}.position.0.TransformerXl.distance"))
        .norm(&format!("{attention}.layer_norm"), &format!("{ours}.attention_norm"))
        .linear(&format!("{block}.ff.layer_1"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.ff.layer_2"), &format!("{ours}.feed_forward.down"))
        .norm(&format!("{block}.ff.layer_norm"), &format!("{ours}.feed_forward_norm"))
        .ignore("transformer.layer.{}.rel_attn.r_s_bias")
        .ignore("transformer.layer.{}.rel_attn.seg_embed"))
}
