//! Which settings the cells of a comparison share, and which are a cell's own.

use toml::{Table, Value};

use crate::{compare::Comparison, grid::Cell, results::Outcome};

/// The settings that runs really had, budget and vocabulary included.
pub(crate) struct Shared {
    /// What all trained cells agree in, TOML.
    pub(crate) text: String,
    /// For each cell, what it has otherwise: keys and values; nothing for cells that were not trained.
    pub(crate) own: Vec<Vec<(String, String)>>,
}

impl Shared {
    pub(crate) fn of(comparison: &Comparison, cells: &[Cell], outcomes: &[Outcome]) -> Self {
        let tables: Vec<Option<Table>> = cells
            .iter()
            .zip(outcomes)
            .map(|(cell, outcome)| {
                let run = outcome.runs().first()?;
                let trained = comparison.run_folder(cell, run.seed).load_settings().ok();
                Table::try_from(trained.as_ref().or(cell.settings.as_ref().ok())?).ok()
            })
            .collect();
        let all = tables.iter().flatten().cloned();
        let mut common = all.reduce(|common, table| agreed(common, &table));
        // What cells were to differ in is their own, also where those that were trained happen to agree.
        for axis in &comparison.axes {
            if let Some(common) = &mut common {
                forget(common, &axis.key);
            }
        }
        let own = tables.into_iter().map(|table| {
            let (Some(table), Some(common)) = (table, &common) else { return Vec::new() };
            let mut own = Vec::new();
            differing("", &table, common, &mut own);
            own
        });
        let own = own.collect();
        let text = common.and_then(|common| toml::to_string(&common).ok());
        Self { text: text.unwrap_or_else(|| comparison.settings.clone()), own }
    }
}

/// What two tables agree in.
fn agreed(a: Table, b: &Table) -> Table {
    a.into_iter()
        .filter_map(|(key, value)| match (value, b.get(&key)?) {
            (Value::Table(a), Value::Table(b)) => Some((key, Value::Table(agreed(a, b)))),
            (value, other) => (value == *other).then_some((key, value)),
        })
        .collect()
}

/// Takes a dotted key out of a table.
fn forget(table: &mut Table, key: &str) {
    match key.split_once('.') {
        None => {
            table.remove(key);
        }
        Some((outer, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(outer) {
                forget(inner, rest);
            }
        }
    }
}

/// What a table has that is not in the other, with dotted keys.
fn differing(prefix: &str, table: &Table, common: &Table, found: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let key_path = format!("{prefix}{key}");
        match (value, common.get(key)) {
            (Value::Table(inner), Some(Value::Table(common))) => {
                differing(&format!("{key_path}."), inner, common, found);
            }
            (value, Some(same)) if value == same => {}
            (value, _) => found.push((key_path, value.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_parted_into_what_they_share_and_what_not() {
        let a: Table = toml::from_str("x = 1\n[m]\nw = 2\nposition = 'rotary'").unwrap();
        let b: Table = toml::from_str("x = 1\n[m]\nw = 2\nposition = { kind = 'polar' }").unwrap();
        let common = agreed(a.clone(), &b);
        assert_eq!(toml::to_string(&common).unwrap(), "x = 1\n\n[m]\nw = 2\n");
        let mut own = Vec::new();
        differing("", &a, &common, &mut own);
        assert_eq!(own, [("m.position".to_owned(), "\"rotary\"".to_owned())]);
        // What cells were to differ in, though these two agree.
        let mut common = common;
        forget(&mut common, "m.w");
        forget(&mut common, "m.none.of.these");
        own.clear();
        differing("", &a, &common, &mut own);
        assert_eq!(
            own.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
            ["m.position", "m.w"]
        );
    }
}
