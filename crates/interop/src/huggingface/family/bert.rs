//! Encoders of BERT's kind: norms after sublayers, a norm of the embeddings, and a head of dense, activation and norm where a
//! file has one. RoBERTa and Longformer have places that begin after padding, RoFormer and ALBERT none or narrow ones.

use serde_json::Value;

use super::Family;
use crate::{
    error::Result,
    huggingface::{config::Config, settings::Settings},
    table::Names,
    turn::Turn,
};

pub(super) const BERT: Family =
    Family { types: &["bert"], prefix: "bert.", settings: bert, names: bert_names };
pub(super) const ROBERTA: Family = Family {
    types: &["roberta", "xlm-roberta", "camembert"],
    prefix: "roberta.",
    settings: roberta,
    names: roberta_names,
};
pub(super) const LONGFORMER: Family = Family {
    types: &["longformer"],
    prefix: "longformer.",
    settings: longformer,
    names: longformer_names,
};
pub(super) const ROFORMER: Family =
    Family { types: &["roformer"], prefix: "roformer.", settings: roformer, names: roformer_names };
pub(super) const DISTILBERT: Family = Family {
    types: &["distilbert"],
    prefix: "distilbert.",
    settings: distilbert,
    names: distilbert_names,
};
pub(super) const ALBERT: Family =
    Family { types: &["albert"], prefix: "albert.", settings: albert, names: albert_names };

/// The sizes by their names in most of them.
pub(super) fn common(config: &Config, position: Settings) -> Result<Settings> {
    common_with(config, position, "gelu")
}

/// The same with the activation of those that do not say it.
fn common_with(config: &Config, position: Settings, activation: &str) -> Result<Settings> {
    let activation = config.word_if("hidden_act")?.unwrap_or(activation.into());
    config.only("position_embedding_type", "absolute")?;
    config.understood(&["max_position_embeddings", "gradient_checkpointing"]);
    let types = match config.is_absent("type_vocab_size") {
        true if config.model_type()? == "deberta-v2" => 0,
        true => 2,
        false => config.count_if("type_vocab_size")?.unwrap_or(0),
    };
    stream(
        config,
        ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"],
        position,
    )?
    .set_unless("token_types", 0, types)
    .epsilon(config.number("layer_norm_eps", 1e-12)?)
    .activation(config, "hidden_act", &activation, false)
}

/// What all of them have.
fn stream(config: &Config, keys: [&str; 4], position: Settings) -> Result<Settings> {
    let [width, layers, heads, inner] = keys;
    Ok(Settings::default()
        .set("family", "encoder")
        .set("vocabulary", config.count("vocab_size")?)
        .set("width", config.count(width)?)
        .set("layers", config.count(layers)?)
        .set("norm", "layer")
        .set("norm_place", "post")
        .set("bias", true)
        .set("embedding_norm", true)
        .set("feed_forward", config.count(inner)?)
        .set("tied", config.flag("tie_word_embeddings", true)?)
        .set("attention.heads", config.count(heads)?)
        .set("attention.bias", true)
        .set("attention.position", position))
}

/// The head, where the file has one: a transform by the name of its dense layer, and a bias.
pub(super) fn head(config: &Config, settings: Settings, dense: &str, bias: &str) -> Settings {
    settings
        .set_unless("output_transform", false, config.has(&format!("{dense}.weight")))
        .set_unless("output_bias", false, config.has(bias))
}

/// RoBERTa's head has GELU, whatever the layers have.
fn gelu_head(config: &Config, settings: Settings) -> Result<Settings> {
    let activation = config.word_if("hidden_act")?.unwrap_or("gelu".into());
    if config.has("lm_head.dense.weight") && !["gelu", "gelu_python"].contains(&activation.as_str())
    {
        return Err(
            config.wrong("hidden_act", "gelu, as the head has it; a model here has one activation")
        );
    }
    Ok(head(config, settings, "lm_head.dense", "lm_head.bias"))
}

pub(super) fn learned(config: &Config, dropped: usize) -> Result<Settings> {
    let length = config.count("max_position_embeddings")?.saturating_sub(dropped);
    Ok(Settings::kind("learned").set("length", length))
}

/// Rows of the table of places that belong to no token.
fn before_text(config: &Config) -> Result<usize> {
    Ok(config.count_if("pad_token_id")?.unwrap_or(1) + 1)
}

const CLS: &str = "cls.predictions";

fn bert(config: &Config) -> Result<Settings> {
    let settings = common(config, learned(config, 0)?)?;
    Ok(head(config, settings, &format!("{CLS}.transform.dense"), &format!("{CLS}.bias")))
}

fn roberta(config: &Config) -> Result<Settings> {
    let settings = common(config, learned(config, before_text(config)?)?)?;
    gelu_head(config, settings)
}

fn longformer(config: &Config) -> Result<Settings> {
    config.only("attention_mode", "longformer")?;
    config.only("onnx_export", false)?;
    config.understood(&["ignore_attention_mask"]);
    let layers = config.count("num_hidden_layers")?;
    let windows: Option<Vec<usize>> = match config.get("attention_window") {
        Some(Value::Array(all)) => all.iter().map(|w| w.as_u64().map(|w| w as usize)).collect(),
        Some(one) => one.as_u64().map(|one| vec![one as usize; layers.min(1)]),
        None => Some(vec![512]),
    };
    let is_right = |w: &Vec<usize>| {
        (w.len() == 1 || w.len() == layers)
            && w.iter().all(|w| *w >= 2 && *w < 1 << 31 && w.is_multiple_of(2))
    };
    let Some(windows) = windows.filter(is_right) else {
        return Err(config.wrong("attention_window", "an even size, or one for each layer"));
    };
    let settings = common(config, learned(config, before_text(config)?)?)?;
    let settings = gelu_head(config, settings)?;
    let of =
        |window: &usize| Settings::kind("window").set("left", window / 2).set("right", window / 2);
    if windows.iter().all(|window| *window == windows[0]) {
        return Ok(settings.set("attention.pattern", of(&windows[0])));
    }
    let turns: Vec<Settings> =
        windows.iter().map(|window| Settings::default().set("pattern", of(window))).collect();
    Ok(settings.set("alternate", turns))
}

fn roformer(config: &Config) -> Result<Settings> {
    config.only("rotary_value", false)?;
    let width = config.count("hidden_size")?;
    let narrow = config.count_if("embedding_size")?.filter(|narrow| *narrow != width);
    let position = Settings::kind("rotary").set("layout", "interleaved");
    let settings = common(config, position)?.set_if("embedding_width", narrow);
    Ok(head(config, settings, &format!("{CLS}.transform.dense"), &format!("{CLS}.bias")))
}

fn distilbert(config: &Config) -> Result<Settings> {
    // Sinusoids are stored like any table.
    config.understood(&["sinusoidal_pos_embds", "tie_weights_"]);
    let activation = config.word_if("activation")?.unwrap_or("gelu".into());
    let settings =
        stream(config, ["dim", "n_layers", "n_heads", "hidden_dim"], learned(config, 0)?)?
            .epsilon(1e-12)
            .activation(config, "activation", &activation, false)?;
    Ok(head(config, settings, "vocab_transform", "vocab_projector.bias"))
}

fn albert(config: &Config) -> Result<Settings> {
    for (key, value) in [
        ("num_hidden_groups", 1),
        ("inner_group_num", 1),
        ("num_memory_blocks", 0),
        ("gap_size", 0),
    ] {
        config.only(key, value)?;
    }
    config.understood(&["down_scale_factor", "net_structure_type"]);
    let narrow = config.count_if("embedding_size")?.unwrap_or(128);
    let settings = common_with(config, learned(config, 0)?, "gelu_new")?
        .set("share_layers", true)
        .set("embedding_width", narrow);
    Ok(head(config, settings, "predictions.dense", "predictions.bias"))
}

/// Embeddings, places, types and their norm.
pub(super) fn embeddings(prefix: &str, dropped: usize) -> Names {
    let theirs = format!("{prefix}.embeddings");
    let places = if dropped == 0 { vec![] } else { vec![Turn::DropRows(dropped)] };
    Names::default()
        .keep(&format!("{theirs}.word_embeddings.weight"), "embedding.weight")
        .turned(
            &format!("{theirs}.position_embeddings.weight"),
            "encoder.position.0.Learned.table",
            places,
        )
        .keep(&format!("{theirs}.token_type_embeddings.weight"), "types.weight")
        .norm(&format!("{theirs}.LayerNorm"), "encoder.embedding_norm")
        .ignore(&format!("{theirs}.position_ids"))
        .ignore(&format!("{prefix}.pooler.dense.weight"))
        .ignore(&format!("{prefix}.pooler.dense.bias"))
}

/// Names of an attention's parts in most of them.
const PARTS: [&str; 4] = ["self.query", "self.key", "self.value", "output.dense"];

/// BERT's layers, with the names of an attention's parts.
pub(super) fn layers(names: Names, prefix: &str, parts: [&str; 4]) -> Names {
    let (block, ours) = (format!("{prefix}.encoder.layer.{{}}"), "encoder.blocks.{}");
    names
        .attention(&format!("{block}.attention"), parts, &format!("{ours}.attention"))
        .norm(&format!("{block}.attention.output.LayerNorm"), &format!("{ours}.attention_norm"))
        .linear(&format!("{block}.intermediate.dense"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.output.dense"), &format!("{ours}.feed_forward.down"))
        .norm(&format!("{block}.output.LayerNorm"), &format!("{ours}.feed_forward_norm"))
}

/// The head: its dense layer, norm, bias, and a matrix that may be the embeddings again.
pub(super) fn scores(names: Names, dense: &str, norm: &str, bias: &str, decoder: &str) -> Names {
    names
        .linear(dense, "output_transform.linear")
        .norm(norm, "output_transform.norm")
        .keep(bias, "output.bias")
        .untied(&format!("{decoder}.weight"), "output.weight")
        .copy(&format!("{decoder}.bias"), bias)
}

fn cls(names: Names) -> Names {
    scores(
        names,
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder",
    )
    .ignore("cls.seq_relationship.weight")
    .ignore("cls.seq_relationship.bias")
}

fn bert_names(_config: &Config) -> Result<Names> {
    Ok(cls(layers(embeddings("bert", 0), "bert", PARTS)))
}

fn roformer_names(_config: &Config) -> Result<Names> {
    Ok(cls(layers(embeddings("roformer", 0), "roformer", PARTS))
        .linear("roformer.embeddings_project", "encoder.embedding_projection")
        .ignore("roformer.encoder.embed_positions.weight"))
}

fn roberta_head(names: Names) -> Names {
    scores(names, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder")
}

fn roberta_names(config: &Config) -> Result<Names> {
    Ok(roberta_head(layers(embeddings("roberta", before_text(config)?), "roberta", PARTS)))
}

fn longformer_names(config: &Config) -> Result<Names> {
    let names =
        roberta_head(layers(embeddings("longformer", before_text(config)?), "longformer", PARTS));
    // Projections of global tokens, of which an imported model has none.
    let parts = ["query", "key", "value"].into_iter().flat_map(|part| {
        let theirs = format!("longformer.encoder.layer.{{}}.attention.self.{part}_global");
        ["weight", "bias"].map(|end| format!("{theirs}.{end}"))
    });
    Ok(parts.fold(names, |names, part| names.ignore(&part)))
}

fn distilbert_names(_config: &Config) -> Result<Names> {
    let (block, ours) = ("distilbert.transformer.layer.{}", "encoder.blocks.{}");
    let names = embeddings("distilbert", 0)
        .attention(
            &format!("{block}.attention"),
            ["q_lin", "k_lin", "v_lin", "out_lin"],
            &format!("{ours}.attention"),
        )
        .norm(&format!("{block}.sa_layer_norm"), &format!("{ours}.attention_norm"))
        .linear(&format!("{block}.ffn.lin1"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.ffn.lin2"), &format!("{ours}.feed_forward.down"))
        .norm(&format!("{block}.output_layer_norm"), &format!("{ours}.feed_forward_norm"));
    Ok(scores(
        names,
        "vocab_transform",
        "vocab_layer_norm",
        "vocab_projector.bias",
        "vocab_projector_",
    )
    .untied("vocab_projector.weight", "output.weight"))
}

fn albert_names(_config: &Config) -> Result<Names> {
    let block = "albert.encoder.albert_layer_groups.0.albert_layers.0";
    // One block for all layers: ours has the first only.
    let ours = "encoder.blocks.0";
    let names = embeddings("albert", 0)
        .linear("albert.encoder.embedding_hidden_mapping_in", "encoder.embedding_projection")
        .attention(
            &format!("{block}.attention"),
            ["query", "key", "value", "dense"],
            &format!("{ours}.attention"),
        )
        .norm(&format!("{block}.attention.LayerNorm"), &format!("{ours}.attention_norm"))
        .linear(&format!("{block}.ffn"), &format!("{ours}.feed_forward.up"))
        .linear(&format!("{block}.ffn_output"), &format!("{ours}.feed_forward.down"))
        .norm(&format!("{block}.full_layer_layer_norm"), &format!("{ours}.feed_forward_norm"))
        .ignore("albert.pooler.weight")
        .ignore("albert.pooler.bias");
    Ok(scores(
        names,
        "predictions.dense",
        "predictions.LayerNorm",
        "predictions.bias",
        "predictions.decoder",
    )
    .ignore("sop_classifier.classifier.weight")
    .ignore("sop_classifier.classifier.bias"))
}
