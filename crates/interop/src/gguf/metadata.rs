//! What a GGUF file says of a model, in the words of `config.json`; a key that nobody understands is refused by name.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Renamed, names::Architecture};
use crate::{error::Result, huggingface::config::Config, turn::Heads};

/// The config of a file.
pub(super) fn config(
    path: &Path,
    architecture: &Architecture,
    values: &Map<String, Value>,
    source: &mut Renamed,
) -> Result<Config> {
    let prefix = format!("{}.", architecture.name);
    let own = values.iter().filter_map(|(key, value)| {
        key.strip_prefix(&prefix).map(|key| (key.to_owned(), value.clone()))
    });
    let said = Config::new(path, &prefix, own.collect());
    let (width, heads) = (said.count("embedding_length")?, said.count("attention.head_count")?);
    let kv_heads = said.count_if("attention.head_count_kv")?.unwrap_or(heads);
    let head_dim = said.count_if("attention.key_length")?.unwrap_or(width / heads.max(1));
    if said.count_if("attention.value_length")?.is_some_and(|length| length != head_dim) {
        return Err(said.wrong("attention.value_length", &format!("key_length = {head_dim}")));
    }
    source.heads = Heads { heads, kv_heads, head_dim };
    let context = said.count("context_length")?;
    let (layers, inner) = (said.count("block_count")?, said.count("feed_forward_length")?);
    said.understood(&["vocab_size"]);
    let table = source.names.values().find(|(name, _)| name == "token_embd.weight");
    let vocabulary =
        table.and_then(|(name, _)| source.tensors.entries[name].shape.first().copied());
    let tied = !source.tensors.entries.contains_key("output.weight");
    let mut config = json!({
        "model_type": architecture.model_type, "vocab_size": vocabulary.unwrap_or(0),
        "tie_word_embeddings": tied,
    });
    let out = config.as_object_mut().expect("made as one");
    if architecture.name == "gpt2" {
        let epsilon = said.number("attention.layer_norm_epsilon", 1e-5)?;
        // The converter writes four widths, whatever the model has.
        let up = source.tensors.entries.get("blk.0.ffn_up.weight");
        let inner = up.and_then(|up| up.shape.first().copied()).unwrap_or(inner);
        out.extend(object(json!({
            "n_embd": width, "n_head": heads, "n_layer": layers, "n_inner": inner, "n_positions": context,
            "layer_norm_epsilon": epsilon,
        })));
    } else {
        out.extend(object(json!({
            "hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "num_hidden_layers": layers, "intermediate_size": inner, "max_position_embeddings": context,
        })));
        epsilon(&said, out)?;
        match architecture.name {
            "bloom" => {
                let epsilon = out.remove("layer_norm_eps").unwrap_or(json!(1e-5));
                out.insert("layer_norm_epsilon".into(), epsilon);
                for key in ["num_key_value_heads", "max_position_embeddings", "intermediate_size"] {
                    out.remove(key);
                }
            }
            "bert" => {
                said.only("attention.causal", false)?;
                said.understood(&["pooling_type"]);
                let types = source.tensors.entries.get("token_types.weight");
                let types = types.and_then(|types| types.shape.first().copied()).unwrap_or(0);
                out.insert("type_vocab_size".into(), types.into());
                out.insert("tie_word_embeddings".into(), true.into());
                out.remove("num_key_value_heads");
            }
            name => {
                let known = ["llama", "qwen3", "gemma", "gemma2", "gemma3"];
                if known.contains(&name) || head_dim * heads != width {
                    out.insert("head_dim".into(), head_dim.into());
                }
                let base = said.number("rope.freq_base", 10_000.0)?;
                out.insert("rope_theta".into(), base.into());
                rotary(&said, out, source, head_dim, context)?;
                particular(&said, out, name, head_dim, source)?;
            }
        }
    }
    said.finish()?;
    Ok(Config::new(path, "", object(config)))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn epsilon(said: &Config, out: &mut Map<String, Value>) -> Result<()> {
    if let Some(epsilon) = said.number_if("attention.layer_norm_rms_epsilon")? {
        out.insert("rms_norm_eps".into(), epsilon.into());
    }
    if let Some(epsilon) = said.number_if("attention.layer_norm_epsilon")? {
        out.insert("layer_norm_eps".into(), epsilon.into());
    }
    Ok(())
}

fn rotary(
    said: &Config,
    out: &mut Map<String, Value>,
    source: &mut Renamed,
    head_dim: usize,
    context: usize,
) -> Result<()> {
    if let Some(turned) = said.count_if("rope.dimension_count")?
        && turned != head_dim
    {
        out.insert("partial_rotary_factor".into(), (turned as f64 / head_dim as f64).into());
    }
    let factor = said.number_if("rope.scaling.factor")?;
    let trained = said.count_if("rope.scaling.original_context_length")?;
    match said.word_if("rope.scaling.type")?.as_deref() {
        None | Some("none") => {}
        Some(kind @ ("linear" | "yarn")) => {
            let trained = trained.unwrap_or(context);
            out.insert(
                "rope_scaling".into(),
                json!({ "rope_type": kind, "factor": factor, "original_max_position_embeddings": trained }),
            );
        }
        Some(_) => return Err(said.wrong("rope.scaling.type", "none, linear or yarn")),
    }
    let lists =
        (source.take("rope_factors_short.weight")?, source.take("rope_factors_long.weight")?);
    let amplitude = said.number_if("rope.scaling.attn_factor")?;
    if let (Some(short), Some(long)) = lists {
        out.insert("original_max_position_embeddings".into(), trained.unwrap_or(context).into());
        out.insert(
            "rope_scaling".into(),
            json!({
                "rope_type": "longrope", "short_factor": short.values, "long_factor": long.values,
                "attention_factor": amplitude.unwrap_or(1.0),
            }),
        );
    }
    // A divisor for each pair, into which Llama 3's scaling is written.
    if let Some(divisors) = source.take("rope_freqs.weight")? {
        let divisors = divisors.values;
        out.insert(
            "rope_scaling".into(),
            json!({
                "rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "factor": 1.0,
                "attention_factor": 1.0, "original_max_position_embeddings": context,
            }),
        );
    }
    Ok(())
}

/// What single architectures say.
fn particular(
    said: &Config,
    out: &mut Map<String, Value>,
    name: &str,
    head_dim: usize,
    source: &Renamed,
) -> Result<()> {
    let window = said.count_if("attention.sliding_window")?.filter(|window| *window > 0);
    match name {
        "llama" => {
            let has = |name: &str| source.names.contains_key(name);
            out.insert("attention_bias".into(), has("model.layers.0.self_attn.q_proj.bias").into());
            out.insert("mlp_bias".into(), has("model.layers.0.mlp.up_proj.bias").into());
            if window.is_some() {
                out.insert("model_type".into(), "mistral".into());
                out.remove("attention_bias");
                out.remove("mlp_bias");
            }
        }
        "stablelm" => {
            let parallel = said.flag("use_parallel_residual", false)?;
            out.insert("use_parallel_residual".into(), parallel.into());
            let bias = source.names.contains_key("model.layers.0.self_attn.q_proj.bias");
            out.insert("use_qkv_bias".into(), bias.into());
            out.entry("partial_rotary_factor").or_insert(1.0.into());
        }
        "gptneox" => {
            let parallel = said.flag("use_parallel_residual", true)?;
            out.insert("use_parallel_residual".into(), parallel.into());
            out.entry("partial_rotary_factor").or_insert(1.0.into());
        }
        "olmo" => {
            said.only("attention.layer_norm_epsilon", 1e-5)?;
            out.remove("layer_norm_eps");
        }
        "phi2" => {
            out.entry("partial_rotary_factor").or_insert(1.0.into());
        }
        "gemma3" => {
            out.insert("query_pre_attn_scalar".into(), head_dim.into());
            if let Some(base) = said.number_if("rope.freq_base_swa")? {
                out.insert("rope_local_base_freq".into(), base.into());
            }
        }
        "gemma2" => {
            out.insert("query_pre_attn_scalar".into(), head_dim.into());
            for (key, theirs) in [
                ("attn_logit_softcapping", "attn_logit_softcapping"),
                ("final_logit_softcapping", "final_logit_softcapping"),
            ] {
                if let Some(cap) = said.number_if(theirs)? {
                    out.insert(key.into(), cap.into());
                }
            }
        }
        _ => {}
    }
    if let Some(window) = window {
        out.insert("sliding_window".into(), window.into());
    }
    Ok(())
}
