//! Gemma 1 to 3: gated GELU, embeddings times √width, norms that learn the distance from 1. The second has norms before and
//! after sublayers, windows in every other layer and soft caps; the third norms of queries and keys and two bases.

use super::{Family, llama};
use crate::{
    error::Result,
    huggingface::{
        config::Config,
        layers,
        rotary::{Rope, rotary},
        settings::Settings,
    },
    table::Names,
    turn::Turn,
};

pub(super) const GEMMA: Family =
    Family { types: &["gemma"], prefix: "model.", settings: gemma, names };
pub(super) const GEMMA2: Family =
    Family { types: &["gemma2"], prefix: "model.", settings: gemma2, names: both_names };
pub(super) const GEMMA3: Family =
    Family { types: &["gemma3_text"], prefix: "model.", settings: gemma3, names: both_names };

/// The activation is `hidden_activation`; the older `hidden_act` says gelu and means its tanh form.
fn common(config: &Config, rope: Rope) -> Result<Settings> {
    let name = config.word_if("hidden_activation")?.unwrap_or("gelu_pytorch_tanh".into());
    config.understood(&["hidden_act"]);
    let bias = config.flag("attention_bias", false)?;
    llama::stream(config, rope)?
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("scale_embeddings", true)
        .set_unless("attention.bias", false, bias)
        .activation(config, "hidden_activation", &name, true)
}

fn gemma(config: &Config) -> Result<Settings> {
    config.only("use_bidirectional_attention", false)?;
    common(config, Rope::default())
}

/// Norms on both sides, a scale of its own, caps.
fn both(config: &Config, settings: Settings) -> Result<Settings> {
    config.only("use_bidirectional_attention", false)?;
    let scalar = config.number("query_pre_attn_scalar", 256.0)?;
    let score = Settings::kind("dot").set("scale", scalar.powf(-0.5));
    Ok(settings
        .set("norm_place", "both")
        .set_if("output_soft_cap", config.number_if("final_logit_softcapping")?)
        .set_if("attention.soft_cap", config.number_if("attn_logit_softcapping")?)
        .set("attention.score", score))
}

fn gemma2(config: &Config) -> Result<Settings> {
    let settings = both(config, common(config, Rope::default())?)?;
    let window = config.count_if("sliding_window")?.unwrap_or(4096);
    // An older name that stands beside the one that is read.
    config.only("sliding_window_size", window)?;
    layers::windows(config, settings, Some(window), 2)
}

fn gemma3(config: &Config) -> Result<Settings> {
    let full = Rope { base: 1e6, layer: Some("full_attention"), ..Rope::default() };
    let settings = both(config, common(config, full)?)?.set("attention.qk_norm", true);
    let window = layers::window(config, Some(config.count_if("sliding_window")?.unwrap_or(4096)))?;
    let every =
        config.count_if("sliding_window_pattern")?.or(config.count_if("_sliding_window_pattern")?);
    let every = every.unwrap_or(6).max(1);
    let local = match config.table("rope_parameters")? {
        Some(_) => rotary(config, Rope { layer: Some("sliding_attention"), ..Rope::default() })?,
        None => {
            let base = config.number("rope_local_base_freq", 10_000.0)?;
            Settings::kind("rotary").set("base", base)
        }
    };
    config.understood(&["rope_local_base_freq"]);
    let global = rotary(config, full)?;
    let slides = layers::sliding(config, |layer| (layer + 1) % every != 0)?;
    Ok(layers::alternate(settings, &slides, |slides| {
        Settings::default()
            .set("pattern", layers::causal(window.filter(|_| slides)))
            .set("position", if slides { local.clone() } else { global.clone() })
    }))
}

fn plus_one(names: Names, pairs: &[(&str, &str)]) -> Names {
    pairs.iter().fold(names, |names, (theirs, ours)| {
        names.turned(&format!("{theirs}.weight"), ours, [Turn::PlusOne])
    })
}

fn names(_config: &Config) -> Result<Names> {
    let pairs = [
        ("model.layers.{}.input_layernorm", "decoder.blocks.{}.attention_norm.gain"),
        ("model.layers.{}.post_attention_layernorm", "decoder.blocks.{}.feed_forward_norm.gain"),
        ("model.norm", "decoder.norm.gain"),
    ];
    Ok(plus_one(llama::linears(), &pairs))
}

fn both_names(_config: &Config) -> Result<Names> {
    let pairs = [
        ("model.layers.{}.input_layernorm", "decoder.blocks.{}.attention_norm.gain"),
        (
            "model.layers.{}.post_attention_layernorm",
            "decoder.blocks.{}.attention_output_norm.gain",
        ),
        ("model.layers.{}.pre_feedforward_layernorm", "decoder.blocks.{}.feed_forward_norm.gain"),
        (
            "model.layers.{}.post_feedforward_layernorm",
            "decoder.blocks.{}.feed_forward_output_norm.gain",
        ),
        ("model.layers.{}.self_attn.q_norm", "decoder.blocks.{}.attention.query_norm.gamma"),
        ("model.layers.{}.self_attn.k_norm", "decoder.blocks.{}.attention.key_norm.gamma"),
        ("model.norm", "decoder.norm.gain"),
    ];
    Ok(plus_one(llama::linears(), &pairs))
}
