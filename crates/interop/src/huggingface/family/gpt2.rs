//! GPT-2: learned places, norms before sublayers, queries, keys and values in one matrix stored `[from, to]`.

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, layers, settings::Settings},
    table::{Names, Row},
    turn::{Split, Turn},
};

pub(super) const FAMILY: Family =
    Family { types: &["gpt2"], prefix: "transformer.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let width = config.count("n_embd")?;
    config.understood(&["n_ctx", "reorder_and_upcast_attn"]);
    let activation = config.word_if("activation_function")?.unwrap_or("gelu_new".into());
    scores(config, Settings::default())?
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", width)
        .set("layers", config.count("n_layer")?)
        .set("norm", "layer")
        .set("bias", true)
        .set("feed_forward", config.count_if("n_inner")?.unwrap_or(4 * width))
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .epsilon(config.number("layer_norm_epsilon", 1e-5)?)
        .set("attention.heads", config.count("n_head")?)
        .set("attention.bias", true)
        .set(
            "attention.position",
            Settings::kind("learned").set("length", config.count("n_positions")?),
        )
        .activation(config, "activation_function", &activation, false)
}

/// Scores divided by the root of the head's size or not, and by the number of the layer where the config asks for it.
fn scores(config: &Config, settings: Settings) -> Result<Settings> {
    let divided = config.flag("scale_attn_weights", true)?;
    let head_dim = config.count("n_embd")? / config.count("n_head")?.max(1);
    let scale = if divided { (head_dim as f64).powf(-0.5) } else { 1.0 };
    let dot = |scale: f64| Settings::kind("dot").set("scale", scale);
    if config.flag("scale_attn_by_inverse_layer_idx", false)? {
        let layers = layers::count(config, "n_layer")?;
        let of = |layer: usize| Settings::default().set("score", dot(scale / layer as f64));
        return Ok(settings.set("alternate", (1..=layers).map(of).collect::<Vec<_>>()));
    }
    Ok(if divided { settings } else { settings.set("attention.score", dot(scale)) })
}

fn names(_config: &Config) -> Result<Names> {
    let block = "transformer.h.{}";
    let ours = "decoder.blocks.{}";
    let parts = ["query", "key", "value"];
    let split = |end: &str, before: Vec<Turn>, after: Vec<Turn>| Row {
        theirs: format!("{block}.attn.c_attn.{end}"),
        ours: parts.map(|part| format!("{ours}.attention.{part}.{end}")).into(),
        before,
        split: Some(Split::ByThird),
        after,
        ..Row::default()
    };
    let qkv = [
        split("weight", vec![Turn::Transpose], vec![Turn::Transpose]),
        split("bias", vec![], vec![]),
    ];
    Ok(Names(qkv.into())
        .keep("transformer.wte.weight", "embedding.weight")
        .keep("transformer.wpe.weight", "decoder.position.0.Learned.table")
        .norm(&format!("{block}.ln_1"), &format!("{ours}.attention_norm"))
        .conv1d(&format!("{block}.attn.c_proj"), &format!("{ours}.attention.output"))
        .norm(&format!("{block}.ln_2"), &format!("{ours}.feed_forward_norm"))
        .conv1d(&format!("{block}.mlp.c_fc"), &format!("{ours}.feed_forward.up"))
        .conv1d(&format!("{block}.mlp.c_proj"), &format!("{ours}.feed_forward.down"))
        .norm("transformer.ln_f", "decoder.norm")
        .untied("lm_head.weight", "output.weight")
        .ignore("transformer.h.{}.attn.bias")
        .ignore("transformer.h.{}.attn.masked_bias"))
}
