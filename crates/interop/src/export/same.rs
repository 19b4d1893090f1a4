//! Whether two settings make the same model, and where they differ if they do not.

use serde_json::Value;
use whatwhere_attention::{AttentionBias, AttentionSettings};
use whatwhere_transformer::{Activation, Family, ModelSettings, NormKind, Site};

use crate::{Error, error::Result};

/// Where settings that a family's config means differ from a run's, whatever the words and whatever only training asks for:
/// `setting = the run's, the family has its own`.
pub(crate) fn differences(read: &ModelSettings, own: &ModelSettings) -> Result<Vec<String>> {
    differences_as(read, own, &|_| {})
}

/// [`differences`] of what both are after a change, such as rounding.
pub(crate) fn differences_as(
    read: &ModelSettings,
    own: &ModelSettings,
    change: &dyn Fn(&mut AttentionSettings),
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    differing("", &said(&plain(read))?, &said(&plain(own))?, &mut found);
    if found.is_empty() {
        for (site, label) in
            [(Site::Encoder, "encoder."), (Site::Decoder, "attention."), (Site::Cross, "cross.")]
        {
            for layer in 0..depth(own, site) {
                let of = |settings: &ModelSettings| layer_of(settings, site, layer, change);
                differing(label, &of(read)?, &of(own)?, &mut found);
            }
        }
    }
    if found.is_empty() && read.shapes()? != own.shapes()? {
        found.push("shapes of parameters".into());
    }
    Ok(found)
}

/// Adds the keys in which two objects differ, each once.
fn differing(label: &str, read: &Value, own: &Value, found: &mut Vec<String>) {
    let (Some(read), Some(own)) = (read.as_object(), own.as_object()) else { return };
    for key in own.keys().chain(read.keys().filter(|key| !own.contains_key(*key))) {
        if own.get(key) == read.get(key) {
            continue;
        }
        let name = format!("{label}{key} = ");
        if !found.iter().any(|known| known.starts_with(&name)) {
            let word = |value: Option<&Value>| value.map_or("nothing".into(), short);
            let (own, read) = (word(own.get(key)), word(read.get(key)));
            found.push(format!("{name}{own}, the family has {read}"));
        }
    }
}

/// A value in few words: a choice by its name unless there is more to say of it.
fn short(value: &Value) -> String {
    match value {
        Value::Array(all) if all.len() == 1 => short(&all[0]),
        Value::Object(table) if table.len() == 1 => short(&table["kind"]),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    }
}

fn said(value: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|e| Error::Refused(e.to_string()))
}

fn depth(settings: &ModelSettings, site: Site) -> usize {
    match site {
        Site::Encoder => settings.encoder_depth(),
        Site::Decoder => settings.decoder_depth(),
        Site::Cross if settings.family == Family::EncoderDecoder => settings.layers,
        Site::Cross => 0,
    }
}

/// The attention of one layer, sizes spelled out and without what only training asks for.
fn layer_of(
    settings: &ModelSettings,
    site: Site,
    layer: usize,
    change: &dyn Fn(&mut AttentionSettings),
) -> Result<Value> {
    let mut own = settings.attention(site, layer)?;
    own.kv_heads = Some(own.kv_heads.unwrap_or(own.heads));
    own.head_dim = Some(own.head_dim.unwrap_or(own.width / own.heads.max(1)));
    own.dropout = 0.0;
    change(&mut own);
    said(&own)
}

/// Settings without attention, in one spelling.
fn plain(settings: &ModelSettings) -> ModelSettings {
    let mut plain = settings.clone();
    if plain.activation == Activation::Swiglu {
        (plain.activation, plain.gated) = (Activation::Silu, true);
    }
    plain.feed_forward = Some(settings.feed_forward_width());
    plain.encoder_layers = Some(settings.encoder_depth());
    plain.norm_bias = match settings.norm {
        NormKind::Layer => Some(settings.norm_bias.unwrap_or(settings.bias)),
        NormKind::Rms => None,
    };
    plain.scale_embeddings = Some(settings.scales_embeddings().unwrap_or(false));
    let default = ModelSettings::default();
    (plain.dropout, plain.init, plain.recompute) = (0.0, default.init, default.recompute);
    (plain.attention, plain.encoder) = (default.attention.clone(), default.encoder.clone());
    (plain.cross, plain.alternate) = (default.cross.clone(), default.alternate);
    // More than one segment at a time is for training; a cache sees all.
    plain.segment_memory = 0;
    plain
}

/// The same model with a bias, of zeros, wherever there can be one: families that always have them then fit.
pub(crate) fn widened(settings: &ModelSettings) -> ModelSettings {
    let mut wide = settings.clone();
    wide.bias = true;
    wide.norm_bias = None;
    let all = said(&AttentionBias::All).ok().and_then(|word| word.as_str().map(String::from));
    let all = toml::Value::String(all.unwrap_or_default());
    for table in [&mut wide.encoder, &mut wide.cross].into_iter().chain(&mut wide.alternate) {
        table.remove("bias");
    }
    wide.attention.insert("bias".into(), all);
    wide
}
