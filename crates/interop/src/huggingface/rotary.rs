//! Rotary's angles: `rope_theta` and `rope_scaling` of transformers 4, `rope_parameters` of transformers 5.

use serde_json::Value;

use super::{config::Config, settings::Settings};
use crate::{Error, error::Result};

/// What a family leaves open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rope<'a> {
    /// The base where no key says it.
    pub(crate) base: f64,
    /// The key of version 4 for the base.
    pub(crate) base_key: &'a str,
    /// The share of a head's channels that rotate, unless `partial_rotary_factor` says otherwise.
    pub(crate) share: f64,
    /// Which of the tables by type of layer, where there are several.
    pub(crate) layer: Option<&'a str>,
    /// The trained length where the file does not say it beside the longest one.
    pub(crate) trained: Option<usize>,
}

impl Default for Rope<'_> {
    fn default() -> Self {
        Self { base: 10_000.0, base_key: "rope_theta", share: 1.0, layer: None, trained: None }
    }
}

/// The position of a layer.
pub(crate) fn rotary(config: &Config, rope: Rope) -> Result<Settings> {
    let mut base = config.number(rope.base_key, rope.base)?;
    let mut share = config.number("partial_rotary_factor", rope.share)?;
    let mut tables = Vec::new();
    if let Some(all) = config.table("rope_parameters")? {
        // Versions differ in which of both they read.
        config.only("rope_scaling", Value::Null)?;
        tables.push(match rope.layer.map(|layer| (layer, all.table(layer))) {
            Some((layer, own)) => {
                all.understood(&["full_attention", "sliding_attention"]);
                all.finish()?;
                own?.ok_or_else(|| config.wrong("rope_parameters", &format!("{layer} in it")))?
            }
            None => all,
        });
    }
    tables.extend(config.table("rope_scaling")?);
    let mut position = Settings::kind("rotary");
    for table in tables {
        base = table.number("rope_theta", base)?;
        share = table.number("partial_rotary_factor", share)?;
        if let Some(scaling) = scaling(config, &table, rope.trained)? {
            position = position.set("scaling", scaling);
        }
        table.finish()?;
    }
    if share != 1.0 {
        share = whole(config, share)?;
    }
    Ok(position.set("base", base).set_unless("channels", 1.0, share))
}

/// A share of a head's channels as the number of them that transformers rotates: rounded down, and an even one.
fn whole(config: &Config, share: f64) -> Result<f64> {
    let head_dim = match config.count_if("head_dim")? {
        Some(head_dim) => head_dim,
        None => config.count("hidden_size")? / config.count("num_attention_heads")?.max(1),
    };
    let channels = (head_dim as f64 * share) as usize;
    if channels == 0 || channels > head_dim || channels % 2 == 1 {
        let reason = format!(
            "partial_rotary_factor = {share}: {channels} of {head_dim} channels of a head would rotate, expected an even number of them"
        );
        return Err(Error::Refused(reason));
    }
    Ok(share_of(channels, head_dim))
}

/// The share that so many channels are, such that the product with all of them does not round to fewer.
pub(crate) fn share_of(channels: usize, all: usize) -> f64 {
    let share = channels as f64 / all.max(1) as f64;
    if ((all as f64 * share) as usize) < channels { share.next_up() } else { share }
}

/// How angles are scaled; nothing where they are as trained.
fn scaling(config: &Config, table: &Config, default: Option<usize>) -> Result<Option<Settings>> {
    let Some(kind) = table.word_if("rope_type")?.or(table.word_if("type")?) else {
        // Version 5 leaves the name out where angles are as trained; a factor beside none is then refused by its own name.
        return match table.is_within("rope_scaling") {
            false => Ok(None),
            true => Err(table.wrong("rope_type", "its name, such as default or yarn")),
        };
    };
    table.understood(&["type"]);
    let trained = || -> Result<usize> {
        let key = "original_max_position_embeddings";
        let within = table.count_if(key)?;
        match config.count_if(key)?.or(default).or(within) {
            Some(length) => Ok(length),
            None => config.count("max_position_embeddings"),
        }
    };
    let factor = || table.number_if("factor")?.ok_or_else(|| table.wrong("factor", "a number"));
    Ok(Some(match kind.as_str() {
        "default" => {
            // Files carry what their makers' defaults were.
            table.understood(&["factor", "original_max_position_embeddings"]);
            return Ok(None);
        }
        "linear" => {
            table.understood(&["original_max_position_embeddings"]);
            Settings::kind("linear").set("factor", factor()?)
        }
        "dynamic" => {
            table.understood(&["original_max_position_embeddings"]);
            let length = config.count("max_position_embeddings")?;
            Settings::kind("dynamic_ntk").set("factor", factor()?).set("length", length)
        }
        "yarn" => yarn(table, table.number_if("factor")?, trained()?, config)?,
        "llama3" => Settings::kind("llama3")
            .set("factor", factor()?)
            .set("length", trained()?)
            .set("low", table.number("low_freq_factor", 1.0)?)
            .set("high", table.number("high_freq_factor", 4.0)?),
        "longrope" | "su" => longrope(config, table, trained()?)?,
        _ => {
            return Err(
                table.wrong("rope_type", "default, linear, dynamic, yarn, llama3 or longrope")
            );
        }
    }))
}

fn yarn(table: &Config, factor: Option<f64>, trained: usize, config: &Config) -> Result<Settings> {
    // Of the models that were trained on it; what their code does with others follows the length.
    table.only("finetuned", true)?;
    let factor = match factor {
        Some(factor) => factor,
        None if table.is_absent("factor") => return Err(table.wrong("factor", "a number")),
        None => config.count("max_position_embeddings")? as f64 / trained.max(1) as f64,
    };
    // Nothing and 0 are the same there, and one of the two without the other says nothing.
    let number = |key: &str| Ok::<_, Error>(table.number_if(key)?.filter(|number| *number != 0.0));
    let scales = number("mscale")?.zip(number("mscale_all_dim")?);
    Ok(Settings::kind("yarn")
        .set("factor", factor)
        .set("length", trained)
        .set("fast", number("beta_fast")?.unwrap_or(32.0))
        .set("slow", number("beta_slow")?.unwrap_or(1.0))
        .set_if("attention_factor", table.number_if("attention_factor")?)
        .set_if("mscale", scales.map(|(own, _)| own))
        .set_if("mscale_all_dim", scales.map(|(_, all)| all))
        .set_unless("truncate", true, table.flag("truncate", true)?))
}

/// LongRoPE: a factor for each pair, one list up to the trained length and one beyond it.
fn longrope(config: &Config, table: &Config, trained: usize) -> Result<Settings> {
    let list = |key| {
        table.numbers(key)?.ok_or_else(|| table.wrong(key, "a list with a number for each pair"))
    };
    let reached = config.count("max_position_embeddings")? as f64 / trained.max(1) as f64;
    // A factor below 1 is as 1 there.
    let factor = table.number_if("factor")?.unwrap_or(reached).max(1.0);
    Ok(Settings::kind("longrope")
        .set("short_factor", list("short_factor")?)
        .set("long_factor", list("long_factor")?)
        .set("factor", factor)
        .set("length", trained)
        .set_if("attention_factor", table.number_if("attention_factor")?))
}
