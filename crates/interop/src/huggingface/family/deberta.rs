//! DeBERTa-v2 and v3: BERT's stream with disentangled attention, one table of vectors by distance for all layers, and places
//! added to the embeddings where the config asks for them. Without the convolution of the larger v2 models.

use serde_json::Value;

use super::{Family, bert};
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::Names,
};

pub(super) const FAMILY: Family =
    Family { types: &["deberta-v2"], prefix: "deberta.", settings, names };

fn settings(config: &Config) -> Result<Settings> {
    let width = config.count("hidden_size")?;
    config.only("embedding_size", width)?;
    config.only("conv_kernel_size", 0)?;
    config.understood(&["conv_act", "conv_groups", "legacy", "padding_idx"]);
    config.understood(&["pooler_hidden_act", "pooler_hidden_size", "max_relative_positions"]);
    let mut position = Vec::new();
    if config.flag("position_biased_input", true)? {
        position.push(bert::learned(config, 0)?);
    }
    if config.flag("relative_attention", false)? {
        position.push(disentangled(config)?);
    } else {
        config.understood(&["norm_rel_ebd", "position_buckets", "share_att_key"]);
    }
    let position = if position.is_empty() { vec![Settings::kind("none")] } else { position };
    let heads = config.count("num_attention_heads")?;
    let head_dim = config.count_if("attention_head_size")?.unwrap_or(width / heads.max(1));
    let settings = bert::common(config, Settings::default())?
        .set("attention.position", position)
        .set_unless("attention.head_dim", width / heads.max(1), head_dim)
        .epsilon(config.number("layer_norm_eps", 1e-7)?);
    // Scores are divided as if there were the terms that are named, whether there are or not.
    let terms = words(config, "pos_att_type")?.len();
    let settings = match config.flag("relative_attention", false)? {
        false if terms > 0 => {
            let scale = ((head_dim * (1 + terms)) as f64).powf(-0.5);
            settings.set("attention.score", Settings::kind("dot").set("scale", scale))
        }
        _ => settings,
    };
    let [dense, bias] = head(config)?;
    Ok(bert::head(config, settings, &dense, &bias))
}

fn disentangled(config: &Config) -> Result<Settings> {
    let (mut asks, mut asked) = (false, false);
    for kind in words(config, "pos_att_type")? {
        match kind.as_str() {
            "c2p" => asks = true,
            "p2c" => asked = true,
            _ => return Err(config.wrong("pos_att_type", "c2p, p2c or both")),
        }
    }
    let norms = words(config, "norm_rel_ebd")?;
    if norms.iter().any(|norm| norm != "none" && norm != "layer_norm") {
        return Err(config.wrong("norm_rel_ebd", "none or layer_norm"));
    }
    let below = |key: &str| -> Result<Option<usize>> {
        // Below 1 means that it is not set.
        match config.get(key).and_then(Value::as_i64) {
            Some(..1) => Ok(None),
            _ => config.count_if(key),
        }
    };
    let length = match below("max_relative_positions")? {
        Some(length) => length,
        None => config.count("max_position_embeddings")?,
    };
    Ok(Settings::kind("disentangled")
        .set("buckets", below("position_buckets")?.unwrap_or(0))
        .set("length", length)
        .set("content_to_position", asks)
        .set("position_to_content", asked)
        .set("shared_projections", config.flag("share_att_key", false)?)
        .set("norm", norms.iter().any(|norm| norm == "layer_norm"))
        .set("epsilon", config.number("layer_norm_eps", 1e-7)?))
}

/// A list of words, or one word with bars between them, as files on the hub have it.
fn words(config: &Config, key: &str) -> Result<Vec<String>> {
    let split = |text: &str| -> Vec<String> { text.split('|').map(|w| w.trim().into()).collect() };
    let wrong = || config.wrong(key, "words");
    match config.get(key) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(split(text)),
        Some(Value::Array(all)) => {
            all.iter().map(|word| word.as_str().map(String::from).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// Names of the head's dense layer and of its bias: BERT's, or those that the makers' own files have.
fn head(config: &Config) -> Result<[String; 2]> {
    Ok(match config.flag("legacy", true)? {
        true => ["cls.predictions.transform.dense".into(), "cls.predictions.bias".into()],
        false => ["lm_predictions.lm_head.dense".into(), "lm_predictions.lm_head.bias".into()],
    })
}

fn names(config: &Config) -> Result<Names> {
    let (block, ours) = ("deberta.encoder.layer.{}", "encoder.blocks.{}");
    let own = format!("{ours}.attention.position.0.Disentangled");
    let mut names = bert::embeddings("deberta", 0)
        .keep("deberta.encoder.rel_embeddings.weight", &format!("{own}.table"))
        .norm("deberta.encoder.LayerNorm", &own);
    // One projection for each term that there is: what queries ask for first.
    let kinds = words(config, "pos_att_type")?;
    let parts = [("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")];
    let parts = parts.into_iter().filter(|(kind, _)| kinds.iter().any(|other| other == kind));
    for (place, (_, part)) in parts.enumerate() {
        let theirs = format!("{block}.attention.self.{part}");
        names = names.linear(&theirs, &format!("{own}.projections.{place}"));
    }
    let names = bert::layers(
        names,
        "deberta",
        ["self.query_proj", "self.key_proj", "self.value_proj", "output.dense"],
    );
    let [dense, bias] = head(config)?;
    let norm = dense.replace("dense", "LayerNorm");
    let names = bert::scores(names, &dense, &norm, &bias, "cls.predictions.decoder");
    // What the makers' files hold of the way they were trained, and transformers leaves out.
    let mut left: Vec<String> = ["word", "position"]
        .map(|kind| format!("deberta.embeddings.{kind}_embeddings._weight"))
        .to_vec();
    // A norm of vectors by distance, of which there may be none.
    left.extend(["weight", "bias"].map(|end| format!("deberta.encoder.LayerNorm.{end}")));
    let mut heads = vec!["mask_predictions"];
    heads.extend(dense.starts_with("cls.").then_some("lm_predictions.lm_head"));
    for head in heads {
        left.push(format!("{head}.bias"));
        for part in ["dense", "LayerNorm", "classifier"] {
            left.extend(["weight", "bias"].map(|end| format!("{head}.{part}.{end}")));
        }
    }
    Ok(left.iter().fold(names, |names, name| names.ignore(name)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_of_the_hub_write_lists_with_bars() {
        let json = r#"{"pos_att_type": "p2c|c2p", "norm_rel_ebd": "layer_norm", "position_buckets": 256,
            "max_relative_positions": -1, "max_position_embeddings": 512, "share_att_key": true}"#;
        let Ok(Value::Object(values)) = serde_json::from_str(json) else { panic!("{json}") };
        let config = Config::new(Path::new("config.json"), "", values);
        let read = format!("{:?}", disentangled(&config).unwrap());
        for (key, value) in [
            ("buckets", "Integer(256)"),
            ("length", "Integer(512)"),
            ("content_to_position", "Boolean(true)"),
            ("position_to_content", "Boolean(true)"),
            ("norm", "Boolean(true)"),
        ] {
            assert!(read.contains(&format!("{key:?}: {value}")), "{key}: {read}");
        }
    }
}
