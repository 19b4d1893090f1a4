//! Llama and what is built like it: rotary, RMS norms before sublayers, SwiGLU, grouped heads. Mistral has a window, Qwen 2
//! biases of queries, keys and values, Qwen 3 norms of queries and keys, Phi-3 fused matrices.

use serde_json::Value;

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
    turn::Split,
};

pub(super) const LLAMA: Family =
    Family { types: &["llama"], prefix: "model.", settings: llama, names };
pub(super) const MISTRAL: Family =
    Family { types: &["mistral"], prefix: "model.", settings: mistral, names };
pub(super) const QWEN2: Family =
    Family { types: &["qwen2"], prefix: "model.", settings: qwen2, names };
pub(super) const QWEN3: Family =
    Family { types: &["qwen3"], prefix: "model.", settings: qwen3, names };
pub(super) const PHI3: Family =
    Family { types: &["phi3"], prefix: "model.", settings: phi3, names: phi3_names };

/// What all of them have.
pub(super) fn common(config: &Config, rope: Rope) -> Result<Settings> {
    let activation = config.word_if("hidden_act")?.unwrap_or("silu".into());
    stream(config, rope)?.activation(config, "hidden_act", &activation, true)
}

/// What all of them have but the activation.
pub(super) fn stream(config: &Config, rope: Rope) -> Result<Settings> {
    let (width, heads) = (config.count("hidden_size")?, config.count("num_attention_heads")?);
    let position = rotary(config, rope)?;
    config.understood(&["max_position_embeddings"]);
    Ok(Settings::default()
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("num_hidden_layers")?)
        .set("norm", "rms")
        .set("feed_forward", config.count("intermediate_size")?)
        .set("tied", config.flag("tie_word_embeddings", false)?)
        .epsilon(config.number("rms_norm_eps", 1e-6)?)
        .set("attention.heads", heads)
        .set("attention.kv_heads", config.count_if("num_key_value_heads")?.unwrap_or(heads))
        .set("attention.head_dim", config.count_if("head_dim")?.unwrap_or(width / heads.max(1)))
        .set("attention.position", position))
}

fn llama(config: &Config) -> Result<Settings> {
    let bias = config.flag("mlp_bias", false)?;
    let attention = config.flag("attention_bias", false)?;
    config.understood(&["rope_interleaved", "is_llama_config"]);
    config.only("sliding_window", Value::Null)?;
    config.only("rope_interleaved", false)?;
    Ok(common(config, Rope::default())?.set_unless("bias", false, bias).set_unless(
        "attention.bias",
        false,
        attention,
    ))
}

fn mistral(config: &Config) -> Result<Settings> {
    let window = match config.is_absent("sliding_window") {
        true => Some(4096),
        false => config.count_if("sliding_window")?,
    };
    let settings = common(config, Rope::default())?;
    layers::windows(config, settings, window, 0)
}

fn qwen2(config: &Config) -> Result<Settings> {
    let settings = common(config, Rope::default())?.set("attention.bias", "qkv");
    layers::windows_if_used(config, settings)
}

fn qwen3(config: &Config) -> Result<Settings> {
    let bias = config.flag("attention_bias", false)?;
    let settings = common(config, Rope::default())?
        .set_unless("attention.bias", false, bias)
        // The family's own default.
        .set_if("attention.head_dim", config.is_absent("head_dim").then_some(128usize))
        .set("attention.qk_norm", true);
    layers::windows_if_used(config, settings)
}

fn phi3(config: &Config) -> Result<Settings> {
    let window = config.count_if("sliding_window")?;
    config.understood(&["original_max_position_embeddings"]);
    // What Phi-4-mini's file says of variants that the family's code does not have.
    for key in ["attention_bias", "lm_head_bias", "mlp_bias"] {
        config.only(key, false)?;
    }
    for key in ["full_attn_mod", "interpolate_factor"] {
        config.only(key, 1)?;
    }
    // The family's own default.
    let trained = config.count_if("original_max_position_embeddings")?.or(Some(4096));
    let settings = common(config, Rope { trained, ..Rope::default() })?;
    layers::windows(config, settings, window, 0)
}

pub(super) fn names(_config: &Config) -> Result<Names> {
    let attention = "decoder.blocks.{}.attention";
    Ok(plain()
        .keep("model.layers.{}.self_attn.q_norm.weight", &format!("{attention}.query_norm.gamma"))
        .keep("model.layers.{}.self_attn.k_norm.weight", &format!("{attention}.key_norm.gamma")))
}

/// All but norms of queries and keys.
pub(super) fn plain() -> Names {
    norms(linears())
}

/// All but norms.
pub(super) fn linears() -> Names {
    let (block, ours) = ("model.layers.{}", "decoder.blocks.{}");
    let attention = format!("{ours}.attention");
    ends()
        .attention(
            &format!("{block}.self_attn"),
            ["q_proj", "k_proj", "v_proj", "o_proj"],
            &attention,
        )
        .linear(&format!("{block}.mlp.gate_proj"), &format!("{ours}.feed_forward.gate"))
        .linear(&format!("{block}.mlp.up_proj"), &format!("{ours}.feed_forward.up"))
}

fn phi3_names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("model.layers.{}", "decoder.blocks.{}");
    Ok(norms(ends())
        .qkv(&format!("{block}.self_attn.qkv_proj"), &format!("{ours}.attention"), Split::ByThird)
        .linear(&format!("{block}.self_attn.o_proj"), &format!("{ours}.attention.output"))
        .parts(
            &format!("{block}.mlp.gate_up_proj"),
            &format!("{ours}.feed_forward.*"),
            &["gate", "up"],
            Split::Equal,
        ))
}

fn norms(names: Names) -> Names {
    let (block, ours) = ("model.layers.{}", "decoder.blocks.{}");
    names
        .norm(&format!("{block}.input_layernorm"), &format!("{ours}.attention_norm"))
        .norm(&format!("{block}.post_attention_layernorm"), &format!("{ours}.feed_forward_norm"))
        .norm("model.norm", "decoder.norm")
}

/// Embeddings, output, and the way back into the stream.
fn ends() -> Names {
    Names::default()
        .keep("model.embed_tokens.weight", "embedding.weight")
        .linear("model.layers.{}.mlp.down_proj", "decoder.blocks.{}.feed_forward.down")
        .untied("lm_head.weight", "output.weight")
        .ignore("model.layers.{}.self_attn.rotary_emb.inv_freq")
}
