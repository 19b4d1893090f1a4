//! Settings of a model as tables, to be changed by key wherever a choice of a kind stands.

use toml::{Table, Value};
use whatwhere_transformer::{Family, ModelSettings, Site};

/// What a hypothesis may change in an attention.
const KEYS: [&str; 3] = ["position", "pattern", "score"];

/// The same settings with every site's position, pattern and score written out.
pub(super) fn written_out(settings: &ModelSettings) -> Option<ModelSettings> {
    let mut out = settings.clone();
    let mut plain = settings.clone();
    plain.alternate.clear();
    let write = |site: Site| -> Option<Table> {
        let own = Value::try_from(plain.attention(site, 0).ok()?).ok()?;
        let own = own.as_table()?.clone();
        Some(own.into_iter().filter(|(key, _)| KEYS.contains(&key.as_str())).collect())
    };
    match settings.family {
        Family::Encoder => out.attention.extend(write(Site::Encoder)?),
        Family::Decoder => out.attention.extend(write(Site::Decoder)?),
        Family::EncoderDecoder => {
            out.attention.extend(write(Site::Decoder)?);
            out.encoder.extend(write(Site::Encoder)?);
            out.cross.extend(write(Site::Cross)?);
        }
    }
    Some(out)
}

/// Every table of an attention.
pub(super) fn tables(settings: &mut ModelSettings) -> Vec<&mut Table> {
    let own = [&mut settings.attention, &mut settings.encoder, &mut settings.cross];
    own.into_iter().chain(&mut settings.alternate).collect()
}

/// The settings after `change` of every choice of a kind under a key; nothing if there is none, or if nothing changed.
pub(super) fn changed(
    settings: &ModelSettings,
    key: &str,
    kind: &str,
    mut change: impl FnMut(&mut Table),
) -> Option<ModelSettings> {
    let mut out = written_out(settings)?;
    let before = out.clone();
    for table in tables(&mut out) {
        if let Some(value) = table.get_mut(key) {
            visit(value, kind, &mut change);
        }
    }
    (out != before).then_some(out)
}

/// Calls `change` with every table of a kind, however deep it stands; a name alone becomes a table.
fn visit(value: &mut Value, kind: &str, change: &mut impl FnMut(&mut Table)) {
    if value.as_str() == Some(kind) {
        *value = Value::Table(Table::from_iter([("kind".into(), kind.into())]));
    }
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| visit(one, kind, change)),
        Value::Table(table) => {
            if table.get("kind").and_then(Value::as_str) == Some(kind) {
                change(table);
            }
            if let Some(parts) = table.get_mut("of") {
                visit(parts, kind, change);
            }
        }
        _ => {}
    }
}

/// A number under a key, whole or not.
pub(super) fn number(table: &Table, key: &str) -> Option<f64> {
    let value = table.get(key)?;
    value.as_float().or(value.as_integer().map(|whole| whole as f64))
}

/// The values of a key in all choices of a kind.
pub(super) fn found(settings: &ModelSettings, key: &str, kind: &str, of: &str) -> Vec<Value> {
    let mut all = Vec::new();
    changed(settings, key, kind, |table| all.extend(table.get(of).cloned()));
    all
}
