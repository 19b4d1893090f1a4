//! Encoder-decoders of fairseq's and Marian's kind: BART (learned places, a norm of the embeddings), mBART (norms before
//! sublayers), Marian and Pegasus (sinusoids), M2M-100 and NLLB (sinusoids with other waves).

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::Names,
    turn::Turn,
};

pub(super) const BART: Family =
    Family { types: &["bart"], prefix: "model.", settings: bart, names };
pub(super) const MBART: Family =
    Family { types: &["mbart"], prefix: "model.", settings: mbart, names };
pub(super) const MARIAN: Family =
    Family { types: &["marian"], prefix: "model.", settings: marian, names };
pub(super) const PEGASUS: Family =
    Family { types: &["pegasus"], prefix: "model.", settings: pegasus, names };
pub(super) const M2M100: Family =
    Family { types: &["m2m_100"], prefix: "model.", settings: m2m100, names };

/// The one that multiplies embeddings unless its config says otherwise.
const SCALES: &str = "m2m_100";

/// What all of them have.
fn common(config: &Config, position: Settings, activation: &str) -> Result<Settings> {
    let heads = config.count("decoder_attention_heads")?;
    let inner = config.count("decoder_ffn_dim")?;
    if config.count("encoder_ffn_dim")? != inner {
        return Err(config.wrong("encoder_ffn_dim", &format!("decoder_ffn_dim = {inner}")));
    }
    let name = config.word_if("activation_function")?.unwrap_or(activation.into());
    config.understood(&[
        "add_bias_logits",
        "add_final_layer_norm",
        "max_position_embeddings",
        "normalize_embedding",
        "num_hidden_layers",
    ]);
    Settings::default()
        .set("family", "encoder_decoder")
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", config.count("d_model")?)
        .set("layers", config.count("decoder_layers")?)
        .set("encoder_layers", config.count("encoder_layers")?)
        .set("norm", "layer")
        .set("bias", true)
        .set("feed_forward", inner)
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("scale_embeddings", config.flag("scale_embedding", SCALES == config.model_type()?)?)
        .set_unless("output_bias", false, config.has("final_logits_bias"))
        .set("attention.heads", heads)
        .set("encoder.heads", config.count("encoder_attention_heads")?)
        .set("attention.bias", true)
        .set("attention.position", position)
        .activation(config, "activation_function", &name, false)
}

fn learned(config: &Config) -> Result<Settings> {
    Ok(Settings::kind("learned").set("length", config.count("max_position_embeddings")?))
}

fn waves() -> Settings {
    Settings::kind("sinusoidal").set("layout", "concatenated")
}

fn bart(config: &Config) -> Result<Settings> {
    config.only("normalize_before", false)?;
    Ok(common(config, learned(config)?, "gelu")?
        .set("norm_place", "post")
        .set("embedding_norm", true))
}

fn mbart(config: &Config) -> Result<Settings> {
    Ok(common(config, learned(config)?, "gelu")?.set("embedding_norm", true))
}

fn marian(config: &Config) -> Result<Settings> {
    config.only("share_encoder_decoder_embeddings", true)?;
    config.only("normalize_before", false)?;
    config.only("normalize_embedding", false)?;
    Ok(common(config, waves(), "gelu")?.set("norm_place", "post"))
}

fn pegasus(config: &Config) -> Result<Settings> {
    common(config, waves(), "gelu")
}

fn m2m100(config: &Config) -> Result<Settings> {
    // The first token stands after the place of padding.
    let first = config.count_if("pad_token_id")?.unwrap_or(1) + 1;
    let position = Settings::kind("sinusoidal").set("layout", "tensor2tensor").set("first", first);
    common(config, position, "relu")
}

fn names(_config: &Config) -> Result<Names> {
    let mut names = Names::default()
        .keep("model.shared.weight", "embedding.weight")
        .untied("lm_head.weight", "output.weight")
        .turned("final_logits_bias", "output.bias", [Turn::Squeeze]);
    for stack in ["encoder", "decoder"] {
        let (theirs, block) = (format!("model.{stack}"), format!("model.{stack}.layers.{{}}"));
        let ours = format!("{stack}.blocks.{{}}");
        let positions = format!("{theirs}.embed_positions.weight");
        names = names
            .turned(&positions, &format!("{stack}.position.0.Learned.table"), [Turn::DropRows(2)])
            .spare()
            .copy(&format!("{theirs}.embed_tokens.weight"), "model.shared.weight")
            .norm(&format!("{theirs}.layernorm_embedding"), &format!("{stack}.embedding_norm"))
            .norm(&format!("{theirs}.layer_norm"), &format!("{stack}.norm"))
            .attention(
                &format!("{block}.self_attn"),
                ["q_proj", "k_proj", "v_proj", "out_proj"],
                &format!("{ours}.attention"),
            )
            .norm(&format!("{block}.self_attn_layer_norm"), &format!("{ours}.attention_norm"))
            .linear(&format!("{block}.fc1"), &format!("{ours}.feed_forward.up"))
            .linear(&format!("{block}.fc2"), &format!("{ours}.feed_forward.down"))
            .norm(&format!("{block}.final_layer_norm"), &format!("{ours}.feed_forward_norm"));
    }
    let (block, cross) = ("model.decoder.layers.{}", "decoder.blocks.{}.cross");
    Ok(names
        .attention(
            &format!("{block}.encoder_attn"),
            ["q_proj", "k_proj", "v_proj", "out_proj"],
            &format!("{cross}.attention"),
        )
        .norm(&format!("{block}.encoder_attn_layer_norm"), &format!("{cross}.norm")))
}
