//! What is tried: conventions in which implementations of one model are known to differ, each with the values in use.

use toml::Value;
use whatwhere_transformer::{Activation, Family, ModelSettings, NormKind, ResidualKind, Site};

use super::{
    Cure, Hypothesis, rotary,
    tables::{changed, found, number, tables, written_out},
    weights,
};

const EPSILONS: [f64; 8] = [1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2];
const SCORE_CAPS: [f64; 3] = [50.0, 30.0, 20.0];
const OUTPUT_CAPS: [f32; 3] = [30.0, 50.0, 15.0];

/// Every hypothesis that has a meaning for a model of these settings.
pub(super) fn all(settings: &ModelSettings) -> Vec<Hypothesis> {
    let lists = [
        rotary::all,
        causal,
        window,
        caps,
        scale,
        epsilon,
        embedding_scale,
        activation,
        norm,
        residual,
        places,
        buckets,
        weights::all,
    ];
    lists.iter().flat_map(|list| list(settings)).collect()
}

/// A hypothesis that changes settings only.
pub(super) fn settings(
    convention: &'static str,
    change: impl Into<String>,
    to: ModelSettings,
) -> Hypothesis {
    Hypothesis { convention, change: change.into(), cure: Cure::Settings(Box::new(to)) }
}

/// The same model with one setting changed.
fn with(from: &ModelSettings, change: impl FnOnce(&mut ModelSettings)) -> ModelSettings {
    let mut to = from.clone();
    change(&mut to);
    to
}

/// A convention with a number that can be any, which is searched for if none of those in use agrees.
pub(super) struct Fit {
    pub(super) convention: &'static str,
    /// What the number is, with `{}` in its place.
    pub(super) change: &'static str,
    /// From least to largest.
    pub(super) range: [f64; 2],
    pub(super) with: Box<dyn Fn(f64) -> Option<ModelSettings>>,
}

/// Numbers that are searched for.
pub(super) fn fits(from: &ModelSettings) -> Vec<Fit> {
    let mut out = Vec::new();
    let mut add =
        |convention, change, range, with: fn(&ModelSettings, f64) -> Option<ModelSettings>| {
            let from = from.clone();
            out.push(Fit {
                convention,
                change,
                range,
                with: Box::new(move |value| with(&from, value)),
            });
        };
    add("soft cap", "{} on scores", [0.5, 200.0], |from, cap| Some(score_cap(from, Some(cap))));
    add("soft cap", "{} on logits", [0.5, 200.0], |from, cap| {
        Some(with(from, |to| to.output_soft_cap = Some(cap as f32)))
    });
    add("score scale", "scores times {}", [0.005, 4.0], scaled);
    add("epsilon", "{}", [1e-12, 0.5], |from, e| Some(with(from, |to| to.epsilon = e)));
    add("rotary base", "base {}", [2.0, 1e9], |from, base| {
        changed(from, "position", "rotary", |table| {
            table.insert("base".into(), base.into());
        })
    });
    add("rotary scaling", "linear scaling by {}", [1.01, 128.0], rotary::linear);
    out
}

/// Whether a query sees its own place, the next, or all.
fn causal(from: &ModelSettings) -> Vec<Hypothesis> {
    const NAME: &str = "causal alignment";
    let mut out = Vec::new();
    let offset = |to: &ModelSettings, by: i64| {
        changed(to, "pattern", "causal", |table| {
            let had = table.get("offset").and_then(Value::as_integer).unwrap_or(0);
            table.insert("offset".into(), (had + by).into());
        })
    };
    let behind = "a query sees the keys before its own place only";
    out.extend(offset(from, -1).map(|to| settings(NAME, behind, to)));
    match from.family {
        Family::Encoder => {
            for (had, right, change) in [
                ("full", "causal", "a query sees no later keys"),
                ("causal", "full", "a query sees all keys, later ones too"),
            ] {
                let to = changed(from, "pattern", had, |table| {
                    table.clear();
                    table.insert("kind".into(), right.into());
                });
                out.extend(to.map(|to| settings(NAME, change, to)));
            }
        }
        Family::Decoder => {
            // A decoder refuses to see what it predicts; an encoder of the same weights does not.
            let Some(mut both) = written_out(from) else { return out };
            both.family = Family::Encoder;
            both.segment_memory = 0;
            let ahead = changed(&both, "pattern", "window", |table| {
                table.insert("right".into(), 1.into());
            });
            let ahead = ahead.unwrap_or_else(|| both.clone());
            let ahead = offset(&ahead, 1).unwrap_or(ahead);
            let full = changed(&both, "pattern", "causal", |table| {
                table.clear();
                table.insert("kind".into(), "full".into());
            });
            let seeing = [
                (Some(ahead), "a query sees the key after its own place, too"),
                (full, "a query sees all keys, later ones too"),
            ];
            for (to, change) in seeing {
                let Some(to) = to.filter(|to| *to != both) else { continue };
                let cure = Cure::Weights(Box::new(to), Box::new(|all| weights::as_encoder(all)));
                out.push(Hypothesis { convention: NAME, change: change.into(), cure });
            }
        }
        Family::EncoderDecoder => {}
    }
    out
}

fn window(from: &ModelSettings) -> Vec<Hypothesis> {
    const NAME: &str = "window";
    let mut out = Vec::new();
    let decoder = from.family == Family::Decoder;
    for by in [-1, 1] {
        let to = changed(from, "pattern", "window", |table| {
            for side in ["left", "right"] {
                let had = table.get(side).and_then(Value::as_integer).unwrap_or(0);
                // The side that sees nothing is causal, not a window.
                if had > 0 {
                    table.insert(side.into(), (had + by).into());
                }
            }
        });
        let change = format!("{} by one", if by < 0 { "shorter" } else { "longer" });
        out.extend(to.map(|to| settings(NAME, change, to)));
    }
    let lost = changed(from, "pattern", "window", |table| {
        table.clear();
        table.insert("kind".into(), if decoder { "causal" } else { "full" }.into());
    });
    out.extend(lost.map(|to| settings(NAME, "no window", to)));
    if from.alternate.len() > 1 {
        let to = with(from, |to| to.alternate.rotate_left(1));
        out.push(settings(NAME, "layers take turns from the next on", to.clone()));
        let to = with(&to, |to| to.alternate.rotate_right(2));
        if to.alternate != from.alternate && from.alternate.len() > 2 {
            out.push(settings(NAME, "layers take turns from the one before on", to));
        }
        let lost = with(from, |to| {
            tables(to).into_iter().for_each(|table| {
                table.remove("pattern");
            });
        });
        out.push(settings(NAME, "no window in any layer", lost));
    }
    out
}

fn caps(from: &ModelSettings) -> Vec<Hypothesis> {
    const NAME: &str = "soft cap";
    let mut out = Vec::new();
    for cap in [None].into_iter().chain(SCORE_CAPS.map(Some)) {
        let change = cap.map_or("none on scores".into(), |cap| format!("{cap} on scores"));
        out.push(settings(NAME, change, score_cap(from, cap)));
    }
    for cap in [None].into_iter().chain(OUTPUT_CAPS.map(Some)) {
        let change = cap.map_or("none on logits".into(), |cap| format!("{cap} on logits"));
        out.push(settings(NAME, change, with(from, |to| to.output_soft_cap = cap)));
    }
    out.retain(|one| matches!(&one.cure, Cure::Settings(to) if **to != *from));
    out
}

fn score_cap(from: &ModelSettings, cap: Option<f64>) -> ModelSettings {
    with(from, |to| {
        for table in tables(to) {
            table.remove("soft_cap");
        }
        if let Some(cap) = cap {
            to.attention.insert("soft_cap".into(), cap.into());
        }
    })
}

/// The factor on scores.
fn scale(from: &ModelSettings) -> Vec<Hypothesis> {
    let site = if from.family == Family::Encoder { Site::Encoder } else { Site::Decoder };
    let Ok(own) = from.attention(site, 0) else { return Vec::new() };
    let head_dim = own.head_dim.unwrap_or(from.width / own.heads.max(1)) as f64;
    let (width, even) = (from.width as f64, from.width as f64 / own.heads as f64);
    let current = match found(from, "score", "dot", "scale").first() {
        Some(value) => value.as_float().unwrap_or(1.0),
        None => head_dim.powf(-0.5),
    };
    let values = [
        (head_dim.powf(-0.5), "head_dim^−½"),
        (1.0, "none"),
        (1.0 / head_dim, "1/head_dim"),
        (width.powf(-0.5), "width^−½"),
        (even.powf(-0.5), "(width/heads)^−½"),
        (head_dim.powf(-0.25), "head_dim^−¼"),
    ];
    let mut out: Vec<Hypothesis> = Vec::new();
    for (value, name) in values {
        if (value - current).abs() < 1e-6 * current {
            continue;
        }
        let change = format!("scores times {value:.4} ({name})");
        if !out.iter().any(|one| one.change == change) {
            out.extend(scaled(from, value).map(|to| settings("score scale", change, to)));
        }
    }
    out
}

fn scaled(from: &ModelSettings, scale: f64) -> Option<ModelSettings> {
    let set = |from: &ModelSettings, kind: &str| {
        changed(from, "score", kind, |table| {
            table.insert("kind".into(), "dot".into());
            table.insert("scale".into(), scale.into());
        })
    };
    let plain = set(from, "scaled_dot");
    let dot = set(plain.as_ref().unwrap_or(from), "dot");
    dot.or(plain)
}

fn epsilon(from: &ModelSettings) -> Vec<Hypothesis> {
    let others = EPSILONS.into_iter().filter(|epsilon| *epsilon != from.epsilon);
    let to = |epsilon| with(from, |to| to.epsilon = epsilon);
    others
        .map(|e| settings("epsilon", format!("{e:e} instead of {:e}", from.epsilon), to(e)))
        .collect()
}

fn embedding_scale(from: &ModelSettings) -> Vec<Hypothesis> {
    let Ok(scales) = from.scales_embeddings() else { return Vec::new() };
    let change = match scales {
        true => "embeddings as they are",
        false => "embeddings times √width",
    };
    vec![settings("embedding scale", change, with(from, |to| to.scale_embeddings = Some(!scales)))]
}

fn activation(from: &ModelSettings) -> Vec<Hypothesis> {
    let others = [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu];
    let current = match from.activation {
        Activation::Swiglu => Activation::Silu,
        other => other,
    };
    let others = others.into_iter().filter(|other| *other != current);
    let to = |other| {
        with(from, |to| {
            to.gated = from.is_gated();
            to.feed_forward = Some(from.feed_forward_width());
            to.activation = other;
        })
    };
    others
        .map(|other| settings("activation", format!("{other:?}").to_lowercase(), to(other)))
        .collect()
}

fn norm(from: &ModelSettings) -> Vec<Hypothesis> {
    let (other, change) = match from.norm {
        NormKind::Rms => (NormKind::Layer, "with the mean taken away"),
        NormKind::Layer => (NormKind::Rms, "without taking the mean away"),
    };
    let to = with(from, |to| (to.norm, to.norm_bias) = (other, Some(false)));
    let to = with(&to, |to| to.norm_bias = to.norm_bias.filter(|_| other == NormKind::Layer));
    vec![settings("norm", change, to)]
}

fn residual(from: &ModelSettings) -> Vec<Hypothesis> {
    let (other, change) = match from.residual {
        ResidualKind::Sequential => {
            (ResidualKind::ParallelTwoNorms, "attention and feed-forward side by side")
        }
        _ => (ResidualKind::Sequential, "the feed-forward after attention"),
    };
    vec![settings("residual", change, with(from, |to| to.residual = other))]
}

/// Where sinusoids begin, and how they lie.
fn places(from: &ModelSettings) -> Vec<Hypothesis> {
    let mut out = Vec::new();
    for first in 0..3 {
        let to = changed(from, "position", "sinusoidal", |table| {
            table.insert("first".into(), first.into());
        });
        out.extend(to.map(|to| settings("first place", format!("the first is {first}"), to)));
    }
    for layout in ["interleaved", "concatenated", "tensor2tensor"] {
        let to = changed(from, "position", "sinusoidal", |table| {
            table.insert("layout".into(), layout.into());
        });
        out.extend(to.map(|to| settings("sinusoidal layout", layout, to)));
    }
    out
}

/// T5's buckets.
fn buckets(from: &ModelSettings) -> Vec<Hypothesis> {
    let mut out = Vec::new();
    for reach in [128, 64, 256, 20] {
        let to = changed(from, "position", "t5", |table| {
            if number(table, "max_distance") != Some(f64::from(reach)) {
                table.insert("max_distance".into(), reach.into());
            }
        });
        let change = format!("the last bucket from distance {reach} on");
        out.extend(to.map(|to| settings("buckets", change, to)));
    }
    let to = changed(from, "position", "t5", |table| {
        let had = table.get("bidirectional").and_then(Value::as_bool).unwrap_or(false);
        table.insert("bidirectional".into(), (!had).into());
    });
    out.extend(to.map(|to| settings("buckets", "the other of one side and both sides", to)));
    out
}
