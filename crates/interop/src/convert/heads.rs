//! Other numbers of key heads.

use whatwhere_transformer::{ModelSettings, Parameter, Site};

use super::{Converted, Step};
use crate::{Error, error::Result, places};

pub(super) fn convert(converted: &mut Converted, kv_heads: usize) -> Result<()> {
    let settings = converted.settings.clone();
    let places = places::attentions(&settings);
    let Some(first) = places.first().map(|place| place.heads) else {
        return Err(Error::Refused("kv_heads: the model has no attention".into()));
    };
    if let Some(other) = places.iter().find(|place| place.heads != first) {
        return Err(Error::Refused(format!(
            "kv_heads: {} has other heads than the first layer; expected one number for all",
            other.prefix
        )));
    }
    let (heads, had) = (first.heads, first.kv_heads);
    let fits = |count: usize| count > 0 && heads.is_multiple_of(count);
    if kv_heads == had
        || !fits(kv_heads)
        || !(had.is_multiple_of(kv_heads) || kv_heads.is_multiple_of(had))
    {
        let right: Vec<String> = (1..=heads)
            .filter(|n| *n != had && fits(*n) && (had.is_multiple_of(*n) || n.is_multiple_of(had)))
            .map(|n| n.to_string())
            .collect();
        return Err(Error::Refused(format!(
            "kv_heads = {kv_heads}: the model has {had} key heads for {heads} query heads, expected one of {}",
            right.join(", ")
        )));
    }
    if by_key_head(&settings)? {
        let reason =
            "QK-norm has a gain for every key head, which heads that are pooled do not share";
        return Err(Error::Refused(format!("kv_heads = {kv_heads}: {reason}")));
    }
    if let Some(mixing) = carried(&settings)? {
        let reason = "every key head has gates or a pace of its own, which heads that are pooled or copied do not share";
        return Err(Error::Refused(format!("kv_heads = {kv_heads}: under {mixing} {reason}")));
    }
    for place in &places {
        for part in ["key", "value"] {
            for end in ["weight", "bias"] {
                let name = format!("{}.{part}.{end}", place.prefix);
                let all = converted.parameters.iter_mut();
                all.filter(|one| one.name == name).for_each(|one| {
                    pool(one, had, kv_heads, first.head_dim);
                });
            }
        }
    }
    for table in [&mut converted.settings.encoder, &mut converted.settings.cross] {
        table.remove("kv_heads");
    }
    converted.settings.alternate.iter_mut().for_each(|table| {
        table.remove("kv_heads");
    });
    converted.settings.attention.insert("kv_heads".into(), (kv_heads as i64).into());
    let exact = kv_heads > had;
    converted.steps.push(Step {
        change: format!("{had} key heads to {kv_heads}"),
        exact,
        length: None,
        how: match exact {
            true => "every key head is written out for the query heads that read it".into(),
            false => format!(
                "keys and values of {} heads each become their mean: not exact, to be trained further",
                had / kv_heads
            ),
        },
    });
    Ok(())
}

/// Whether key heads have gains of their own.
fn by_key_head(settings: &ModelSettings) -> Result<bool> {
    let site = if settings.decoder_depth() > 0 { Site::Decoder } else { Site::Encoder };
    let own = toml::Value::try_from(settings.attention(site, 0)?)
        .map_err(|e| Error::Refused(e.to_string()))?;
    let kind = own.get("qk_norm").and_then(toml::Value::as_str).unwrap_or("none");
    Ok(!matches!(kind, "none" | "head"))
}

/// The mixing of a layer whose state is carried from token to token, if there is one.
fn carried(settings: &ModelSettings) -> Result<Option<&'static str>> {
    for (site, depth) in
        [(Site::Encoder, settings.encoder_depth()), (Site::Decoder, settings.decoder_depth())]
    {
        for layer in 0..depth {
            let mixing = settings.attention(site, layer)?.mixing;
            if mixing.is_causal() {
                return Ok(Some(mixing.name()));
            }
        }
    }
    Ok(None)
}

/// Columns of `had` heads as those of `wanted`: their mean, or copies of them.
fn pool(one: &mut Parameter, had: usize, wanted: usize, head_dim: usize) {
    let columns = had * head_dim;
    let mut values = Vec::with_capacity(one.values.len() / had * wanted);
    for row in one.values.chunks(columns) {
        for to in 0..wanted {
            for channel in 0..head_dim {
                let at = |head: usize| f64::from(row[head * head_dim + channel]);
                values.push(match wanted > had {
                    true => at(to * had / wanted) as f32,
                    false => {
                        let group = had / wanted;
                        let sum: f64 = (to * group..(to + 1) * group).map(at).sum();
                        (sum / group as f64) as f32
                    }
                });
            }
        }
    }
    one.values = values;
    if let Some(last) = one.shape.last_mut() {
        *last = wanted * head_dim;
    }
}
