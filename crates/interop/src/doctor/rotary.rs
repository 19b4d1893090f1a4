//! Conventions of rotary: which channels form a pair, how many turn, by which angles, and how these are scaled.

use toml::Value;
use whatwhere_transformer::ModelSettings;

use super::{Hypothesis, conventions::settings, tables::changed};

const BASES: [f64; 7] = [10_000.0, 500_000.0, 1_000_000.0, 100_000.0, 160_000.0, 8_000_000.0, 5e6];
const SHARES: [f64; 4] = [1.0, 0.5, 0.4, 0.25];

pub(super) fn all(from: &ModelSettings) -> Vec<Hypothesis> {
    let mut out = Vec::new();
    let (mut had, mut other) = (String::new(), String::new());
    let layout = changed(from, "position", "rotary", |table| {
        had = table.get("layout").and_then(Value::as_str).unwrap_or("half_split").into();
        other = if had == "half_split" { "interleaved" } else { "half_split" }.into();
        table.insert("layout".into(), other.clone().into());
    });
    out.extend(layout.map(|to| settings("rotary layout", format!("{other} instead of {had}"), to)));
    for base in BASES {
        let to = changed(from, "position", "rotary", |table| {
            table.insert("base".into(), base.into());
        });
        out.extend(to.map(|to| settings("rotary base", format!("base {base}"), to)));
    }
    for share in SHARES {
        let to = changed(from, "position", "rotary", |table| {
            table.insert("channels".into(), share.into());
        });
        let change = format!("{share} of the channels rotate");
        out.extend(to.map(|to| settings("rotary channels", change, to)));
    }
    let to = changed(from, "position", "rotary", |table| {
        table.remove("scaling");
    });
    out.extend(to.map(|to| settings("rotary scaling", "no scaling", to)));
    for factor in [2.0, 4.0, 8.0, 16.0] {
        let change = format!("linear scaling by {factor}");
        out.extend(linear(from, factor).map(|to| settings("rotary scaling", change, to)));
    }
    let to = changed(from, "position", "rotary", |table| {
        if let Some(Value::Table(scaling)) = table.get_mut("scaling")
            && scaling.contains_key("length")
            && scaling.get("kind").and_then(Value::as_str) == Some("yarn")
        {
            scaling.insert("attention_factor".into(), 1.0.into());
        }
    });
    out.extend(to.map(|to| settings("rotary scaling", "without YaRN's factor on scores", to)));
    out
}

/// Position interpolation by a factor.
pub(super) fn linear(from: &ModelSettings, factor: f64) -> Option<ModelSettings> {
    changed(from, "position", "rotary", |table| {
        let scaling = [("kind", Value::from("linear")), ("factor", factor.into())];
        let scaling = scaling.map(|(key, value)| (key.to_owned(), value));
        table.insert("scaling".into(), Value::Table(scaling.into_iter().collect()));
    })
}
