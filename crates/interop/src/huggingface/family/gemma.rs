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

fn common(config: &Config, rope: Rope, key: &str, name: &str) -> Result<Settings> {
    let bias = config.flag("attention_bias", false)?;
    llama::stream(config, rope)?
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("scale_embeddings", true)
        // The families' own default.
        .set_if("attention.head_dim", config.is_absent("head_dim").then_some(256usize))
        .set_unless("attention.bias", false, bias)
        .activation(config, key, name, true)
}

/// The first says its activation in two keys, of which versions of transformers read one or the other, and in which gelu means
/// its tanh form.
fn gemma(config: &Config) -> Result<Settings> {
    config.only("use_bidirectional_attention", false)?;
    let tanh = |name: String| if name == "gelu_new" { "gelu_pytorch_tanh".into() } else { name };
    let means = |name: String| if name == "gelu" { "gelu_pytorch_tanh".into() } else { tanh(name) };
    let [new, old] = ["hidden_activation", "hidden_act"].map(|key| config.word_if(key));
    let (new, old) = (new?.map(tanh), old?.map(means));
    let name = match (new, old) {
        (Some(new), Some(old)) if new != old => {
            let expected = format!("the same as hidden_activation = {new:?}");
            return Err(config.wrong("hidden_act", &expected));
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => "gelu_pytorch_tanh".into(),
    };
    let key =
        if config.is_absent("hidden_activation") { "hidden_act" } else { "hidden_activation" };
    common(config, Rope::default(), key, &name)
}

/// The later ones read `hidden_activation` only, whatever `hidden_act` says.
fn later(config: &Config, rope: Rope) -> Result<Settings> {
    let name = config.word_if("hidden_activation")?.unwrap_or("gelu_pytorch_tanh".into());
    config.understood(&["hidden_act"]);
    common(config, rope, "hidden_activation", &name)
}

/// Norms on both sides, a scale of its own, and a cap of the logits, whose default holds where the file has no such key.
fn both(config: &Config, settings: Settings, cap: Option<f64>) -> Result<Settings> {
    config.only("use_bidirectional_attention", false)?;
    let scalar = config.number("query_pre_attn_scalar", 256.0)?;
    let score = Settings::kind("dot").set("scale", scalar.powf(-0.5));
    Ok(settings
        .set("norm_place", "both")
        .set_if("output_soft_cap", capped(config, "final_logit_softcapping", cap)?)
        .set("attention.score", score))
}

/// A bound that is said, or else the default.
fn capped(config: &Config, key: &str, default: Option<f64>) -> Result<Option<f64>> {
    match config.is_absent(key) {
        true => Ok(default),
        false => config.number_if(key),
    }
}

fn gemma2(config: &Config) -> Result<Settings> {
    let settings = both(config, later(config, Rope::default())?, Some(30.0))?
        .set_if("attention.soft_cap", capped(config, "attn_logit_softcapping", Some(50.0))?);
    let window = config.count_if("sliding_window")?.unwrap_or(4096);
    // An older name that stands beside the one that is read.
    config.only("sliding_window_size", window)?;
    layers::windows(config, settings, Some(window), 2)
}

fn gemma3(config: &Config) -> Result<Settings> {
    let full = Rope { base: 1e6, layer: Some("full_attention"), ..Rope::default() };
    let settings = both(config, later(config, full)?, None)?.set("attention.qk_norm", true);
    // The third has norms instead: its code does not read the cap of scores.
    config.understood(&["attn_logit_softcapping"]);
    let window = layers::window(config, Some(config.count_if("sliding_window")?.unwrap_or(4096)))?;
    // With an underscore it is said beside `layer_types`, and only these are read.
    config.understood(&["_sliding_window_pattern"]);
    let every = config.count_if("sliding_window_pattern")?.unwrap_or(6).max(1);
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
