//! A choice by its name, with changes to its settings.

use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use whatwhere_attention::AttentionSettings;

use crate::Error;

/// Settings of a small layer in which `axis` is the named choice, changed by `key=value` pairs of its own settings.
pub(super) fn named(
    axis: &str,
    names: &[&str],
    name: &str,
    changes: &[String],
    common: &str,
) -> Result<AttentionSettings, Error> {
    if !names.contains(&name) {
        let names = names.join(", ");
        return Err(Error::Request(format!("no {axis} is called {name}; there are {names}")));
    }
    let wrong = |found: toml::de::Error| {
        Error::Request(format!("{axis} {name}: {}", found.message().trim_end()))
    };
    let mut table: toml::Table = toml::from_str(common).map_err(wrong)?;
    table.insert(axis.into(), name.into());
    for change in changes {
        whatwhere_training::set(&mut table, &format!("{axis}.{change}"))?;
    }
    let settings = AttentionSettings::deserialize(toml::Value::Table(table)).map_err(wrong)?;
    settings.check()?;
    Ok(settings)
}

/// Runs what draws from the framework's generator, of which a process has one, while no other picture draws from it.
pub(super) fn drawing<T>(draw: impl FnOnce() -> T) -> T {
    static DRAWING: Mutex<()> = Mutex::new(());
    let _alone = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
    draw()
}

#[cfg(test)]
mod tests {
    use whatwhere_attention::Position;

    #[test]
    fn names_and_changes_are_those_of_settings() {
        let named = |name: &str, change: &str| {
            super::named("position", Position::NAMES, name, &[change.into()], "width = 64")
        };
        let found = named("rotary", "base=500").unwrap();
        assert!(matches!(&found.position[0], Position::Rotary(rotary) if rotary.base == 500.0));
        let refusals = [
            ("rotry", "base=1", "no position is called rotry; there are none, sinusoidal,"),
            ("rotary", "bas=1", "unknown field `bas`"),
            ("rotary", "base=0.5", "position.base = 0.5: the base is above 1"),
            ("rotary", "base", "expected key=value"),
        ];
        for (name, change, expected) in refusals {
            let error = named(name, change).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
