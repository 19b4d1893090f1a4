//! What a GGUF file says of a model, from its settings: the other way round than [`super::metadata`].

use std::collections::BTreeMap;

use whatwhere_attention::{AttentionSettings, Position, Scaling};
use whatwhere_transformer::{ModelSettings, NormKind, ResidualKind, Site};

use super::write::Typed;
use crate::{Error, error::Result, export::INSTEAD};

/// The values of an architecture, and the tensors that say something of the settings.
pub(super) struct Said {
    pub(super) values: Vec<(String, Typed)>,
    pub(super) tensors: BTreeMap<String, Vec<f32>>,
}

impl Said {
    fn add(&mut self, key: &str, value: impl Into<Typed>) {
        self.values.push((key.into(), value.into()));
    }

    fn add_if(&mut self, key: &str, value: Option<impl Into<Typed>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }
}

/// The rotary encoding of a layer, if it has one.
fn rotary(layer: &AttentionSettings) -> Option<&whatwhere_attention::position::Rotary> {
    layer.position.iter().find_map(|position| match position {
        Position::Rotary(rotary) => Some(rotary),
        _ => None,
    })
}

/// The tokens that a layer's window shows, the own one among them.
fn window(layer: &AttentionSettings) -> Option<usize> {
    let pattern = serde_json::to_value(&layer.pattern).ok()?;
    let left = pattern["left"].as_u64().filter(|_| pattern["kind"] == "window")?;
    Some(left as usize + 1)
}

/// What to say of a model under the name of an architecture; keys are without the name.
pub(super) fn said(name: &str, settings: &ModelSettings, context: usize) -> Result<Said> {
    let site = if settings.decoder_depth() == 0 { Site::Encoder } else { Site::Decoder };
    let layers: Vec<AttentionSettings> = (0..settings.layers)
        .map(|layer| settings.attention(site, layer))
        .collect::<std::result::Result<_, _>>()?;
    let first = &layers[0];
    let sizes = first.sizes().map_err(whatwhere_transformer::Error::from)?;
    let limit = first.position.iter().filter_map(Position::limit).min();
    let mut out = Said { values: Vec::new(), tensors: BTreeMap::new() };
    out.add("vocab_size", settings.vocabulary);
    out.add("context_length", limit.unwrap_or(context));
    out.add("embedding_length", settings.width);
    out.add("block_count", settings.layers);
    out.add("feed_forward_length", settings.feed_forward_width());
    out.add("attention.head_count", sizes.heads);
    out.add("attention.head_count_kv", sizes.kv_heads);
    let epsilon = match settings.norm {
        NormKind::Rms => "attention.layer_norm_rms_epsilon",
        NormKind::Layer => "attention.layer_norm_epsilon",
    };
    out.add(epsilon, settings.epsilon);
    match name {
        "gpt2" | "bloom" => return Ok(out),
        "bert" => {
            out.add("attention.causal", false);
            return Ok(out);
        }
        "mpt" => {
            // Press's slopes.
            out.add("attention.max_alibi_bias", 8.0);
            return Ok(out);
        }
        _ => {}
    }
    out.add("attention.key_length", sizes.head_dim);
    out.add("attention.value_length", sizes.head_dim);
    let full = layers.iter().find(|layer| window(layer).is_none()).unwrap_or(first);
    let sliding = layers.iter().find(|layer| window(layer).is_some());
    if let Some(rotary) = rotary(full) {
        out.add("rope.freq_base", rotary.base);
        out.add("rope.dimension_count", rotary.channels.of(sizes.head_dim).len());
        let is_one_list = divisor_list(&rotary.scaling).is_some();
        if name != "phi3" && matches!(rotary.scaling, Scaling::Longrope { .. }) && !is_one_list {
            let reason = "attention.position.scaling = longrope: llama.cpp computes it for phi3";
            return Err(Error::Refused(format!("{reason}; {INSTEAD}")));
        }
        scaling(&mut out, &rotary.scaling, rotary.channels.of(sizes.head_dim).len(), rotary.base)?;
    }
    out.add_if("attention.sliding_window", sliding.and_then(window));
    match name {
        "stablelm" | "gptneox" => {
            out.add("use_parallel_residual", settings.residual != ResidualKind::Sequential);
        }
        "gemma2" => {
            out.add_if("attn_logit_softcapping", first.soft_cap.map(f64::from));
            out.add_if("final_logit_softcapping", settings.output_soft_cap.map(f64::from));
        }
        "gemma3" => {
            out.add_if("rope.freq_base_swa", sliding.and_then(rotary).map(|rotary| rotary.base));
        }
        _ => {}
    }
    if sliding.is_some() && !matches!(name, "gemma2" | "gemma3") {
        let reason = format!("attention.pattern = window: llama.cpp reads {name} without windows");
        return Err(Error::Refused(format!("{reason}; {INSTEAD}")));
    }
    Ok(out)
}

/// LongRoPE with one list for all lengths and nothing else: what a file says of Llama 3's scaling.
fn divisor_list(scaling: &Scaling) -> Option<Vec<f32>> {
    match scaling {
        Scaling::Longrope { short_factor, long_factor, attention_factor: Some(1.0), .. }
            if short_factor == long_factor =>
        {
            Some(short_factor.iter().map(|divisor| *divisor as f32).collect())
        }
        _ => None,
    }
}

/// How angles are scaled: by name, or by a divisor for each pair.
fn scaling(out: &mut Said, scaling: &Scaling, width: usize, base: f64) -> Result<()> {
    if let Some(list) = divisor_list(scaling) {
        out.tensors.insert("rope_freqs.weight".into(), list);
        return Ok(());
    }
    match scaling {
        Scaling::None => {}
        Scaling::Linear { factor } => {
            out.add("rope.scaling.type", "linear");
            out.add("rope.scaling.factor", *factor);
        }
        // llama.cpp takes the paper's bounds for granted.
        Scaling::Yarn { factor, length, .. } => {
            out.add("rope.scaling.type", "yarn");
            out.add("rope.scaling.factor", *factor);
            out.add("rope.scaling.original_context_length", *length);
        }
        Scaling::Llama3 { .. } => {
            let divisors = divisors(scaling, width, base);
            out.tensors.insert("rope_freqs.weight".into(), divisors);
        }
        Scaling::Longrope { length, short_factor, long_factor, .. } => {
            let (_, amplitude) = scaling.frequencies(base, width, 1);
            out.add("rope.scaling.original_context_length", *length);
            out.add("rope.scaling.attn_factor", amplitude);
            for (name, list) in [("short", short_factor), ("long", long_factor)] {
                let list = list.iter().map(|divisor| *divisor as f32).collect();
                out.tensors.insert(format!("rope_factors_{name}.weight"), list);
            }
        }
        Scaling::Ntk { .. } | Scaling::DynamicNtk { .. } => {
            let kind = serde_json::to_value(scaling).map_err(|e| Error::Refused(e.to_string()))?;
            let kind = kind["kind"].as_str().unwrap_or_default().to_owned();
            let reason = "GGUF says linear, yarn, llama3 and longrope";
            return Err(Error::Refused(format!(
                "attention.position.scaling = {kind}: {reason}; {INSTEAD}"
            )));
        }
    }
    Ok(())
}

/// What each pair's angle is divided by.
fn divisors(scaling: &Scaling, width: usize, base: f64) -> Vec<f32> {
    let (plain, _) = Scaling::None.frequencies(base, width, 1);
    let (scaled, _) = scaling.frequencies(base, width, 1);
    plain.iter().zip(&scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect()
}

/// A number as a file holds it, in 32 bits.
pub(super) fn single(number: f64) -> f64 {
    (number as f32).to_string().parse().unwrap_or(number)
}

/// A layer as a file can hold it: numbers of 32 bits, and scalings by divisors in one spelling.
pub(super) fn round(layer: &mut AttentionSettings) {
    let head_dim = layer.head_dim.unwrap_or(layer.width / layer.heads.max(1));
    for position in &mut layer.position {
        let Position::Rotary(rotary) = position else { continue };
        let width = rotary.channels.of(head_dim).len();
        let scaling = &rotary.scaling;
        let round =
            |list: &[f64]| list.iter().map(|divisor| single(*divisor)).collect::<Vec<f64>>();
        let (short_factor, long_factor, length) = match scaling {
            Scaling::Longrope { short_factor, long_factor, length, .. } => {
                (round(short_factor), round(long_factor), *length)
            }
            Scaling::Llama3 { .. } => {
                let list = divisors(scaling, width, rotary.base);
                let list: Vec<f64> = list.into_iter().map(|d| single(d.into())).collect();
                (list.clone(), list, 1)
            }
            _ => {
                rotary.base = single(rotary.base);
                continue;
            }
        };
        let (_, amplitude) = scaling.frequencies(rotary.base, width, 1);
        rotary.base = single(rotary.base);
        rotary.scaling = Scaling::Longrope {
            factor: 1.0,
            // One list for all lengths does not ask for one.
            length: if short_factor == long_factor { 1 } else { length },
            short_factor,
            long_factor,
            attention_factor: Some(single(amplitude)),
        };
    }
}
