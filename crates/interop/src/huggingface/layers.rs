//! Windows, and layers that differ: `sliding_window`, `layer_types`, and the older keys that say the same.

use serde_json::Value;

use super::{config::Config, settings::Settings};
use crate::{Error, error::Result};

/// A pattern that sees so many tokens, the own one among them; all before it if there is no window.
pub(crate) fn causal(window: Option<usize>) -> Settings {
    match window {
        Some(window) => Settings::kind("window").set("left", window.saturating_sub(1)),
        None => Settings::kind("causal"),
    }
}

/// Refuses a window that shows a token itself or nothing: no pattern of ours says that.
pub(crate) fn window(config: &Config, window: Option<usize>) -> Result<Option<usize>> {
    match window {
        Some(0 | 1) => Err(config.wrong("sliding_window", "at least 2")),
        other => Ok(other),
    }
}

/// A window in every layer, or in those that `layer_types` names; `full_every` says which are full where no list does.
pub(crate) fn windows(
    config: &Config,
    settings: Settings,
    window: Option<usize>,
    full_every: usize,
) -> Result<Settings> {
    let window = self::window(config, window)?;
    let slides = sliding(config, |layer| {
        window.is_some() && (full_every == 0 || (layer + 1) % full_every != 0)
    })?;
    Ok(alternate(settings, &slides, |slides| {
        Settings::default().set("pattern", causal(window.filter(|_| slides)))
    }))
}

/// Qwen's: a window only where `use_sliding_window` says so, from layer `max_window_layers` on.
pub(crate) fn windows_if_used(config: &Config, settings: Settings) -> Result<Settings> {
    let used = config.flag("use_sliding_window", false)?;
    let window = match config.is_absent("sliding_window") {
        true => Some(4096),
        false => config.count_if("sliding_window")?,
    };
    let window = self::window(config, window.filter(|_| used))?;
    let first = config.count_if("max_window_layers")?.unwrap_or(28);
    let slides = sliding(config, |layer| window.is_some() && layer >= first)?;
    Ok(alternate(settings, &slides, |slides| {
        Settings::default().set("pattern", causal(window.filter(|_| slides)))
    }))
}

/// A number of layers of which there can be a list: one of a million layers is no model.
pub(crate) fn count(config: &Config, key: &str) -> Result<usize> {
    match config.count(key)? {
        layers @ ..=10_000 => Ok(layers),
        _ => Err(config.wrong(key, "at most 10000")),
    }
}

/// Whether each layer has a window: by `layer_types`, or else by the rule.
pub(crate) fn sliding(config: &Config, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    let layers = count(config, "num_hidden_layers")?;
    let Some(types) = config.get("layer_types") else { return Ok((0..layers).map(rule).collect()) };
    let read = |value: &Value| match value.as_str() {
        Some("full_attention") => Some(false),
        Some("sliding_attention") => Some(true),
        _ => None,
    };
    let types: Option<Vec<bool>> =
        types.as_array().and_then(|types| types.iter().map(read).collect());
    match types {
        Some(types) if types.len() == layers => Ok(types),
        _ => {
            let expected = "full_attention or sliding_attention for each layer";
            Err::<_, Error>(config.wrong("layer_types", expected))
        }
    }
}

/// What layers have, in turn: the shortest list that says it of all of them, or one setting if they are alike.
pub(crate) fn alternate(
    settings: Settings,
    slides: &[bool],
    of: impl Fn(bool) -> Settings,
) -> Settings {
    let repeats = |n: &usize| slides.iter().enumerate().all(|(i, s)| *s == slides[i % n]);
    let period = (1..=slides.len()).find(repeats).unwrap_or(1);
    match period {
        1 => settings.set_within("attention", of(slides.first().copied().unwrap_or(false))),
        _ => {
            let turns: Vec<Settings> = slides[..period].iter().map(|slides| of(*slides)).collect();
            settings.set("alternate", turns)
        }
    }
}
