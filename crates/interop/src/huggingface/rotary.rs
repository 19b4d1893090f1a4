//! Rotary's angles: `rope_theta` and `rope_scaling` of transformers 4, `rope_parameters` of transformers 5.

use super::{config::Config, settings::Settings};
use crate::error::Result;

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
}

impl Default for Rope<'_> {
    fn default() -> Self {
        Self { base: 10_000.0, base_key: "rope_theta", share: 1.0, layer: None }
    }
}

/// The position of a layer.
pub(crate) fn rotary(config: &Config, rope: Rope) -> Result<Settings> {
    let mut base = config.number(rope.base_key, rope.base)?;
    let mut share = config.number("partial_rotary_factor", rope.share)?;
    let mut tables = Vec::new();
    if let Some(all) = config.table("rope_parameters")? {
        tables.push(match rope.layer.map(|layer| all.table(layer)).transpose()?.flatten() {
            Some(own) => {
                all.understood(&["full_attention", "sliding_attention"]);
                all.finish()?;
                own
            }
            None => all,
        });
    }
    tables.extend(config.table("rope_scaling")?);
    let mut position = Settings::kind("rotary");
    for table in tables {
        base = table.number("rope_theta", base)?;
        share = table.number("partial_rotary_factor", share)?;
        if let Some(scaling) = scaling(config, &table)? {
            position = position.set("scaling", scaling);
        }
        table.finish()?;
    }
    Ok(position.set("base", base).set_unless("channels", 1.0, share))
}

/// How angles are scaled; nothing where they are as trained.
fn scaling(config: &Config, table: &Config) -> Result<Option<Settings>> {
    let Some(kind) = table.word_if("rope_type")?.or(table.word_if("type")?) else {
        // Version 5 leaves the name out where angles are as trained; a factor beside none is then refused by its own name.
        return match table.is_within("rope_scaling") {
            false => Ok(None),
            true => Err(table.wrong("rope_type", "its name, such as default or yarn")),
        };
    };
    table.understood(&["type"]);
    let trained = || -> Result<usize> {
        match table.count_if("original_max_position_embeddings")? {
            Some(length) => Ok(length),
            None => match config.count_if("original_max_position_embeddings")? {
                Some(length) => Ok(length),
                None => config.count("max_position_embeddings"),
            },
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
        "yarn" => yarn(table, factor()?, trained()?)?,
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

fn yarn(table: &Config, factor: f64, trained: usize) -> Result<Settings> {
    // Of the models that were trained on it; what their code does with others follows the length.
    table.only("finetuned", true)?;
    Ok(Settings::kind("yarn")
        .set("factor", factor)
        .set("length", trained)
        .set("fast", table.number("beta_fast", 32.0)?)
        .set("slow", table.number("beta_slow", 1.0)?)
        .set_if("attention_factor", table.number_if("attention_factor")?)
        .set_if("mscale", table.number_if("mscale")?)
        .set_if("mscale_all_dim", table.number_if("mscale_all_dim")?)
        .set_unless("truncate", true, table.flag("truncate", true)?))
}

/// LongRoPE: a factor for each pair, one list up to the trained length and one beyond it.
fn longrope(config: &Config, table: &Config, trained: usize) -> Result<Settings> {
    let list = |key| {
        table.numbers(key)?.ok_or_else(|| table.wrong(key, "a list with a number for each pair"))
    };
    let given = table.number_if("factor")?;
    let reached = config.count("max_position_embeddings")? as f64 / trained as f64;
    let factor = match given {
        Some(factor) if config.get("original_max_position_embeddings").is_none() => factor,
        _ => reached,
    };
    Ok(Settings::kind("longrope")
        .set("short_factor", list("short_factor")?)
        .set("long_factor", list("long_factor")?)
        .set("factor", factor)
        .set("length", trained)
        .set_if("attention_factor", table.number_if("attention_factor")?))
}
