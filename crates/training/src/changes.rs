//! Settings with changes: where a file is wrong its own lines are shown, where a change is, the words of that change.

use toml::{Table, Value};
use whatwhere_attention::AttentionSettings;
use whatwhere_settings::Refuses;

use crate::{Error, RunSettings, keys, set};

/// The settings of a text after `key=value` changes, not checked yet.
pub(crate) fn read(text: &str, changes: &[String]) -> Result<RunSettings, Error> {
    let file: Table = toml::from_str(text).map_err(Error::unreadable)?;
    let mut changes = changes
        .iter()
        .map(|change| {
            let wrong = |reason| Error::Settings(format!("--set {change}: {reason}"));
            keys::expanded(change).map_err(wrong)
        })
        .collect::<Result<Vec<String>, Error>>()?;
    loop {
        let reason = match changed(&file, &changes)? {
            Ok(settings) => return Ok(settings),
            Err(reason) => reason,
        };
        if let Some(at) = number_for_a_word(&file, &changes, &reason)? {
            changes[at] = quoted(&changes[at]);
            continue;
        }
        toml::from_str::<RunSettings>(text).map_err(Error::unreadable)?;
        return Err(Error::Settings(match guilty(&file, &changes, &reason) {
            Some(change) => format!("--set {change}: {reason}"),
            None => reason,
        }));
    }
}

/// The settings after changes, or what is wrong with them.
fn changed(file: &Table, changes: &[String]) -> Result<Result<RunSettings, String>, Error> {
    let mut table = file.clone();
    for change in changes {
        keep_default_kind(&mut table, change);
        set(&mut table, change)?;
    }
    Ok(table.try_into().map_err(|e: toml::de::Error| e.message().trim().to_owned()))
}

/// `schedule.warmup=5` where no schedule was chosen is a change of the default one.
fn keep_default_kind(table: &mut Table, change: &str) {
    let keys: Vec<&str> = change.split('=').next().unwrap_or_default().trim().split('.').collect();
    let Ok(mut defaults) = Table::try_from(RunSettings::default()) else { return };
    if let Some(Value::Table(model)) = defaults.get_mut("model")
        && let Ok(attention) = Table::try_from(AttentionSettings::default())
    {
        model.insert("attention".into(), attention.into());
    }
    let (mut at, mut default) = (table, &defaults);
    for key in &keys[..keys.len() - 1] {
        let Some(value) = default.get(*key) else { return };
        let value = match value {
            Value::Array(list) if list.len() == 1 => &list[0],
            value => value,
        };
        let kind = match value {
            Value::Table(table) => table.get("kind"),
            value => Some(value),
        };
        if let (None, Some(kind @ Value::String(_))) = (at.get(*key), kind) {
            at.insert((*key).into(), kind.clone());
            return;
        }
        let (Value::Table(inner), Value::Table(beside)) =
            (at.entry(*key).or_insert_with(|| Table::new().into()), value)
        else {
            return;
        };
        (at, default) = (inner, beside);
    }
}

/// The change whose value is a number where a word is expected, such as the column of a table.
fn number_for_a_word(
    file: &Table,
    changes: &[String],
    reason: &str,
) -> Result<Option<usize>, Error> {
    if !reason.contains("expected a string") {
        return Ok(None);
    }
    for at in 0..changes.len() {
        let mut others = changes.to_vec();
        others[at] = quoted(&changes[at]);
        if others[at] != changes[at] && changed(file, &others)?.err().as_deref() != Some(reason) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The change with its value as a TOML string, unless it is one.
fn quoted(change: &str) -> String {
    match change.split_once('=') {
        Some((key, value)) if !value.trim().starts_with(['"', '\'']) => {
            format!("{key}={}", Value::String(value.trim().into()))
        }
        _ => change.into(),
    }
}

/// The change without which the reason is gone. What one change begins another may go on with: one that alone makes no
/// sense is not to blame.
fn guilty<'a>(file: &Table, changes: &'a [String], reason: &str) -> Option<&'a String> {
    (0..changes.len()).find_map(|at| {
        let mut others = changes.to_vec();
        others.remove(at);
        let outcome = changed(file, &others).ok()?;
        (outcome.err().as_deref() != Some(reason)).then_some(&changes[at])
    })
}
