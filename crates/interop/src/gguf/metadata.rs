//! What a GGUF file says of a model, in the words of `config.json`; a key that nobody understands is refused by name.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Renamed, names::Architecture};
use crate::{
    error::Result,
    huggingface::{config::Config, rotary::share_of},
    turn::Heads,
};

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
    // The second is what llama.cpp's loader says and does not read.
    said.understood(&["vocab_size", "rope.scaling.finetuned"]);
    layout(&said, architecture.name)?;
    if architecture.name != "bert" {
        said.only("attention.causal", true)?;
    }
    if said.count_if("expert_count")?.is_some_and(|count| count > 0) {
        return Err(said.wrong("expert_count", "0: a mixture of experts is not imported"));
    }
    said.only("expert_used_count", 0)?;
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
    } else if architecture.name == "mpt" {
        if said.number("attention.max_alibi_bias", 0.0)? != 8.0 {
            return Err(said.wrong("attention.max_alibi_bias", "8.0"));
        }
        said.only("attention.clamp_kqv", Value::Null)?;
        if kv_heads != heads {
            return Err(said.wrong("attention.head_count_kv", &format!("head_count = {heads}")));
        }
        if inner % width.max(1) != 0 {
            let expected = format!("a multiple of embedding_length = {width}");
            return Err(said.wrong("feed_forward_length", &expected));
        }
        let epsilon = said.number("attention.layer_norm_epsilon", 1e-5)?;
        out.extend(object(json!({
            "d_model": width, "n_heads": heads, "n_layers": layers, "max_seq_len": context,
            "expansion_ratio": inner / width.max(1), "no_bias": true, "layer_norm_epsilon": epsilon,
            "attn_config": { "alibi": true },
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

/// In which order rows of a tensor stand: as in the model's own files, but for Llama's queries and keys.
fn layout(said: &Config, name: &str) -> Result<()> {
    match said.word_if("tensor_data_layout")?.as_deref() {
        None | Some("reference") => Ok(()),
        Some("Meta AI original pth") if name == "llama" => Ok(()),
        Some(_) => Err(said.wrong("tensor_data_layout", "\"reference\"")),
    }
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
        out.insert("partial_rotary_factor".into(), share_of(turned, head_dim).into());
    }
    // The second is an older name; without the name of a scaling a factor is a linear one.
    let factor = said.number_if("rope.scaling.factor")?.or(said.number_if("rope.scale_linear")?);
    let factor = factor.filter(|factor| *factor != 0.0);
    let trained = said.count_if("rope.scaling.original_context_length")?;
    let kind = said.word_if("rope.scaling.type")?;
    let unnamed = || factor.filter(|factor| *factor != 1.0).map(|_| "linear");
    match kind.as_deref().or_else(unnamed) {
        None | Some("none") => {}
        Some(kind @ ("linear" | "yarn")) => {
            let factor = factor.unwrap_or(1.0);
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

/// What Gemma's queries are divided by the root of, which a file does not say: llama.cpp goes by the layers of its largest
/// model, 27B, which takes the width for each head.
fn scalar(out: &Map<String, Value>, head_dim: usize, largest: u64) -> Value {
    let said = |key: &str| out.get(key).and_then(Value::as_u64);
    match (said("hidden_size"), said("num_attention_heads")) {
        (Some(width), Some(heads)) if said("num_hidden_layers") == Some(largest) && heads > 0 => {
            (width / heads).into()
        }
        _ => head_dim.into(),
    }
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
            out.insert("query_pre_attn_scalar".into(), scalar(out, head_dim, 62));
            if let Some(base) = said.number_if("rope.freq_base_swa")? {
                out.insert("rope_local_base_freq".into(), base.into());
            }
        }
        "gemma2" => {
            out.insert("query_pre_attn_scalar".into(), scalar(out, head_dim, 46));
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

#[cfg(test)]
mod tests {
    use whatwhere_attention::{Position, Scaling};
    use whatwhere_transformer::{ModelSettings, Site};

    use super::*;
    use crate::{gguf::names::ARCHITECTURES, huggingface::family, tensors::Tensors};

    /// The settings of a header that says this besides its sizes.
    fn settings(name: &str, more: Value) -> Result<ModelSettings> {
        let mut sizes = object(json!({
            "context_length": 64, "embedding_length": 32, "block_count": 2, "feed_forward_length": 48,
            "attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-6,
        }));
        sizes.extend(object(more));
        let values = sizes.into_iter().map(|(key, value)| (format!("{name}.{key}"), value));
        let architecture = ARCHITECTURES.iter().find(|known| known.name == name).unwrap();
        let mut source = Renamed::new(architecture, Tensors::default())?;
        let config = config(Path::new("x.gguf"), architecture, &values.collect(), &mut source)?;
        let read = (family::find(&config)?.settings)(&config)?;
        config.finish()?;
        // As many tokens as the table of embeddings has rows, of which there is none.
        read.set("vocabulary", 64usize).model()
    }

    #[test]
    fn the_largest_gemmas_scale_by_their_width() {
        for (name, layers, scalar) in
            [("gemma2", 2, 8.0), ("gemma2", 46, 16.0), ("gemma3", 48, 8.0), ("gemma3", 62, 16.0)]
        {
            let more = json!({ "block_count": layers, "attention.key_length": 8 });
            let own = settings(name, more).unwrap().attention(Site::Decoder, 0).unwrap();
            let scale = serde_json::to_value(&own.score).unwrap()["scale"].as_f64().unwrap();
            assert!((scale.powi(-2) - scalar).abs() < 1e-3, "{name} of {layers}: {scale}");
        }
    }

    #[test]
    fn keys_are_harmless_at_harmless_values_only() {
        for (more, said) in [
            (json!({ "rope.scaling.finetuned": false }), Ok(())),
            (json!({ "tensor_data_layout": "reference" }), Ok(())),
            (json!({ "tensor_data_layout": "Meta AI original pth" }), Ok(())),
            (json!({ "tensor_data_layout": "other" }), Err("llama.tensor_data_layout = \"other\"")),
            (json!({ "attention.causal": true, "expert_count": 0 }), Ok(())),
            (json!({ "attention.causal": false }), Err("llama.attention.causal = false")),
            (json!({ "expert_count": 8 }), Err("a mixture of experts is not imported")),
            (json!({ "rope.scale_linear": 1.0 }), Ok(())),
            (json!({ "unheard_of": 1.0 }), Err("llama.unheard_of = 1.0")),
        ] {
            let found = settings("llama", more.clone()).map(|_| ()).map_err(|e| e.to_string());
            match said {
                Ok(()) => assert_eq!(found, Ok(()), "{more}"),
                Err(said) => {
                    assert!(found.as_ref().unwrap_err().contains(said), "{more}: {found:?}")
                }
            }
        }
    }

    #[test]
    fn a_factor_without_a_name_scales_linearly() {
        for more in [
            json!({ "rope.scale_linear": 4.0 }),
            json!({ "rope.scaling.factor": 4.0 }),
            json!({ "rope.scaling.factor": 4.0, "rope.scaling.type": "linear" }),
        ] {
            let own = settings("llama", more.clone()).unwrap().attention(Site::Decoder, 0).unwrap();
            let Position::Rotary(rotary) = own.position.first().unwrap() else { panic!() };
            assert_eq!(rotary.scaling, Scaling::Linear { factor: 4.0 }, "{more}");
        }
    }
}
